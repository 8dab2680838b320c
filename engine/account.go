package engine

import (
	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/gaplesshq/gapless/tracker"
)

// account forgets slices whose records are all finished, copies the leftovers of those that are mostly finished, and returns
// the bytes that the partition still pins.
func (e *Engine) account(ep *epoch) int64 {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.tr == nil {
		return 0
	}
	keep := ep.slices[:0]
	var sum, leftover int64
	for _, s := range ep.slices {
		if s.copied && !ep.tr.IsDone(s.waits) { // behind a stuck record of their key such slices become many, and to count each takes long
			sum += s.copies
			keep = append(keep, s)
			continue
		}
		left := ep.tr.Undone(s.first, s.n)
		if left == 0 {
			continue
		}
		s.left = left
		if s.leftover = left <= s.n/leftoverShare && s.looked != left; s.leftover { // a look at the lane is worth it when something has changed
			leftover += s.bytes
		}
		sum += s.bytes + s.copies
		keep = append(keep, s)
	}
	clear(ep.slices[len(keep):])
	ep.slices = keep
	if len(keep) == 0 && cap(keep) > 64 {
		ep.slices = nil
	}
	ep.bytes = sum
	if leftover > e.cfg.PartitionBytes/8 {
		ep.copyLeftovers(e.records)
	}
	return ep.bytes
}

// leftoverShare: a slice of which less than one in so many records is left is copied rather than kept whole.
const leftoverShare = 8

// copyLeftovers gives the waiting records of mostly finished slices memory of their own, so that they no longer pin their
// fetch. Running ones belong to their handler and can't be copied: their slice counts whole until they return. ep.mu is held.
func (ep *epoch) copyLeftovers(records *recordpool.Pool) {
	var from tracker.Seq // of what is to be copied; behind a stuck record of their key many wait that are copied already
	for i := len(ep.slices) - 1; i >= 0; i-- {
		if s := &ep.slices[i]; s.leftover && !s.copied {
			from, s.looked = s.first, s.left
		}
	}
	type found struct {
		bytes   int64
		waiting int
		last    tracker.Seq
	}
	copies := map[int]found{}
	ep.lane.EachWaiting(func(in look) {
		if tracker.Seq(in.Number) < from {
			return
		}
		i := ep.sliceOf(tracker.Seq(in.Number))
		if i < 0 || ep.slices[i].copied || !ep.slices[i].leftover {
			return
		}
		if rec := *in.Item; rec.Context != nil { // still the fetch's
			*in.Item = cloneRecord(rec)
			records.ReleaseOne(rec)
		}
		f := copies[i]
		copies[i] = found{f.bytes + sizeOf(*in.Item), f.waiting + 1, max(f.last, tracker.Seq(in.Number))}
	})
	for i, f := range copies {
		s := &ep.slices[i]
		ep.bytes -= s.bytes + s.copies
		s.copies = f.bytes
		if s.left <= f.waiting { // nothing of it runs, so nothing pins the fetch any more
			s.bytes, s.copied, s.waits = 0, true, f.last
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
