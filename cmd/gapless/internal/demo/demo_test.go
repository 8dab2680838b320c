package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"go.uber.org/goleak"
)

// TestMain also is the members' processes, which are this binary again.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "demo" && os.Args[2] == "member" {
		if err := runMember(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = flag.Set("test.parallel", "3") // demos wait more than they work
	goleak.VerifyTestMain(m)
}

// command runs `gapless demo` with arguments.
func command(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	c := Command()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&errs)
	c.SilenceErrors = true
	err = c.ExecuteContext(ctx)
	return out.String(), errs.String(), err
}

const small = 5000

// smaller is a small demo, with the options that are no flags.
func smaller(order engine.Order, b broken) options {
	return options{
		records: small, partitions: 4, workers: 32, order: string(order), seed: 1, rate: 500,
		stallAfter: 30 * time.Second, session: 4 * time.Second, broken: b,
	}
}

// played is the verdict on a demo.
func played(t *testing.T, o options) findings {
	t.Helper()
	d, err := newDemo(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	f, err := d.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A small demo is good in every order, over a clean leave in the thick of it, a kill after which B goes on, and one after which A does
// (C1, C5, C6).
func TestVerdictIsGood(t *testing.T) {
	for _, order := range []engine.Order{engine.OrderKey, engine.OrderUnordered, engine.OrderPartition} {
		t.Run(string(order), func(t *testing.T) {
			t.Parallel()
			f := played(t, smaller(order, broken{}))
			if !f.good() {
				t.Fatal(strings.Join(f.problems, "\n"))
			}
			if f.Produced != small || f.DeadLettered != 3 || f.Handled != small-3 || f.Retried < 15 || len(f.losses) != 2 || f.sentTwice == 0 {
				t.Errorf("%+v", f)
			}
			if f.losses[0].same == 0 || f.losses[0].moved != 0 || f.losses[1].same != 0 || f.losses[1].moved == 0 {
				t.Errorf("who went on after the kills: %+v", f.losses)
			}
			t.Logf("%+v %+v %+v", f.Verdict, f.losses, f.copies)
		})
	}
}

// An engine without a part of what is promised fails the verdict, in the number that is meant for it.
func TestBrokenEnginesFail(t *testing.T) {
	for name, c := range map[string]struct {
		broken broken
		fails  func(f *findings) bool
	}{
		"no windows and no store": {broken{NoWindows: true, NoStore: true}, func(f *findings) bool {
			return f.Redone > f.RedoneAllowed && f.losses[0].unexcused > 0
		}},
		"no windows": {broken{NoWindows: true}, func(f *findings) bool { // the marks save what B redoes, but not what A does
			return f.losses[0].unexcused+f.losses[1].unexcused > 0
		}},
		"no keys": {broken{NoKeys: true}, func(f *findings) bool { return f.BusinessDuplicates > 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := played(t, smaller(engine.OrderKey, c.broken))
			if f.good() || !c.fails(&f) {
				t.Errorf("%+v %+v", f.Verdict, f.losses)
			}
			if f.Lost != 0 || f.OrderViolations != 0 || f.Lag != 0 || f.Duplicates != 0 && !c.broken.NoWindows {
				t.Errorf("what is not broken: %+v", f.Verdict)
			}
			t.Logf("%+v %+v\n%s", f.Verdict, f.losses, strings.Join(f.problems, "\n"))
		})
	}
}

// The verdict as JSON has these fields, in this order.
func TestJSONFields(t *testing.T) {
	f := findings{Verdict: Verdict{1, 2, 3, 4, 5, 6, 7, 8, 9.25, 10, 11, 12}}
	var b bytes.Buffer
	if err := f.printJSON(&b, &b); err != nil {
		t.Fatal(err)
	}
	const want = `{"produced":1,"handled":2,"retried":3,"dead_lettered":4,"duplicates":5,"lost":6,"order_violations":7,"lag":8,"seconds":9.25,"redone":10,"redone_allowed":11,"business_duplicates":12}` + "\n"
	if b.String() != want {
		t.Errorf("%s, not %s", b.String(), want)
	}
}

// Machines get one line.
func TestJSON(t *testing.T) {
	t.Parallel()
	stdout, stderr, err := command(t.Context(), "--json", "--records", "1000", "--rate", "500", "--partitions", "3", "--no-kill", "--no-copies")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if strings.Count(stdout, "\n") != 1 {
		t.Errorf("stdout is more than the verdict:\n%s", stdout)
	}
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	var v Verdict
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if v.Produced != 1000 || v.Duplicates != 0 || v.Redone != 0 || v.RedoneAllowed != 0 || v.BusinessDuplicates != 0 {
		t.Errorf("%+v", v)
	}
	if strings.Contains(stderr, "killed") || !strings.Contains(stderr, "B leaves cleanly") {
		t.Errorf("the progress:\n%s", stderr)
	}
}

// People get the story, a line for each thing that was proven, and the files that they asked for.
func TestPlain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	journal, log := filepath.Join(dir, "journal"), filepath.Join(dir, "log")
	stdout, _, err := command(t.Context(), "--records", "1000", "--rate", "200", "--partitions", "3", "--journal", journal, "--log", log)
	if err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	for _, part := range []string{
		"A and B share the 3 partitions\n", "B leaves cleanly; its", "B is killed", "B is back, with its store", "killed again", "A has B's", "a store that is behind",
		"✓ nothing lost   1,000 produced = 997 handled + 3 dead-lettered\n",
		"✓ no duplicates ", "✓ kill -9 ", "✓ kill -9, moved ", "✓ copies ", "✓ order kept ", "✓ no gaps ", "✓ dead letters   3 for 3 poisonous", "✓ lag 0 ", "The verdict is good.\n",
	} {
		if !strings.Contains(stdout, part) {
			t.Errorf("no %q in\n%s", part, stdout)
		}
	}
	if strings.Contains(stdout, "\x1b") {
		t.Error("there are escapes in what is no terminal")
	}
	_, verdict, _ := strings.Cut(stdout, "\n\n")
	for l := range strings.Lines(verdict) {
		if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
	var n int
	b, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	for l := range bytes.Lines(b) {
		var h handling
		if err := json.Unmarshal(l, &h); err != nil || h.Key == "" || h.Seq == 0 || h.End <= h.Start || h.Outcome == "" || h.Life == "" {
			t.Fatalf("%v: %s", err, l)
		}
		n++
	}
	if n < 1000+8 {
		t.Errorf("the journal has %d entries", n)
	}
	if b, err = os.ReadFile(log); err != nil || !bytes.Contains(b, []byte(`"message":"dead_lettered"`)) {
		t.Errorf("the log (%v): %s", err, b)
	}
}

// What a seed plants is fixed, and the next seed plants it elsewhere.
func TestPlanFollowsFromTheSeed(t *testing.T) {
	o := options{records: 10_000, partitions: 4, order: "key", seed: 7}
	a, b := newPlan(o), newPlan(o)
	o.seed++
	c := newPlan(o)
	same := 0
	for i := range a.records {
		if a.records[i] != b.records[i] {
			t.Fatalf("record %d: %+v and %+v", i, a.records[i], b.records[i])
		}
		if a.records[i] == c.records[i] {
			same++
		}
	}
	if same > len(a.records)/10 {
		t.Errorf("%d records are the same with another seed", same)
	}
	kinds := map[kind]int{}
	for _, r := range a.records {
		kinds[r.Kind]++
	}
	if kinds[kindFails]+kinds[kindBad]+kinds[kindPanics] != a.poisonous || kinds[kindFlaky] != a.flaky || a.poisonous == 0 || kinds[kindSlow] == 0 {
		t.Errorf("%v, but %+v", kinds, a)
	}
}

// A ctrl-C ends the context: both members stop cleanly, nothing is left running (goleak), and no verdict is given.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &trigger{word: "share", then: cancel}
	c := Command()
	c.SetArgs([]string{"--records", "100000", "--rate", "2000"})
	c.SetOut(out)
	c.SilenceErrors = true
	err := c.ExecuteContext(ctx)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrVerdict) {
		t.Errorf("%v", err)
	}
}

