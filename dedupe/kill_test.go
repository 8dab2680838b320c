package dedupe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// childDir makes the test binary a process that marks keys in a store until it is killed.
const childDir = "GAPLESS_DEDUPE_CHILD"

// killPart is small, so that kills fall into the sealing of parts as well.
const killPart = 10_000

// child marks the numbers from where the oracle file ends on, and writes each number there once it is durable.
func child(dir string) {
	oracle, err := os.OpenFile(filepath.Join(dir, "oracle"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() { // should the parent die first
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	first, _ := strconv.Atoi(os.Getenv(childDir + "_FIRST"))
	s, err := Open(filepath.Join(dir, "store"), Options{
		partSize: killPart,
		OnDurable: func(tags []Tag, err error) {
			if err != nil {
				return
			}
			b := make([]byte, 0, 8*len(tags))
			for _, tag := range tags {
				b = binary.BigEndian.AppendUint64(b, tag.Seq)
			}
			if _, err := oracle.Write(b); err != nil { // survives the kill of a process, as the page cache does
				os.Exit(1)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	for i := first; ; i += 50 {
		if s.Room(context.Background()) != nil {
			os.Exit(1)
		}
		var done []Completion
		for j := i; j < i+50; j++ {
			c, v, err := s.Claim(key(s, j), 1, Tag{})
			if err != nil || v == Busy {
				os.Exit(1)
			}
			done = append(done, Completion{c, Tag{Seq: uint64(j)}})
		}
		s.Mark(done)
		if i%1000 == 0 {
			fmt.Println(i)
		}
	}
}

// TestKilledProcessesLoseNothing (C5): a process that marks is killed again and again, at no moment in particular. What it had
// reported is there, and what it had not begun is not. GAPLESS_KILLS says how often.
// Seen at cockroachdb/pebble#1165.
func TestKilledProcessesLoseNothing(t *testing.T) {
	kills := 3
	if n, err := strconv.Atoi(os.Getenv("GAPLESS_KILLS")); err == nil {
		kills = n
	}
	r := random(t)
	dir := t.TempDir()
	first := 0
	for range kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir, fmt.Sprintf("%s_FIRST=%d", childDir, first))
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		last := ""
		for n := 5 + r.IntN(60); n > 0 && lines.Scan(); n-- {
			last = lines.Text()
		}
		_ = cmd.Process.Kill()
		for lines.Scan() {
			last = lines.Text()
		}
		_ = cmd.Wait()
		if n, err := strconv.Atoi(last); err == nil {
			first = n + 10_000 // it said each thousand, so no number is begun twice
		} else {
			t.Fatalf("the child said %q", last)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "oracle"))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, filepath.Join(dir, "store"), Options{partSize: killPart})
	lost := 0
	for i := 0; i+8 <= len(b); i += 8 {
		if _, ok, err := s.Get(key(s, int(binary.BigEndian.Uint64(b[i:])))); err != nil {
			t.Fatal(err)
		} else if !ok {
			lost++
		}
	}
	false_ := 0
	for i := range 20_000 {
		if _, ok, err := s.Get(key(s, first+i)); err != nil {
			t.Fatal(err)
		} else if ok {
			false_++
		}
	}
	report, err := s.Verify(t.Context(), nil)
	if err := errors.Join(append(report.Problems, err)...); err != nil {
		t.Error(err)
	}
	if len(b) == 0 {
		t.Error("nothing was acknowledged")
	}
	if lost > 0 || false_ > 0 {
		t.Errorf("%d of %d lost, %d false", lost, len(b)/8, false_)
	}
	t.Logf("%d kills, %d acknowledged, %d lost, %d false", kills, len(b)/8, lost, false_)
}
