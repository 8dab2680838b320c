package engine

import "github.com/gaplesshq/gapless/tracker"

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