// A handler that never returns ends the demo after a while, with a verdict, and that is bad.
func TestStalled(t *testing.T) {
	t.Parallel()
	d, err := newDemo(options{records: 1000, partitions: 2, workers: 8, order: "key", noKill: true, stallAfter: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	d.plan.records[500].work = work{Order: 500, Seq: d.plan.records[500].Seq, Kind: kindSlow, Micros: math.MaxInt32}
	f, err := d.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.good() || f.Lost == 0 || f.Lag == 0 || f.Lost > 500 || !strings.Contains(f.problems[0], "nothing happened for") {
		t.Errorf("%+v %v", f.Verdict, f.problems)
	}
}

// trigger is a writer that does something once a word was written.
type trigger struct {
	word string
	then func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.word)) {
		w.then()
	}
	return len(p), nil
}

func TestWrongFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--records", "5"}, {"--partitions", "0"}, {"--workers", "0"}, {"--rate", "-1"}, {"--order", "keys"},
	} {
		_, _, err := command(t.Context(), args...)
		if err == nil || !strings.Contains(err.Error(), args[0]+" ") {
			t.Errorf("%v: %v does not name the flag", args, err)
		}
		var coded interface{ ExitCode() int }
		if !errors.As(err, &coded) || coded.ExitCode() != 2 {
			t.Errorf("%v: %v is no usage error", args, err)
		}
	}
}
