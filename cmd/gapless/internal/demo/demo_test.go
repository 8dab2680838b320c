package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

// A small demo is good in every order, whether B leaves in a quiet moment or in the thick of it (C1, C6).
func TestVerdictIsGood(t *testing.T) {
	for _, order := range []engine.Order{engine.OrderKey, engine.OrderUnordered, engine.OrderPartition} {
		for _, how := range []leave{leaveQuiet, leaveBusy} {
			t.Run(fmt.Sprintf("%s %s", order, how), func(t *testing.T) {
				t.Parallel()
				stdout, stderr, err := command(t.Context(), "--json", "--records", fmt.Sprint(small), "--rate", "0",
					"--partitions", "4", "--workers", "32", "--order", string(order), "--leave", string(how))
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
				if v.Produced != small || v.DeadLettered != 3 || v.Handled != small-3 || v.Lost != 0 || v.OrderViolations != 0 || v.Lag != 0 || v.Retried < 15 {
					t.Errorf("%+v", v)
				}
				if how == leaveQuiet && v.Duplicates != 0 {
					t.Errorf("%+v", v)
				}
				for _, part := range []string{"B leaves", "B comes back", "share the 4 partitions again", "handled 4,997"} {
					if how == leaveQuiet && !strings.Contains(stderr, part) {
						t.Errorf("the progress does not tell of %q:\n%s", part, stderr)
					}
				}
			})
		}
	}
}

// The verdict as JSON has these fields, in this order.
func TestJSONFields(t *testing.T) {
	f := findings{Verdict: Verdict{1, 2, 3, 4, 5, 6, 7, 8, 9.25}}
	var b bytes.Buffer
	if err := f.printJSON(&b, &b); err != nil {
		t.Fatal(err)
	}
	const want = `{"produced":1,"handled":2,"retried":3,"dead_lettered":4,"duplicates":5,"lost":6,"order_violations":7,"lag":8,"seconds":9.25}` + "\n"
	if b.String() != want {
		t.Errorf("%s, not %s", b.String(), want)
	}
}

// People get the story, a line for each thing that was proven, and the files that they asked for.
func TestPlain(t *testing.T) {
	dir := t.TempDir()
	journal, log := filepath.Join(dir, "journal"), filepath.Join(dir, "log")
	stdout, _, err := command(t.Context(), "--records", "1000", "--rate", "0", "--partitions", "3", "--journal", journal, "--log", log)
	if err != nil {
		t.Fatalf("%v\n%s", err, stdout)
	}
	for _, part := range []string{
		"A and B share the 3 partitions\n", "B leaves; its", "produced 1,000 ", "✓ nothing lost   1,000 produced = 997 handled + 3 dead-lettered\n",
		"✓ no duplicates ", "✓ order kept ", "✓ no gaps ", "✓ dead letters   3 for 3 poisonous", "✓ lag 0 ", "The verdict is good.\n",
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
		if err := json.Unmarshal(l, &h); err != nil || h.Key == "" || h.Seq == 0 || h.End <= h.Start {
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
	d, err := newDemo(options{records: 1000, partitions: 2, workers: 8, order: "key", leave: "busy", stallAfter: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	d.plan.records[500].work = work{Seq: d.plan.records[500].Seq, Kind: kindSlow, Micros: math.MaxInt32}
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
		{"--records", "5"}, {"--partitions", "0"}, {"--workers", "0"}, {"--rate", "-1"}, {"--order", "keys"}, {"--leave", "loudly"},
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
