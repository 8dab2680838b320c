package workers

// A chunk of a lane ByKey can be a run as well, as long as each of its items has a key that is free or that of an item before it in the
// same run. The key table needs something to point at: the worker's own slots stand in for the items, which stay where they
// are. An item that must outlive its chunk gets a slot in the end.

// leastKeyRun is the least chunk that is worth it. Of slow handlers, who get one item at a time, there can be thousands, and the slab's
// slots, which go from one to the next, are still in the cache when a worker's own have left it.
const leastKeyRun = 8

// claimKeyRun makes the worker's chunk the stretch of the queue in which no item waits for another worker's. It says whether there is one.
func (p *partition[T]) claimKeyRun(w *worker[T], most int) bool {
	q := &p.store.queue
	if w.stands == nil {
		w.stands = make([]slot[T], maxChunk)
		for i := range w.stands {
			w.stands[i].by, w.stands[i].standIn = w, true
		}
	}
	w.run, w.runFirst = q.peek(most)
	n := 0
	for n < len(w.run) {
		s := &w.stands[n]
		s.number, s.state = w.runFirst+uint64(n), claimed
		if before := p.register(s); before != nil {
			if before.by != w || before.state != claimed && before.state != chained {
				p.store.keys.withdraw(s, before)
				break
			}
			s.state = chained
		}
		n++
	}
	w.run, w.byKey = w.run[:n:n], n > 0
	if n == 0 {
		w.run = nil
		return false
	}
	q.cut(n)
	return true
}

// vacate ends the stand-in of an item that is complete: the next of its key may run.
func (p *partition[T]) vacate(s *slot[T]) {
	if !s.keyed {
		return
	}
	p.freeKey(s)
	s.keyed = false
	if s.next != nil {
		s.next = nil
	}
}

// settleDown gives an item of a key run a slot in place of its stand-in. The items of its key before it in the run still have theirs, or are
// accounted for.
func (p *partition[T]) settleDown(w *worker[T], i int) *slot[T] {
	f := &w.stands[i]
	s := p.store.slab.take(w.run[i], f.number)
	var none T
	w.run[i] = none
	s.state, s.by = f.state, w
	if !f.keyed {
		return s
	}
	s.hash, s.keyed = f.hash, true
	if s.next = f.next; s.next == nil {
		p.store.keys.replace(f, s)
	}
	if f.state == chained {
		for j := range w.stands[:i] {
			if w.stands[j].next == f {
				w.stands[j].next = s
			}
		}
		if w.holding != nil && w.holding.next == f {
			w.holding.next = s
		}
	}
	f.next, f.keyed = nil, false
	return s
}
