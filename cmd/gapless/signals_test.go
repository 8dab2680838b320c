//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started is a command in a process of its own. It is killed if the test hangs.
func started(t *testing.T, args ...string) (cmd *exec.Cmd, out, errs io.Reader) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), binary(t), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if errs, err = cmd.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { guard.Stop() })
	return cmd, out, errs
}

// until reads lines up to one that contains text.
func until(t *testing.T, r *bufio.Reader, text string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%q did not come: %v", text, err)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

func TestSignalStopsCleanly(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd, out, errs := started(t, "run", "--embedded", "--embedded-records=20000", "--workers=8", "--progress-every=0")
		go func() { _, _ = io.Copy(io.Discard, errs) }()
		r := bufio.NewReader(out)
		first, err := r.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(append(first, rest...)) {
			if !json.Valid(line) || !bytes.HasSuffix(line, []byte("\n")) {
				t.Fatalf("%v: not a whole line: %q", signal, line)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v, want exit code 0", signal, err)
		}
	}
}

func TestSecondSignal(t *testing.T) {
	cmd, _, errs := started(t, "run", "--embedded", "--sleep=1h", "--workers=3", "--json", "--progress-every=10ms")
	r := bufio.NewReader(errs)
	for _, text := range []string{`"in_flight":3`, `"event":"stopping"`} {
		until(t, r, text)
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	until(t, r, "the stop left 3 records")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
}

// A reader of stdout that goes away does not kill the command: it stops as after any other failure.
func TestBrokenPipe(t *testing.T) {
	cmd, out, errs := started(t, "run", "--embedded", "--embedded-records=20000")
	said := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(errs)
		said <- string(b)
	}()
	if _, err := bufio.NewReader(out).ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	_ = out.(io.Closer).Close()
	text := <-said
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(text, "stdout: ") || !strings.Contains(text, "stopped") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

func TestProduceSignal(t *testing.T) {
	cmd, out, errs := started(t, "produce", "--embedded", "--generate=0", "--rate=2000", "--json")
	r := bufio.NewReader(errs)
	until(t, r, "embedded broker on")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, want exit code 0", err)
	}
	if len(b) > 0 && !json.Valid(b) { // nothing at all, where the signal came before the first record
		t.Errorf("not JSON: %s", b)
	}
}

// TestBenchSignal: an interrupt ends a sweep, which shows what was measured until then.
func TestBenchSignal(t *testing.T) {
	cmd, out, errs := started(t, "bench", "--synthetic", "--handler=none", "--workers=2", "--partitions=2", "--rounds=100000", "--duration=20ms", "--warm=1ms")
	table := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(out)
		table <- b
	}()
	r := bufio.NewReader(errs)
	until(t, r, "round 1, pipeline")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r)
	b := <-table
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte("interrupted")) || !bytes.Contains(b, []byte("decode")) {
		t.Errorf("%s", b)
	}
}
