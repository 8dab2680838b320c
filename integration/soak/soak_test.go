package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func seed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64N(1_000_000) + 1
	if text := os.Getenv("GAPLESS_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("GAPLESS_SEED: %v", err)
		}
	}
	t.Logf("the same again: GAPLESS_SEED=%d", n)
	return n
}

// TestSoak is a short soak on a real Kafka, with all kinds of churn: every record is handled or dead-lettered, in the order of its key,
// the lag is 0 in the end, every member leaves cleanly, and what the run leaves behind can be read. C1, C2, C6, C8.
func TestSoak(t *testing.T) {
	dir := t.TempDir()
	c := command()
	c.SetArgs([]string{"--duration", "20s", "--rate", "500", "--seed", strconv.FormatUint(seed(t), 10), "--out", dir, "--json"})
	var out, progress bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&progress)
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	var r result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("the output is %q: %v", out.String(), err)
	}
	if !r.Good || r.Counts.Records != 10_000 || r.Counts.Handled+r.Counts.DeadLettered < 10_000 || r.Counts.Copies == 0 || r.Counts.Failures == 0 {
		t.Errorf("the result is %+v", r.Counts)
	}
	done := map[kind]int{}
	for _, e := range r.Events {
		done[e.Kind]++
	}
	for _, k := range kinds {
		if done[k] == 0 && (k != kindBroker || os.Getenv("GAPLESS_TEST_BROKERS") == "") {
			t.Errorf("%q did not happen: %v", k, done)
		}
	}
	if r.samples = readSamples(t, filepath.Join(dir, "samples.jsonl")); len(r.samples) < 15 {
		t.Errorf("%d samples", len(r.samples))
	}
	for _, x := range r.samples {
		if m := x.eldest(); m == nil || m.Life != "A1" || m.Goroutines == 0 || m.Heap == 0 {
			t.Errorf("member A's first process is to be there all the time: %+v", x)
		}
	}
	wellFormed(t, filepath.Join(dir, "soak.svg"))
	for _, name := range []string{"summary.json", "heap-begin.pb.gz", "heap-end.pb.gz", "member-A.log"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "work-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func readSamples(t *testing.T, path string) (all []sample) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for dec := json.NewDecoder(f); ; {
		var x sample
		if err := dec.Decode(&x); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if x.Type == "sample" {
			all = append(all, x)
		}
	}
}

func wellFormed(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for dec := xml.NewDecoder(f); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// TestFlags: a wrong flag is an error that says what to write instead, and the exit code for it.
func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--duration", "1s"}, {"--rate", "0"}, {"--members", "27"}, {"--partitions", "0"}, {"--every", "1ms"}, {"--nonsense"},
	} {
		c := command()
		c.SetArgs(append(args, "--out", t.TempDir()))
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		var usage usageError
		if err := c.ExecuteContext(t.Context()); !errors.As(err, &usage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestPlan: one seed makes one plan, and a long run has every kind of churn in it; what changes the load for good comes before the
// measuring.
func TestPlan(t *testing.T) {
	o := options{duration: 30 * time.Minute, members: 3, partitions: 12, seed: seed(t)}
	steps := plan(o)
	count := map[kind]int{}
	for i, s := range plan(o) {
		if s != steps[i] {
			t.Fatalf("step %d of the same plan is %+v and %+v", i, s, steps[i])
		}
		count[s.kind]++
		if s.member == 0 && (s.kind == kindKill || s.kind == kindLeave) {
			t.Errorf("member A must stay: %+v", s)
		}
		if s.kind == kindPartitions && s.at > warmUp(o.duration) || s.at > o.duration {
			t.Errorf("too late: %+v", s)
		}
	}
	for _, k := range kinds {
		if count[k] == 0 {
			t.Errorf("no %q in %v", k, count)
		}
	}
}
