package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gaplesshq/gapless/tracker"
)

// overhead is P1, P10 and P11: the engine against the bare loop where the handler does nothing.
func (g *goals) overhead(ctx context.Context) error {
	one := func(pairs ...string) Case { return caseOf(append(pairs, "workers", "8")...) }
	unordered, partition, key := one("order", "unordered"), one("order", "partition"), one("order", "key")
	batch := one("order", "unordered", "batch", "100")
	r, err := g.measure(ctx, Config{Cases: []Case{unordered, partition, key, batch}, Rounds: 2*g.cfg.Rounds + 1})
	if err != nil {
		return err
	}
	for _, x := range []struct {
		c     Case
		least float64
	}{{unordered, 0.95}, {partition, 0.95}, {key, 0.85}} {
		g.atLeast("P1", fmt.Sprintf("no-op, %s: records/s over the bare loop's", x.c.Order), x.least, r.ratio(ArmEngine, x.c, ArmBare, x.c, rateOf))
	}
	g.atMost("P10", "no-op, unordered: CPU a record over the bare loop's", 60, r.over(unordered, cpuOf), ns)
	g.atMost("P10", "no-op, key: CPU a record over the bare loop's", 150, r.over(key, cpuOf), ns)
	g.atLeast("P11", "batches of 100, no-op: records/s over the bare loop's", 0.95, r.ratio(ArmEngine, batch, ArmBare, batch, rateOf))
	return nil
}

// sleepers is P2: handlers that wait, on one partition, against the same goroutines without an engine.
func (g *goals) sleepers(ctx context.Context) error {
	for _, f := range []func(context.Context) error{g.fixedSleep, g.longSleep, g.unevenSleep, g.hotKeys} {
		if err := f(ctx); err != nil {
			return err
		}
	}
	return nil
}

// slept makes the goals that all fixed handlers have.
func (g *goals) slept(r *Report, what string, unordered, key Case) {
	free := r.ratio(ArmEngine, unordered, ArmGoroutines, unordered, rateOf)
	g.atLeast("P2", what+", unordered: records/s over the goroutines'", 0.97, free)
	byKey := r.ratio(ArmEngine, key, ArmEngine, unordered, rateOf)
	g.atLeast("P2", what+", key: records/s over unordered", 0.97, byKey)
}

func (g *goals) fixedSleep(ctx context.Context) error {
	one := func(workers, order string) Case {
		return caseOf("handler", "sleep:2ms", "partitions", "1", "records", "1500000", "workers", workers, "order", order)
	}
	var cases []Case
	for _, w := range []string{"100", "1000"} {
		cases = append(cases, one(w, "unordered"), one(w, "key"))
	}
	r, err := g.measure(ctx, Config{Cases: cases, Arms: []Arm{ArmEngine, ArmErrgroup}, window: true})
	if err != nil {
		return err
	}
	for i, w := range []string{"100", "1,000"} {
		unordered, key := cases[2*i], cases[2*i+1]
		what := "2 ms, " + w + " workers"
		g.slept(r, what, unordered, key)
		g.atMost("P2", what+", unordered: CPU a record over errgroup's", 1, r.ratio(ArmEngine, unordered, ArmErrgroup, unordered, cpuOf), ratio)
	}
	return nil
}

func (g *goals) longSleep(ctx context.Context) error {
	one := func(order string) Case {
		return caseOf("handler", "sleep:100ms", "partitions", "1", "records", "1500000", "workers", "5000", "order", order)
	}
	unordered, key := one("unordered"), one("key")
	r, err := g.measure(ctx, Config{Cases: []Case{unordered, key}, Duration: 2 * g.cfg.Duration, window: true})
	if err != nil {
		return err
	}
	g.slept(r, "100 ms, 5,000 workers", unordered, key)
	return nil
}

