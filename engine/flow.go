package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// spanHeadroom is how far below the tracker's bound a partition is paused, so that the fetches under way still fit.
const spanHeadroom = 1 << 20

// flowTick is how often paused partitions are looked at while there are any. A resume waits for the fetch in flight anyway.
const flowTick = 5 * time.Millisecond

// flowShare bounds the processor time of those looks where thousands are paused: one part in so many.
const flowShare = 10

// flowAllTick is how often everything is looked at, whether it changed or not.
const flowAllTick = time.Second

// flowState says which partitions flow has to look at. A look costs what changed, not what is assigned.
type flowState struct {
	mu      sync.Mutex // guards changed; taken last
	changed []*epoch   // delivered to, stopped or resumed since the last look; doubles do no harm
	spare   []*epoch
	all     atomic.Bool // something was assigned or taken away

	// Under Engine.mu.
	total   int64               // bytes pinned: exact under pressure, else at most too high
	over    bool                // MaxBytes are reached
	pressed bool                // they were, and some partition is paused for it still
	holding map[*epoch]struct{} // pin bytes
	brief   map[*epoch]struct{} // may change by themselves, or have something to tell later
	round   uint64              // counts the looks
	eps     []*epoch            // scratch
	untold  []Event             // to be emitted once no lock is held

	tellMu sync.Mutex // keeps their order
}

// glance says how far a look goes; all of them see what changed.
type glance uint8

const (
	lookChanged glance = iota // after a poll
	lookBrief                 // and what may change by itself
	lookAll                   // a full recomputation: after an assignment or a revoke, and now and then to be safe
)

// flowLoop resumes partitions as their lanes drain. It ticks only while something is paused that may drain.
func (e *Engine) flowLoop(ctx context.Context) {
	every := time.NewTicker(flowAllTick)
	defer every.Stop()
	var soon <-chan time.Time
	stop := func() {}
	for {
		how, kick := lookBrief, e.flowKick
		if soon != nil {
			kick = nil // the next tick is near
		}
		select {
		case <-ctx.Done():
			stop()
			return
		case <-soon:
		case <-kick:
		case <-every.C:
			how = lookAll
		}
		stop()
		soon, stop = nil, func() {}
		begun := time.Now()
		if e.flow(how) {
			soon, stop = after(max(flowTick, flowShare*time.Since(begun)))
		}
		e.tell()
	}
}

func (e *Engine) wakeFlow() {
	select {
	case e.flowKick <- struct{}{}:
	default:
	}
}

// touch has the next look include a partition.
func (e *Engine) touch(ep *epoch) {
	f := &e.flows
	f.mu.Lock()
	f.changed = append(f.changed, ep)
	f.mu.Unlock()
}

// touchAll makes the next look a full one.
func (e *Engine) touchAll() {
	e.flows.all.Store(true)
	e.wakeFlow()
}

// stop sets a reason to pause a partition, and clears nothing.
func (e *Engine) stop(ep *epoch, why stopReason, err error) {
	e.setStop(ep, why, err)
	e.flowNow()
}

// setStop is stop without a look: the caller sees to that, once it holds no lock of its own.
func (e *Engine) setStop(ep *epoch, why stopReason, err error) {
	ep.mu.Lock()
	ep.stops |= why
	if err != nil {
		ep.trouble().stopErr = err
	}
	if ep.stops&stopsWork != 0 && ep.lane != nil {
		ep.lane.Pause()
	}
	ep.mu.Unlock()
	e.touch(ep)
}

// resume takes a reason away.
func (e *Engine) resume(ep *epoch, why stopReason) {
	ep.mu.Lock()
	ep.stops &^= why
	ep.stopExplained()
	e.unpauseLane(ep)
	ep.mu.Unlock()
	e.touch(ep)
	e.wakeFlow()
}

// unpauseLane lets waiting records start again where nothing speaks against it. ep.mu is held.
func (e *Engine) unpauseLane(ep *epoch) {
	if ep.lane != nil && ep.stops&stopsWork == 0 && !e.clock.suspended.Load() && !isClosed(e.hardC) {
		ep.lane.Unpause()
	}
}

// flowNow looks at what changed and says what there is to say.
func (e *Engine) flowNow() {
	if e.flow(lookChanged) {
		e.wakeFlow()
	}
	e.tell()
}

