package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaplesshq/gapless/workers/tuning"
)

// Under Auto, firstWorkers is where the search for a limit begins, within its bounds.
const firstWorkers = 4

// tuneTick is how often the tuner hears what got done. An engine that has been idle for a while is looked at less often.
const (
	tuneTick     = 50 * time.Millisecond
	tuneIdleTick = 500 * time.Millisecond
	tuneIdle     = 20 // ticks without work
)

// Who or what decides on the limit, besides the tuner.
const (
	sizeConfigured = "config"
	sizeSet        = "set"
	sizeAuto       = "auto"
)

// crewSizes is how many handlers run at once, and who decides that.
type crewSizes struct {
	mu          sync.Mutex
	total, per  int // in force
	cap         int // what one partition may have under Auto; 0 = all
	min, max    int // of total under Auto
	tuner       *tuning.Tuner
	settled     int
	changes     int64
	reason, why string

	on   atomic.Bool // there is a tuner
	kick chan struct{}

	calls, squares atomic.Int64 // chunks that workers have ended; the sum of their times' squares, in (10 us)^2
}

func newCrewSizes(c *Config) *crewSizes {
	s := &crewSizes{total: c.Workers, per: c.WorkersPerPartition, min: c.MinWorkers, max: c.MaxWorkers, reason: sizeConfigured, kick: make(chan struct{}, 1)}
	if c.WorkersPerPartition < c.mostWorkers() {
		s.cap = c.WorkersPerPartition
	}
	if c.Workers == Auto {
		s.total = firstWorkers
		s.tune()
	}
	return s
}

// tune makes a tuner that begins where the limit stands. s.mu is held, or s is not shared yet.
func (s *crewSizes) tune() {
	s.tuner = tuning.New(tuning.Options{Min: s.min, Max: s.max, Start: s.total, Seed: rand.Uint64()})
	s.settled = s.tuner.Limit()
	s.take(s.settled)
	s.reason, s.why = sizeAuto, ""
	s.on.Store(true)
}

// take notes a limit that the tuner wants.
func (s *crewSizes) take(total int) {
	s.total, s.per = total, total
	if s.cap > 0 {
		s.per = min(s.cap, total)
	}
}

// observe hears from a worker after each chunk.
func (s *crewSizes) observe(elapsed time.Duration) {
	if !s.on.Load() {
		return
	}
	s.calls.Add(1)
	units := min(int64(elapsed/(10*time.Microsecond)), 1<<29) // 1.5 h
	s.squares.Add(units * units)
}

func (s *crewSizes) status() WorkersStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := WorkersStatus{Limit: s.total, LimitPerPartition: s.per, Reason: s.reason, Why: s.why}
	if s.tuner != nil {
		w.Auto = &AutoStatus{Min: s.min, Max: s.max, PerPartition: s.cap, Settled: s.settled, State: s.tuner.State(), Changes: s.changes}
	}
	return w
}

// SetWorkers changes how many handlers run at once, in total and per partition (0 = total), while running. What runs is not
// interrupted. It also ends Auto; Auto as the total takes it up (again), within the bounds of Config or SetWorkerBounds, and from
// the limit that is in force; perPartition then bounds what one partition may have, 0 = all.
func (e *Engine) SetWorkers(total, perPartition int) error {
	if total == Auto {
		return e.setAuto(perPartition)
	}
	if total < 1 || perPartition < 0 || perPartition > total {
		return fmt.Errorf("gapless: SetWorkers(%d, %d): the total is at least 1 or Auto, and the limit per partition between 0 (= total) and it", total, perPartition)
	}
	if perPartition == 0 {
		perPartition = total
	}
	s := e.sizes
	s.mu.Lock()
	s.tuner = nil
	s.on.Store(false)
	s.total, s.per, s.cap = total, perPartition, perPartition
	if perPartition == total {
		s.cap = 0
	}
	s.reason, s.why = sizeSet, ""
	e.pool.SetLimit(total, perPartition)
	s.mu.Unlock()
	e.emit(Event{Name: EventWorkers, Partition: -1, Count: int64(total), Reason: sizeSet})
	return nil
}