// unevenSleep is with latencies that differ: a loop that waits for the slowest of each poll loses by them.
func (g *goals) unevenSleep(ctx context.Context) error {
	var cases []Case
	for _, h := range []string{"exp:2ms", "pareto:2ms:1.5"} {
		cases = append(cases, caseOf("handler", h, "partitions", "1", "workers", "100", "order", "unordered"))
	}
	r, err := g.measure(ctx, Config{Cases: cases, Arms: []Arm{ArmEngine, ArmErrgroup}, Duration: 2 * g.cfg.Duration})
	if err != nil {
		return err
	}
	for _, c := range cases {
		// Each arm's share of its own slots: the draws of a heavy tail differ from arm to arm, and with them what there is to do.
		full := func(m *Measurement) float64 { return m.SlotsFull }
		e, other := r.ratio(ArmEngine, c, ArmGoroutines, c, full), r.ratio(ArmErrgroup, c, ArmGoroutines, c, full)
		g.atLeast("P2", fmt.Sprintf("%s, 100 workers: time in handlers over the goroutines' (errgroup: %s)", c.Handler, ratio(other.Median)), 0.95, e)
	}
	return nil
}

// hotKeys is a log with an end, all of which is held at once: it can't be handled in less time than its hottest key takes, one record
// after the other.
func (g *goals) hotKeys(ctx context.Context) error {
	c := caseOf("handler", "sleep:2ms", "partitions", "1", "workers", "100", "keys", "zipf:10000:1.1", "order", "key", "records", "10000")
	r, err := g.measure(ctx, Config{Cases: []Case{c}})
	if err != nil {
		return err
	}
	hottest := hottestOf(c)
	var shares []float64
	for _, m := range r.find(ArmEngine, c).Runs {
		if !m.Ended {
			return fmt.Errorf("%d records of %d were handled", m.Records, c.Records)
		}
		shares = append(shares, float64(hottest)*m.HandlerNanos/1e9/m.Seconds)
	}
	g.atLeast("P2", "2 ms, Zipf keys, 100 workers: records/s over what the hottest key allows at the handler's measured time", 0.95, spreadOf(shares))
	return nil
}

// hottestOf is how many records of a log with an end have its most frequent key.
func hottestOf(c Case) (most int) {
	g := newGenerator(c, nil)
	counts := map[string]int{}
	for range c.Records {
		key, _ := g.next(time.UnixMilli(0))
		counts[string(key)]++
		most = max(most, counts[string(key)])
	}
	return most
}

// dedupe is P4.
func (g *goals) dedupe(ctx context.Context) error {
	cases := map[Dedupe]Case{}
	var all []Case
	for _, d := range []Dedupe{DedupeNone, DedupeWindows, DedupeStore, DedupeKeys, DedupeDuplicates} {
		c := caseOf("workers", "8", "dedupe", string(d))
		cases[d], all = c, append(all, c)
	}
	r, err := g.measure(ctx, Config{Cases: all})
	if err != nil {
		return err
	}
	of := func(a, b Dedupe) Spread { return r.ratio(ArmEngine, cases[a], ArmEngine, cases[b], rateOf) }
	g.atLeast("P4", "resume windows: records/s over plain commits", 0.95, of(DedupeWindows, DedupeNone))
	g.atLeast("P4", "a store that keeps windows: records/s over none", 0.9, of(DedupeStore, DedupeWindows))
	for _, x := range []struct {
		d     Dedupe
		what  string
		least float64
	}{{DedupeKeys, "business keys, all new and durable: records/s", 1e6}, {DedupeDuplicates, "business keys, half of them duplicates: records/s", 2e5}} {
		s := r.find(ArmEngine, cases[x.d]).Rate
		g.judge("P4", x.what, ">= "+figure(x.least), s, s.Median >= x.least, figure)
	}
	return nil
}

// tracker is P5: the whole life of a record in it, on one goroutine.
func (g *goals) tracker(ctx context.Context) error {
	var all []float64
	for range 2*g.cfg.Rounds + 1 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		const poll, n = 512, 1 << 22
		t := tracker.New(0, 1, tracker.Options{})
		began := time.Now()
		for i := int64(0); i < n; i += poll {
			first, err := t.AddRange(i, poll, 1)
			if err != nil {
				return err
			}
			for s := first; s < first+poll; s++ {
				t.Done(s)
			}
			t.Frontier()
		}
		all = append(all, float64(time.Since(began))/n)
	}
	g.atMost("P5", "tracker: add, done and advance, a record", 5, spreadOf(all), func(x float64) string { return fmt.Sprintf("%.1f ns", x) })
	return nil
}

