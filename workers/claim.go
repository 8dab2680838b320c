package workers

import "time"

// maxScan bounds the items that one turn looks at when it finds only ones that have to wait, and so how long the
// partition's lock is held.
const maxScan = 256

// claim fills the worker's chunk with items that may run, none if there are none.
func (p *partition[T]) claim(w *worker[T], l *Lane[T]) {
	w.slots, w.size = w.slots[:0], 0
	if l.closed || !p.claimable(l) {
		return
	}
	if p.pool.o.BatchSize > 1 {
		p.claimBatch(w, l)
	} else if p.claimReady(w, l); len(w.slots) > 0 || !p.takesRuns(l) || !p.claimRun(w, l) {
		p.claimQueued(w, l)
	}
	n := len(w.slots) + len(w.run) // one of the two
	if n == 0 {
		return
	}
	if l.barrier { // nothing was active
		l.barrier, p.mixed = false, false
	}
	l.running += n
	l.workers++
	p.active += n
	w.size, w.first, w.end, w.recalled = n, 0, n, false
	clear(w.marks[:n])
	w.chunks++
	at := w.chunks << chunkShift
	if n > 1 && p.pool.o.BatchSize == 1 {
		at |= multiBit
	}
	w.at.Store(at)
	if w.lane.Load() == nil { // otherwise it stays
		w.place = len(p.store.crew)
		p.store.crew = append(p.store.crew, w)
		w.lane.Store(l)
	}
}

// claimReady takes items that waited and may run now, each with the items of its key that wait right behind it: one
// worker runs them in order, and a hot key costs no more turns than many cold ones.
func (p *partition[T]) claimReady(w *worker[T], l *Lane[T]) {
	for p.store.ready.head != nil && len(w.slots) < int(l.chunk) {
		s := p.store.ready.pop()
		w.add(s, claimed)
		for s = s.next; s != nil && len(w.slots) < int(l.chunk); s = s.next {
			w.add(s, chained)
		}
	}
}

// claimQueued takes items from the queue. Here is where keys are registered: not at the push, which is the fetch
// goroutine's time, and not for more items than the workers have got to.
func (p *partition[T]) claimQueued(w *worker[T], l *Lane[T]) {
	st := p.store
	for scanned := 0; st.queue.n > 0 && len(w.slots) < int(l.chunk) && scanned < maxScan; scanned++ {
		s := st.slab.take(st.queue.pop())
		var before *slot[T]
		if l.order == ByKey {
			before = p.register(s)
		}
		switch {
		case before == nil:
			w.add(s, claimed)
		case before.by == w && (before.state == claimed || before.state == chained):
			w.add(s, chained) // the same goroutine runs both, in order
		default:
			s.state = blocked
		}
	}
}

func (w *worker[T]) add(s *slot[T], as state) {
	s.state = as
	if s.by != w { // mostly the worker that had it last
		s.by = w
	}
	w.slots = append(w.slots, s)
}

// finish accounts for what the worker has run: all of its chunk, or what a recall has left of it.
func (p *partition[T]) finish(w *worker[T], l *Lane[T]) {
	from := w.end
	if w.task.base >= 0 { // otherwise it was recalled before it began
		from = min(from, w.task.base+w.task.from)
	}
	if w.run != nil {
		p.finishRun(w, l, from)
	} else {
		p.finishSlots(w, l, from)
	}
	p.tell(l, &w.errands)
	w.adapt(l)
	l.workers--
	w.run, w.holding, w.byKey = nil, nil, false
}

// leave takes a worker that has no chunk any more out of the partition's crew.
func (p *partition[T]) leave(w *worker[T]) {
	st := p.store
	last := len(st.crew) - 1
	st.crew[w.place] = st.crew[last]
	st.crew[w.place].place = w.place
	st.crew[last] = nil
	st.crew = st.crew[:last]
	w.lane.Store(nil)
}

// finishSlots accounts for slots of which those from the given one on are not complete.
func (p *partition[T]) finishSlots(w *worker[T], l *Lane[T], from int) {
	for i := w.end - 1; i >= from; i-- {
		if s := w.slots[i]; s.holding || l.closed {
			p.returned(l, s, false, &w.errands)
		} else {
			p.giveBack(l, s)
		}
	}
	for i := w.first; i < from; i++ {
		p.returned(l, w.slots[i], w.marks[i], &w.errands)
	}
}

// adapt sets how many items the lane's next chunk may have.
func (w *worker[T]) adapt(l *Lane[T]) {
	switch took := time.Duration(w.took); {
	case took > slowChunk:
		l.chunk = max(l.chunk/2, 1)
	case took < fastChunk && w.size >= int(l.chunk) && !w.recalled:
		l.chunk = min(l.chunk*2, maxChunk)
	}
}
