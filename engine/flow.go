package engine

import (
	"context"
	"time"

	"github.com/gaplesshq/gapless/tracker"
	"github.com/rs/zerolog"
)

// spanHeadroom is how far below the tracker's bound a partition is paused, so that the fetches under way still fit.
const spanHeadroom = 1 << 20

// flowTick is how often paused partitions are looked at while there are any. A resume waits for the fetch in flight anyway.
const flowTick = 5 * time.Millisecond

// flowLoop resumes partitions as their lanes drain. It ticks only while something is paused.
func (e *Engine) flowLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.flowKick:
		}
		for e.flow() && ctx.Err() == nil {
			tick, stop := after(flowTick)
			select {
			case <-ctx.Done():
			case <-tick:
			}
			stop()
		}
	}
}

func (e *Engine) wakeFlow() {
	select {
	case e.flowKick <- struct{}{}:
	default:
	}
}

// stop sets a reason to pause a partition, and clears nothing.
func (e *Engine) stop(ep *epoch, why stopReason, err error) {
	ep.mu.Lock()
	ep.stops |= why
	if err != nil {
		ep.stopErr = err
	}
	if ep.stops&stopsWork != 0 && ep.lane != nil {
		ep.lane.Pause()
	}
	ep.mu.Unlock()
	e.flow()
}

// resume takes a reason away.
func (e *Engine) resume(ep *epoch, why stopReason) {
	ep.mu.Lock()
	ep.stops &^= why
	if ep.stops == 0 {
		ep.stopErr = nil
	}
	e.unpauseLane(ep)
	ep.mu.Unlock()
	e.wakeFlow()
}

// unpauseLane lets waiting records start again where nothing speaks against it. ep.mu is held.
func (e *Engine) unpauseLane(ep *epoch) {
	if ep.lane != nil && ep.stops&stopsWork == 0 && !e.clock.suspended.Load() {
		ep.lane.Unpause()
	}
}

// flow makes the client's pause set what it should be: a pure function of what is assigned and how full it is. It says whether
// to look again soon: something is paused that may drain by itself.
func (e *Engine) flow() (again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var total int64
	for _, ep := range e.epochs {
		total += e.account(ep)
	}
	var pause, unpause map[string][]int32
	for _, ep := range e.epochs {
		if !ep.is(phaseActive) {
			continue
		}
		ep.mu.Lock()
		e.weigh(ep, total)
		want := ep.stops != 0
		if ep.stops&stopsBriefly != 0 {
			again = true
		}
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
	if again {
		e.wakeFlow()
	}
	return again
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
func (e *Engine) weigh(ep *epoch, total int64) {
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
	if ep.stops&stopFetchError != 0 && !time.Now().Before(ep.retryAt) {
		ep.stops &^= stopFetchError
	}
	if ep.stops == 0 {
		ep.stopErr = nil
	}
}

const maxSpan = 1 << 25

// account forgets slices whose records are all finished, copies the leftovers of those that are mostly finished, and returns
// the bytes that the partition still pins.
func (e *Engine) account(ep *epoch) int64 {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.tr == nil {
		return 0
	}
	keep := ep.slices[:0]
	var sum int64
	leftovers := false
	for _, s := range ep.slices {
		left := ep.tr.Undone(s.first, s.n)
		if left == 0 {
			continue
		}
		s.leftover = left <= s.n/leftoverShare && s.looked != left // a look at the lane is worth it when something has changed
		s.looked = left
		leftovers = leftovers || s.leftover && !s.copied
		sum += s.bytes + s.copies
		keep = append(keep, s)
	}
	clear(ep.slices[len(keep):])
	ep.slices = keep
	if len(keep) == 0 && cap(keep) > 64 {
		ep.slices = nil
	}
	ep.bytes = sum
	if leftovers && sum > e.cfg.PartitionBytes/4 {
		ep.copyLeftovers()
	}
	return ep.bytes
}

// leftoverShare: a slice of which less than one in so many records is left is copied rather than kept whole.
const leftoverShare = 8

// copyLeftovers gives the waiting records of mostly finished slices memory of their own, so that they no longer pin their
// fetch. Running ones belong to their handler and can't be copied: their slice counts whole until they return. ep.mu is held.
func (ep *epoch) copyLeftovers() {
	type found struct {
		bytes   int64
		waiting int
	}
	copies := map[int]found{}
	ep.lane.EachWaiting(func(in look) {
		i := ep.sliceOf(tracker.Seq(in.Number))
		if i < 0 || ep.slices[i].copied || !ep.slices[i].leftover {
			return
		}
		if rec := *in.Item; rec.Context != nil { // still the fetch's
			*in.Item = cloneRecord(rec)
			rec.Recycle()
		}
		f := copies[i]
		copies[i] = found{f.bytes + sizeOf(*in.Item), f.waiting + 1}
	})
	for i, f := range copies {
		s := &ep.slices[i]
		ep.bytes -= s.bytes + s.copies
		s.copies = f.bytes
		if s.looked <= f.waiting { // nothing of it runs, so nothing pins the fetch any more
			s.bytes, s.copied = 0, true
		}
		ep.bytes += s.bytes + s.copies
	}
}

// sliceOf finds the slice that a record came in.
func (ep *epoch) sliceOf(seq tracker.Seq) int {
	lo, hi := 0, len(ep.slices)
	for lo < hi {
		mid := (lo + hi) / 2
		if ep.slices[mid].first+tracker.Seq(ep.slices[mid].n) <= seq {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(ep.slices) && ep.slices[lo].first <= seq {
		return lo
	}
	return -1
}