// flow makes the client's pause set what it should be: a pure function of what is assigned and how full it is. It says whether
// to look again soon: something is paused that may drain by itself.
func (e *Engine) flow(how glance) (again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cl == nil { // its callbacks may begin epochs before it is here; the next fetch looks again
		return false
	}
	f := &e.flows
	changed := f.take()
	if f.all.Swap(false) {
		how = lookAll
	}
	var eps []*epoch
	if how != lookAll {
		eps = f.partial(e, how, changed)
		for _, ep := range eps {
			e.count(ep)
		}
		if f.total >= e.cfg.MaxBytes && !f.over { // who holds anything is to be paused
			how = lookAll
		}
	}
	if how == lookAll {
		eps = f.begin(e)
		for _, ep := range eps {
			e.count(ep)
		}
	}
	f.over = f.total >= e.cfg.MaxBytes
	f.pressed = f.pressed && how == lookChanged || f.over
	var now time.Time
	if len(eps) > 0 {
		now = time.Now()
	}
	var pause, unpause map[string][]int32
	for _, ep := range eps {
		ep.mu.Lock()
		if !ep.flows() {
			ep.mu.Unlock()
			continue
		}
		if ep.lane != nil {
			e.weigh(ep, f.total, now)
		}
		if ev, ok := ep.notePause(now); ok {
			f.untold = append(f.untold, ev)
		}
		if ep.stops&stopTotal != 0 {
			f.pressed = true
		}
		f.keep(ep)
		want := ep.stops != 0
		if want != ep.isPaused {
			ep.isPaused = want
			if e.log.GetLevel() <= zerolog.DebugLevel { // many times a second where handlers are slow: no event
				e.log.Debug().Str("topic", ep.topic).Int32("partition", ep.partition).Bool("paused", want).Strs("why", ep.stops.strings()).Msg("fetching")
			}
			if want {
				pause = addPartition(pause, ep.tp)
			} else {
				unpause = addPartition(unpause, ep.tp)
			}
		}
		ep.mu.Unlock()
	}
	// Under e.mu, so that two callers can't tell the client in the wrong order.
	if len(pause) > 0 {
		e.cl.PauseFetchPartitions(pause)
	}
	if len(unpause) > 0 {
		e.cl.ResumeFetchPartitions(unpause)
	}
	clear(f.eps) // pins no epoch that has ended
	return len(f.brief) > 0
}

// take returns what changed since the last look. The engine's lock is held, so that the two lists can take turns.
func (f *flowState) take() []*epoch {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.changed
	clear(f.spare)
	f.changed, f.spare = f.spare[:0], changed
	return changed
}

// partial lists what a look has to see beside a full one: whatever else is assigned holds no more than at the look before, and was
// not paused then. The engine's lock is held.
func (f *flowState) partial(e *Engine, how glance, changed []*epoch) []*epoch {
	f.round++
	eps := f.eps[:0]
	add := func(ep *epoch) {
		if ep.round != f.round && e.epochs[ep.tp] == ep {
			ep.round = f.round
			eps = append(eps, ep)
		}
	}
	for _, ep := range changed {
		add(ep)
	}
	if how == lookBrief {
		for ep := range f.brief {
			add(ep)
		}
		if f.pressed { // a partition resumes when others have drained
			for ep := range f.holding {
				add(ep)
			}
		}
	}
	f.eps = eps
	return eps
}

// begin forgets what was counted, for a full look. The engine's lock is held.
func (f *flowState) begin(e *Engine) []*epoch {
	f.total = 0
	f.holding, f.brief = map[*epoch]struct{}{}, map[*epoch]struct{}{}
	f.eps = f.eps[:0]
	for _, ep := range e.epochs {
		ep.counted = 0
		f.eps = append(f.eps, ep)
	}
	return f.eps
}

// keep notes whether the looks to come have to see the partition even where nothing was delivered to it. ep.mu and the engine's
// lock are held.
func (f *flowState) keep(ep *epoch) {
	if ep.stops&stopsBriefly != 0 || ep.stops == 0 && ep.troubled().pause.announced {
		f.brief[ep] = struct{}{}
	} else {
		delete(f.brief, ep)
	}
}

// count accounts for a partition in the total. The engine's lock is held.
func (e *Engine) count(ep *epoch) {
	bytes := e.account(ep)
	e.flows.total += bytes - ep.counted
	ep.counted = bytes
	if bytes > 0 {
		e.flows.holding[ep] = struct{}{}
	} else {
		delete(e.flows.holding, ep)
	}
}

// flows says whether the client is told of the epoch. One that begins is, where it has to wait for its log. ep.mu is held.
func (ep *epoch) flows() bool {
	return ep.is(phaseActive) || ep.is(phaseStarting) && ep.stops&stopNotAssigned != 0
}

func addPartition(m map[string][]int32, p tp) map[string][]int32 {
	if m == nil {
		m = map[string][]int32{}
	}
	m[p.topic] = append(m[p.topic], p.partition)
	return m
}

// weigh sets or clears the reasons that follow from how full the partition is. Between the low and the high mark a reason
// stays as it is, so that the client is not told to pause and resume in turn: each pause costs a refetch. ep.mu is held.
func (e *Engine) weigh(ep *epoch, total int64, now time.Time) {
	waiting, running, held := ep.lane.Len()
	mark := func(why stopReason, over, under bool) {
		if over {
			ep.stops |= why
		} else if under {
			ep.stops &^= why
		}
	}
	n := waiting + running + held
	mark(stopRecords, n >= e.cfg.PartitionRecords, n <= e.cfg.PartitionRecords/2)
	mark(stopBytes, ep.bytes >= e.cfg.PartitionBytes, ep.bytes <= e.cfg.PartitionBytes/2)
	// A partition that holds nothing is always admitted: a stuck one must not starve it.
	mark(stopTotal, total >= e.cfg.MaxBytes && ep.bytes > 0, total <= e.cfg.MaxBytes/4*3 || ep.bytes == 0)
	span := ep.tr.Span()
	mark(stopSpan, span >= maxSpan-spanHeadroom, span <= maxSpan-2*spanHeadroom)
	if ep.stops&stopFetchError != 0 && !now.Before(ep.troubled().retryAt) {
		ep.stops &^= stopFetchError
	}
	ep.stopExplained()
}

const maxSpan = 1 << 25
