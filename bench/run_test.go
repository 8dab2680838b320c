package bench

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// measure runs a configuration that has to succeed.
func measure(t *testing.T, cfg Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEveryHandler: every handler, single and in batches, in every arm, with the controls beside it and a bound.
func TestEveryHandler(t *testing.T) {
	var cases []Case
	for _, h := range []string{"none", "sleep:1ms", "exp:1ms", "pareto:1ms:2", "bykey:1ms", "cpu:10us", "json", "http:0s"} {
		c := with(t, "handler", h, "workers", "4", "partitions", "2")
		cases = append(cases, c)
		if c.Handler.Kind != HandlerByKey {
			c.Batch = 10
			cases = append(cases, c)
		}
	}
	cfg := short(cases...)
	cfg.Arms = []Arm{ArmEngine, ArmErrgroup}
	r := measure(t, cfg)
	for _, c := range cases {
		for _, a := range []Arm{ArmBare, ArmGoroutines, ArmEngine, ArmErrgroup} {
			one := r.find(a, c)
			if one == nil {
				t.Fatalf("%s was not measured for %s", a, describe(c, varied(cases)))
			}
			if one.Rate.Median <= 0 || one.CPUPerRecord.Median <= 0 || one.PeakRSS.Median < 0 || one.Bound.Rate <= 0 {
				t.Errorf("%s, %s: %+v", a, describe(c, varied(cases)), one)
			}
			if one.timed() && a != ArmBare && (one.HandlerNanos.Median <= 0 || one.PeakInFlight.Median > 4) {
				t.Errorf("%s, %s: handlers of %v ns, %v at once", a, describe(c, varied(cases)), one.HandlerNanos.Median, one.PeakInFlight.Median)
			}
		}
	}
}

// TestLogWithAnEnd: C1. Every arm handles all of it, once, and commits it, whatever the settings of the engine.
func TestLogWithAnEnd(t *testing.T) {
	const n = 5_000
	log := func(pairs ...string) Case {
		return with(t, append([]string{"records", "5000", "partitions", "3", "commit", "50ms"}, pairs...)...)
	}
	cases := []Case{
		log(), log("order", "unordered"), log("order", "partition"), log("keys", "none"), log("nulls", "0.5"), log("compression", "zstd"), log("record-bytes", "10"),
		log("dedupe", "none"), log("dedupe", "store"), log("dedupe", "keys"), log("commit", "each"), log("commit", "records:100"), log("commit", "1s"),
		log("fail", "0.01"), log("batch", "100"), log("fail", "0.01", "batch", "100"), log("members", "2"),
	}
	cfg := short(cases...)
	cfg.Arms, cfg.until = []Arm{ArmEngine, ArmErrgroup}, 0
	cfg.Duration = 10 * time.Millisecond // of the goroutines
	r := measure(t, cfg)
	for _, c := range cases {
		for _, a := range []Arm{ArmBare, ArmEngine, ArmErrgroup} {
			one := r.find(a, c)
			if one == nil {
				t.Fatalf("%s was not measured for %s", a, describe(c, varied(cases)))
			}
			m := one.Runs[0]
			if !m.Ended || m.LagZero <= 0 || m.Records < n || m.Records > n && c.Members == 1 {
				t.Errorf("%s, %s: %d of %d records, lag 0 after %v s", a, describe(c, varied(cases)), m.Records, n, m.LagZero)
			}
		}
	}
}

// TestStuck: C7. What is stuck holds up nothing else, and the run ends in spite of it.
func TestStuck(t *testing.T) {
	c := with(t, "stuck", "2", "partitions", "2", "workers", "4")
	cfg := short(c)
	cfg.until = 50_000
	r := measure(t, cfg)
	if m := r.find(ArmEngine, c).Runs[0]; m.Records < 40_000 || !m.Ended {
		t.Errorf("%d records behind two that are stuck", m.Records)
	}
}

// TestRate: at a rate latency is measured, in the bare loop as well.
func TestRate(t *testing.T) {
	c := with(t, "rate", "2000", "partitions", "2", "handler", "sleep:1ms")
	cfg := short(c)
	r := measure(t, cfg)
	for _, a := range []Arm{ArmBare, ArmEngine} {
		if l := r.find(a, c).Runs[0].Latency; l == nil || l.Count == 0 || l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.Max {
			t.Errorf("%s: %+v", a, l)
		}
	}
}

// TestSynthetic: without a broker there are the pipeline and its controls.
func TestSynthetic(t *testing.T) {
	cases, err := Grid(with(t, "partitions", "3", "workers", "4"), map[string]string{"order": "key,unordered,partition", "handler": "none,sleep:1ms", "batch": "0,10"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := short(cases...)
	cfg.Synthetic = true
	r := measure(t, cfg)
	for _, c := range cases {
		for _, a := range []Arm{ArmDecode, ArmGoroutines, ArmPipeline} {
			if one := r.find(a, c); one == nil || one.Rate.Median <= 0 {
				t.Errorf("%s, %s: %+v", a, describe(c, varied(cases)), one)
			}
		}
	}
}

// TestSharedRuns: what makes no difference to an arm makes no run of it.
func TestSharedRuns(t *testing.T) {
	cases, err := Grid(with(t, "partitions", "2"), map[string]string{"order": "key,unordered", "workers": "2,4"})
	if err != nil {
		t.Fatal(err)
	}
	runs := map[Arm]int{}
	cfg := short(cases...)
	cfg.Rounds = 2
	cfg.Progress = func(p Progress) {
		if p.Done != nil {
			runs[p.Arm]++
		}
		if p.Runs != 2*(1+2+4) {
			t.Errorf("%d runs", p.Runs)
		}
	}
	r := measure(t, cfg)
	if runs[ArmBare] != 2 || runs[ArmGoroutines] != 4 || runs[ArmEngine] != 8 {
		t.Errorf("runs: %v", runs)
	}
	if len(r.Results) != 3*len(cases) || r.Results[0].Rate.Rounds != 2 {
		t.Errorf("%d results, %+v", len(r.Results), r.Results[0].Rate)
	}
}

// TestInterrupt: a sweep that is interrupted gives what it measured, and leaves no process behind (TestMain looks for goroutines).
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := short(with(t, "partitions", "2", "handler", "sleep:1ms"))
	cfg.Duration, cfg.until = time.Hour, 0
	cfg.Arms = []Arm{ArmEngine}
	first := true
	cfg.Progress = func(p Progress) {
		if p.Arm == ArmBare && p.Done == nil {
			if !first {
				t.Error("it goes on")
			}
			first = false
			time.AfterFunc(0, cancel) // in the middle of a run, or before it: both are to do
		}
	}
	r, err := Run(ctx, cfg)
	if err != nil || !r.Interrupted || len(r.Results) != 0 {
		t.Fatalf("%v, %+v", err, r)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	cfg.Duration = 10 * time.Millisecond
	cfg.Progress = func(p Progress) {
		if p.Done != nil && p.Arm == ArmGoroutines {
			cancel()
		}
	}
	r, err = Run(ctx, cfg)
	if err != nil || !r.Interrupted || len(r.Results) != 2 {
		t.Fatalf("%v, %d results", err, len(r.Results))
	}
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil || !strings.Contains(b.String(), "interrupted") {
		t.Errorf("%v, %s", err, b.String())
	}
}

// TestOwnHandler: somebody's own handler is measured in this process, on the records that they make.
func TestOwnHandler(t *testing.T) {
	var calls, strange atomic.Int64
	cfg := short(with(t, "partitions", "2", "workers", "4"))
	cfg.Record = func(int64) (key, value []byte) { return []byte("k"), []byte("mine") }
	cfg.Handler = engine.HandlerFunc(func(_ context.Context, r *engine.Record) error {
		calls.Add(1)
		if string(r.Value) != "mine" || string(r.Key) != "k" {
			strange.Add(1)
		}
		return nil
	})
	r := measure(t, cfg)
	if calls.Load() == 0 || strange.Load() != 0 || !r.InProcess {
		t.Errorf("%d calls, %d with other records", calls.Load(), strange.Load())
	}
	if !slices.Equal(r.measured(), []Arm{ArmEngine}) || len(r.Results) != 3 {
		t.Errorf("measured: %v", r.Results)
	}

	cfg.Handler, cfg.Cases[0].Batch = nil, 5
	cfg.BatchHandler = engine.BatchHandlerFunc(func(_ context.Context, b *engine.Batch) error {
		if len(b.Records) > 5 {
			strange.Add(1)
		}
		return nil
	})
	if r := measure(t, cfg); strange.Load() != 0 || len(r.Results) != 2 {
		t.Errorf("batches that are too large: %d; %d results", strange.Load(), len(r.Results))
	}
}

// TestProcesses: consumers are processes of their own, with CPU, memory and allocations that are theirs alone.
func TestProcesses(t *testing.T) {
	c := with(t, "partitions", "2", "handler", "http:0s", "records", "2000", "workers", "4")
	cfg := short(c)
	cfg.here, cfg.until, cfg.Duration = false, 0, 10*time.Millisecond
	r := measure(t, cfg)
	for _, a := range []Arm{ArmBare, ArmEngine} {
		m := r.find(a, c).Runs[0]
		if m.Records != 2000 || m.CPUPerRecord <= 0 || !m.Ended || m.LagZero <= 0 || r.find(ArmGoroutines, c) == nil {
			t.Errorf("%s: %+v", a, m)
		}
	}
	c = with(t, "handler", "http:0s")
	j := &job{Arm: ArmGoroutines, Case: c, URL: "http://127.0.0.1:1/", Warm: 1, Duration: time.Hour}
	if _, err := elsewhere(t.Context(), j, func() error { return nil }); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("a handler that can't reach its server: %v", err)
	}
}

// TestFailures: an error of a consumer's process comes with what was run, and a role that does not exist is refused.
func TestFailures(t *testing.T) {
	c := with(t, "records", "10")
	cfg := short(c)
	cfg.Brokers, cfg.Topic = []string{"127.0.0.1:1"}, "t"
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("an unreachable broker: %v", err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=nobody")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "unset the variable") {
		t.Errorf("an unknown role: %v, %s", err, out)
	}
}