func (e *Engine) setAuto(perPartition int) error {
	if perPartition < 0 {
		return fmt.Errorf("gapless: SetWorkers(Auto, %d): the limit per partition is at least 1, or 0 = none", perPartition)
	}
	s := e.sizes
	s.mu.Lock()
	s.cap = perPartition
	if s.tuner == nil {
		s.tune()
	} else {
		s.take(s.total)
	}
	total := s.total
	e.pool.SetLimit(total, s.per)
	s.mu.Unlock()
	e.wakeTuner()
	e.emit(Event{Name: EventWorkers, Partition: -1, Count: int64(total), Reason: sizeAuto, Hint: "the engine finds the number of workers from here on"})
	return nil
}

// SetWorkerBounds changes Config.MinWorkers and MaxWorkers while running; 0 leaves one as it is. Without Auto they are kept for when it
// is taken up.
func (e *Engine) SetWorkerBounds(least, most int) error {
	s := e.sizes
	s.mu.Lock()
	if least == 0 {
		least = s.min
	}
	if most == 0 {
		most = s.max
	}
	if least < 1 || most < least {
		s.mu.Unlock()
		return fmt.Errorf("gapless: SetWorkerBounds(%d, %d): the least is at least 1, and the most at least that", least, most)
	}
	s.min, s.max = least, most
	var ev *Event
	if s.tuner != nil {
		ev = e.follow(s.tuner.SetBounds(least, most))
	}
	s.mu.Unlock()
	if ev != nil {
		e.emit(*ev)
	}
	return nil
}

func (e *Engine) wakeTuner() {
	select {
	case e.sizes.kick <- struct{}{}:
	default:
	}
}

// follow does what the tuner decided, and returns the event to emit without the lock, if there is one. e.sizes.mu is held.
func (e *Engine) follow(d tuning.Decision) *Event {
	s := e.sizes
	if d.Limit != s.total {
		s.take(d.Limit)
		e.pool.SetLimit(s.total, s.per)
		e.log.Debug().Int("limit", d.Limit).Int("settled", d.Settled).Str("state", s.tuner.State()).Msg("workers")
	}
	s.settled = d.Settled
	if d.Reason == "" {
		return nil
	}
	s.changes++
	s.reason, s.why = string(d.Reason), d.Text
	return &Event{Name: EventWorkers, Partition: -1, Count: int64(d.Settled), Reason: s.reason, Hint: d.Text}
}

// tuneLoop feeds the tuner, while there is one.
func (e *Engine) tuneLoop(ctx context.Context) {
	var last tuneCounts
	idle := 0
	for {
		var tick <-chan time.Time
		stop := func() {}
		if e.sizes.on.Load() {
			every := tuneTick
			if idle >= tuneIdle {
				every = tuneIdleTick
			}
			tick, stop = after(every)
		}
		select {
		case <-ctx.Done():
			stop()
			return
		case <-e.sizes.kick:
			stop()
			last, idle = e.tuneCounts(), 0
			continue
		case <-tick:
		}
		now := e.tuneCounts()
		s := now.since(last)
		first := last.at.IsZero()
		last = now
		s.InFlight, s.Waiting = e.pool.Busy()
		if idle++; s.InFlight > 0 || s.Calls > 0 {
			idle = 0
		}
		if !first && !isClosed(e.stopC) {
			e.tuneOnce(s)
		}
	}
}

func (e *Engine) tuneOnce(s tuning.Sample) {
	z := e.sizes
	z.mu.Lock()
	var ev *Event
	if z.tuner != nil {
		ev = e.follow(z.tuner.Update(s))
	}
	z.mu.Unlock()
	if ev != nil {
		e.emit(*ev)
	}
}

// tuneCounts are the counters that a sample is the difference of.
type tuneCounts struct {
	at                    time.Time
	done, failed, calls   int64
	busyNanos, squareUnit int64
}

func (e *Engine) tuneCounts() tuneCounts {
	c := tuneCounts{
		at: time.Now(), done: e.breakers.handled(), failed: e.counts.failures.Load(),
		calls: e.sizes.calls.Load(), busyNanos: e.lat.nanos(), squareUnit: e.sizes.squares.Load(),
	}
	if e.cfg.DeadLetter.GiveUp != GiveUpSkip { // else a record that could not be handled is skipped, too
		c.done += e.counts.skipped.Load()
	}
	return c
}

func (c tuneCounts) since(b tuneCounts) tuning.Sample {
	return tuning.Sample{
		Elapsed: c.at.Sub(b.at), Done: c.done - b.done, Failed: c.failed - b.failed,
		Calls: c.calls - b.calls, Busy: time.Duration(c.busyNanos - b.busyNanos), Squares: float64(c.squareUnit-b.squareUnit) * 1e-10,
	}
}