// latency is P12.
func (g *goals) latency(ctx context.Context) error {
	c := caseOf("handler", "sleep:2ms", "workers", "100", "rate", "20000")
	r, err := g.measure(ctx, Config{Cases: []Case{c}, Duration: 4 * g.cfg.Duration})
	if err != nil {
		return err
	}
	e, bare := r.find(ArmEngine, c), r.find(ArmBare, c)
	beyond := func(of func(*Percentiles) float64) Spread {
		var all []float64
		for i := range e.Runs {
			if a, b := e.Runs[i].Latency, bare.Runs[i].Latency; a != nil && b != nil {
				all = append(all, of(a)-of(b)-e.Runs[i].HandlerNanos/1e6)
			}
		}
		return spreadOf(all)
	}
	g.atMost("P12", "20,000 records/s, 2 ms, 100 workers: p50 beyond the bare loop's and the handler's time", 2, beyond(func(p *Percentiles) float64 { return p.P50 }), msec)
	g.atMost("P12", "the same: p99 beyond the bare loop's and the handler's time", 10, beyond(func(p *Percentiles) float64 { return p.P99 }), msec)
	return nil
}

// growth is P13: what a record costs over the bare loop as something grows, as so much more and as a multiple. The first is what the engine
// adds; it is small, and so is 15 % of it. The second is what a machine has to do.
func (g *goals) growth(ctx context.Context) error {
	// Each run by keys handles all of them, of which a second's worth shows a million keys.
	keyed := min(4_000_000, max(100_000, int64(4_000_000*g.cfg.Duration.Seconds())))
	for _, x := range []struct {
		what  string
		param string
		from  []string
		base  []string
	}{
		{"1 to 1,000 partitions", "partitions", []string{"1", "12", "100", "1000"}, []string{"workers", "8", "order", "unordered"}},
		{"10 to 1,000,000 keys", "keys", []string{"uniform:10", "uniform:1000000"}, []string{"workers", "8", "records", fmt.Sprint(keyed)}},
		{"1 to 1,000 workers", "workers", []string{"1", "8", "64", "1000"}, []string{"order", "unordered"}},
	} {
		var cases []Case
		for _, v := range x.from {
			cases = append(cases, caseOf(append(x.base, x.param, v)...))
		}
		r, err := g.measure(ctx, Config{Cases: cases, Rounds: 2*g.cfg.Rounds + 1})
		if err != nil {
			return err
		}
		var more, times []float64
		moreParts, timesParts := "", ""
		for _, c := range cases {
			m, t := r.over(c, cpuOf), r.ratio(ArmEngine, c, ArmBare, c, cpuOf)
			if m.Rounds == 0 || t.Rounds == 0 {
				more, times = []float64{math.NaN()}, []float64{math.NaN()}
				break
			}
			more, times = append(more, m.Median), append(times, t.Median)
			moreParts += fmt.Sprintf(", %s %s", c.Get(x.param), ns(m.Median))
			timesParts += fmt.Sprintf(", %s %.2f x", c.Get(x.param), t.Median)
		}
		g.flat("CPU a record over the bare loop's, "+x.what+moreParts, slices.Max(more)/max(slices.Min(more), 1))
		g.flat("CPU a record as a multiple of the bare loop's, "+x.what+timesParts, slices.Max(times)/slices.Min(times))
	}
	return nil
}

// flat is a goal that what grew to so many times its least is about the same. NaN stands for what did not run.
func (g *goals) flat(what string, grown float64) {
	d := Goal{ID: "P13", What: what, Goal: "most <= 1.15 x least", Value: notRun}
	if !math.IsNaN(grown) {
		d.Value, d.OK = ratio(grown)+" x", grown <= 1.15
	}
	g.add(d)
}

// members is P14.
func (g *goals) members(ctx context.Context) error {
	one, two := caseOf("workers", "8", "order", "unordered"), caseOf("workers", "8", "order", "unordered", "members", "2")
	r, err := g.measure(ctx, Config{Cases: []Case{one, two}, Rounds: 2*g.cfg.Rounds - 1})
	if err != nil {
		return err
	}
	g.atLeast("P14", "two members on one machine: records/s over one's", 0.95, r.ratio(ArmEngine, two, ArmEngine, one, rateOf))
	return nil
}
