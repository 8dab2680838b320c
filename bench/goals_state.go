package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"golang.org/x/sync/errgroup"
)

// stuck is P6: millions of records handled behind one that is not.
func (g *goals) stuck(ctx context.Context) error {
	for _, order := range []string{"unordered", "key"} {
		free := caseOf("workers", "8", "partitions", "1", "order", order)
		stuck := free
		stuck.Stuck = 1
		r, err := g.measure(ctx, Config{Cases: []Case{free, stuck}, Rounds: max(g.cfg.Rounds-1, 1), until: g.cfg.Stuck, Limit: 5 * time.Minute})
		if err != nil {
			return err
		}
		e := r.find(ArmEngine, stuck)
		what := fmt.Sprintf("%s records handled behind a stuck one, %s", figure(float64(g.cfg.Stuck)), order)
		for _, m := range e.Runs {
			if !m.Ended {
				return fmt.Errorf("%s: not reached within 5 minutes", what)
			}
		}
		g.atMost("P6", what+": peak memory", 200e6, e.PeakRSS, mb)
		g.atLeast("P6", what+": records/s over undisturbed", 0.9, r.ratio(ArmEngine, stuck, ArmEngine, free, rateOf))
		g.atMost("P13", "memory follows what is in flight: its peak behind the stuck record over the peak after a tenth of them, "+order, 1.15, growthOf(e), ratio)
	}
	return nil
}

// growthOf compares the peak of memory in the whole run with that in the first tenth of its records.
func growthOf(r *Result) Spread {
	var all []float64
	for _, m := range r.Runs {
		early, late := int64(0), int64(0)
		for _, s := range m.Series {
			if s.Records <= m.Records/10 {
				early = max(early, s.RSS)
			}
			late = max(late, s.RSS)
		}
		if early > 0 {
			all = append(all, float64(late)/float64(early))
		}
	}
	return spreadOf(all)
}

// idle is P7: what a partition that has nothing costs.
func (g *goals) idle(ctx context.Context) error {
	c := caseOf("partitions", fmt.Sprint(g.cfg.Idle))
	r, err := g.measure(ctx, Config{Cases: []Case{c}, Rounds: max(g.cfg.Rounds-2, 1), idle: true})
	if err != nil {
		return err
	}
	n := float64(g.cfg.Idle)
	heap := r.over(c, func(m *Measurement) float64 { return float64(m.Heap) / n })
	routines := r.over(c, func(m *Measurement) float64 { return float64(m.Goroutines) / n })
	what := fmt.Sprintf("%s idle partitions, over the bare loop: ", count(int64(g.cfg.Idle)))
	g.atMost("P7", what+"heap and stacks, a partition", 1024, heap, func(x float64) string { return fmt.Sprintf("%.0f B", x) })
	show := func(x float64) string { return fmt.Sprintf("%.4f", x) }
	g.judge("P7", what+"goroutines, a partition", "0 (fewer than 0.005: those that do not grow)", routines, routines.Median < 0.005, show)
	return nil
}

// revoke is P8: how long a hand-over takes beyond the handlers that run.
func (g *goals) revoke(ctx context.Context) error {
	cfg := Config{}.withDefaults()
	w, err := newWorld(&cfg)
	if err != nil {
		return err
	}
	var all []float64
	for range g.cfg.Rounds {
		beyond, rerr := w.handOver(ctx)
		if rerr != nil {
			return errors.Join(rerr, w.close())
		}
		all = append(all, beyond)
	}
	g.atMost("P8", "a revoke with 500 handlers of 20 ms: beyond the handler's time", 50, spreadOf(all), msec)
	return w.close()
}

// handOver has a second member join a busy one, and says how many milliseconds the slowest drain took beyond the handler's time.
func (w *world) handOver(ctx context.Context) (beyond float64, err error) {
	const handler = 20 * time.Millisecond
	c := caseOf("handler", "sleep:20ms", "workers", "500")
	j, cleanup, err := w.job(ctx, ArmEngine, c)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, cleanup()) }()
	m := newMeter(c, "")
	drained := make(chan time.Duration, 4*c.Partitions)
	config := j.config(m, 0)
	config.OnEvent = func(e engine.Event) {
		if e.Name == engine.EventRevoked {
			select {
			case drained <- e.Took:
			default:
			}
		}
	}
	first, err := engine.New(config)
	if err != nil {
		return 0, err
	}
	second, err := engine.New(j.config(m, 1))
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var group errgroup.Group
	group.Go(func() error { return first.Run(running) })
	if err := busy(running, m, c.Workers); err != nil {
		stop()
		return 0, errors.Join(err, group.Wait())
	}
	group.Go(func() error { return second.Run(running) })
	slowest := time.Duration(0)
	for range c.Partitions / 2 { // which is what the second gets
		select {
		case took := <-drained:
			slowest = max(slowest, took)
		case <-time.After(readyWithin):
			stop()
			return 0, errors.Join(errors.New("the second member did not get its half of the partitions"), group.Wait())
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), group.Wait())
		}
	}
	stop()
	return (slowest - handler).Seconds() * 1e3, group.Wait()
}

// busy waits until nearly all workers are in the handler.
func busy(ctx context.Context, m *meter, workers int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(firstRecordWithin)
	for m.counts().running < int64(workers*9/10) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("%d handlers did not run at once within %v", workers, firstRecordWithin)
		}
	}
	return nil
}
