package workers

import (
	"slices"
	"time"
)

// Stats is a look at a pool.
type Stats struct {
	Running    int    // workers that have something to run
	Goroutines int    // workers there are
	Peak       int    // the most workers there have been at once
	Partitions int    // identities with an open lane, or with items of a closed one that run or are held
	Recalled   uint64 // times that the monitor took back what was claimed behind a slow item
}

// Stats returns a look at the pool. The numbers need not be of one moment.
func (p *Pool[T]) Stats() Stats {
	s := Stats{Recalled: p.recalled.Load()}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Goroutines, s.Peak, s.Partitions = int(p.hired.Load()), p.peak, len(p.parts)
	for _, w := range p.crew {
		if w != nil && w.lane.Load() != nil {
			s.Running++
		}
	}
	return s
}

// Busy returns how many workers there are, and whether there is work for one more. It takes no lock.
func (p *Pool[T]) Busy() (workers int, waiting bool) {
	return int(p.hired.Load()), p.ring.n.Load() > 0
}

// Look is an item with what belongs to it.
type Look[T any] struct {
	Item   *T
	Number uint64 // that it was pushed with
	Memo   any    // that Hold was given when it was held last; nil if it was not held before
}

func (s *slot[T]) look() Look[T] { return Look[T]{&s.item, s.number, s.memo} }

// look is the i-th item of the worker's chunk.
func (w *worker[T]) look(i int) Look[T] {
	if s := w.slotAt(i); s != nil {
		return s.look()
	}
	return Look[T]{Item: &w.run[i], Number: w.runFirst + uint64(i)}
}

// slotAt is the slot of the i-th item of the worker's chunk; nil if it has none.
func (w *worker[T]) slotAt(i int) *slot[T] {
	if w.run != nil {
		return w.holding
	}
	return w.slots[i]
}

// sighting is since when a worker has been seen at the same item.
type sighting struct {
	at    uint64
	since int64
}

// sight notes that the worker was at this item at this time and returns since when it is known to be.
func (w *worker[T]) sight(at uint64, now int64) (since int64) {
	if w.seen.at != at {
		w.seen = sighting{at: at, since: now}
		if started(at) == 1 {
			w.seen.since = min(now, w.began.Load()) // the chunk began with this item
		}
	}
	return w.seen.since
}

// EachRunning calls fn for every item that is in a handler now. since is how long it has been known to run. Nobody reads
// the clock for each record, so this goes back to when EachRunning or the monitor first saw it (the monitor only sees
// items that others are claimed with); for the first item of a chunk, and so for every batch and for the single items
// into which slow handlers' work is cut, it goes back to the start. fn runs under the lock of the item's lane: it may
// read the item, which is not released before fn returns, but must not keep it, nor call into the pool.
func (p *Pool[T]) EachRunning(fn func(l *Lane[T], it Look[T], since time.Duration)) {
	for _, w := range p.everyone(nil) {
		if w == nil {
			continue
		}
		l := w.lane.Load()
		if l == nil {
			continue
		}
		l.part.mu.Lock()
		if w.lane.Load() == l {
			at, now := w.at.Load(), p.now()
			if first, end := w.inHandler(at); first < end {
				since := time.Duration(max(now-w.sight(at, now), 0))
				for i := first; i < end; i++ {
					fn(l, w.look(i), since)
				}
			}
		}
		l.part.mu.Unlock()
	}
}

// inHandler returns which items of the worker's chunk, from first up to end, its handler has now. Called under the
// partition's lock.
func (w *worker[T]) inHandler(at uint64) (first, end int) {
	n := started(at)
	switch {
	case w.recalled:
		return w.first, w.end
	case n == 0 || n > w.end && w.pool.o.BatchSize == 1:
		return 0, 0
	case w.pool.o.BatchSize > 1:
		return 0, w.end
	default:
		return n - 1, n
	}
}

// Len returns how many items of the lane wait (in the queue, for their key, or for a worker), run, and are held. Items
// that are complete but not accounted for yet are in none of the three.
func (l *Lane[T]) Len() (waiting, running, held int) {
	p := l.part
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting, held = l.count-l.running-l.held, l.held
	if p.store == nil {
		return waiting, 0, held
	}
	for _, w := range p.store.crew {
		if w.lane.Load() != l {
			continue
		}
		at := w.at.Load()
		first, end := w.inHandler(at)
		running += end - first
		if !w.recalled {
			n := started(at)
			if p.pool.o.BatchSize > 1 && n > 0 {
				n = w.end
			}
			waiting += max(w.end-n, 0)
		}
	}
	return waiting, running, held
}

// EachWaiting calls fn for the items of the lane that wait or are held, in no particular order, but not for those that a
// worker has claimed. fn runs under the lane's lock and must not call into the pool. It may replace the item in place by
// one with the same key; then the old value is the caller's again and the new one will be released.
func (l *Lane[T]) EachWaiting(fn func(it Look[T])) {
	p := l.part
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.held {
		if h.lane == l && !h.slot.holding {
			fn(h.slot.look())
		}
	}
	if st := p.store; st != nil && p.lane == l {
		st.slab.each(func(s *slot[T]) {
			if s.state == ready || s.state == blocked {
				fn(s.look())
			}
		})
		st.queue.each(func(item *T, number uint64) { fn(Look[T]{Item: item, Number: number}) })
	}
}

// BusyKeys calls fn for the keys of the lane for which most items wait, at most max keys and the busiest first. waiting
// counts what is known to wait for the key; items that no worker has looked at yet are not in it. fn runs under the lane's
// lock: it may read the key, but not keep it, nor call into the pool.
func (l *Lane[T]) BusyKeys(max int, fn func(key []byte, waiting int)) {
	type busy struct {
		slot    *slot[T]
		waiting int
	}
	p := l.part
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store == nil || p.lane != l {
		return
	}
	var keys []busy
	look := func(s *slot[T]) {
		if s.next == nil || s.state == blocked || s.state == chained {
			return
		}
		k := busy{slot: s}
		for f := s.next; f != nil; f = f.next {
			k.waiting++
		}
		keys = append(keys, k)
	}
	p.store.slab.each(look)
	for _, w := range p.store.crew {
		for i := w.first; w.byKey && i < w.end; i++ {
			look(&w.stands[i])
		}
	}
	slices.SortFunc(keys, func(a, b busy) int { return b.waiting - a.waiting })
	for _, k := range keys[:min(max, len(keys))] {
		fn(p.pool.o.Key(k.slot.ref()), k.waiting)
	}
}
