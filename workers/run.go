package workers

// A chunk in which no item waits for another worker's is simply a stretch of the queue: a run. Its items stay where they were pushed, and
// none of them has a slot unless its handler holds it. So what such an item costs between the push and its release is a
// mark and a look at that mark, and under ByKey its place in the key table; see keyrun.go.

// takesRuns says whether the next chunk from the queue is to be a run. Pushes of a few items each are collected into one
// chunk by way of slots.
func (p *partition[T]) takesRuns(l *Lane[T]) bool {
	q := &p.store.queue
	return q.used > 0 && (q.used == 1 || q.oldest() >= int(l.chunk)) && (l.order != ByKey || l.chunk >= leastKeyRun)
}

// claimRun makes a stretch of the queue the worker's chunk. It says whether it could.
func (p *partition[T]) claimRun(w *worker[T], l *Lane[T]) bool {
	if l.order == ByKey {
		return p.claimKeyRun(w, int(l.chunk))
	}
	w.run, w.runFirst = p.store.queue.cut(int(l.chunk))
	return true
}

// slotOf returns the slot of an item of the worker's chunk, which under a run it gets only now: its handler is about to
// hold it. A batch may hold several, so all its items get theirs.
func (p *partition[T]) slotOf(w *worker[T], i int) *slot[T] {
	if w.run != nil && p.pool.o.BatchSize > 1 {
		for i, item := range w.run {
			w.add(p.store.slab.take(item, w.runFirst+uint64(i)), claimed)
		}
		clear(w.run)
		w.run = nil
	}
	if w.run == nil {
		return w.slots[i]
	}
	if w.holding == nil && w.byKey {
		w.holding = p.settleDown(w, i)
	}
	if w.holding == nil {
		w.holding = p.store.slab.take(w.run[i], w.runFirst+uint64(i))
		w.holding.state, w.holding.by = claimed, w
		var none T
		w.run[i] = none
	}
	return w.holding
}

// finishRun accounts for a run of which the items from the given one on are not complete.
func (p *partition[T]) finishRun(w *worker[T], l *Lane[T], from int) {
	switch {
	case w.holding != nil: // so the run was recalled: nothing else is left of it
		p.returned(l, w.holding, false, &w.errands)
		return
	case l.closed:
		clear(w.marks[from:w.end])
		p.completeRun(w, l, from, w.end, &w.errands)
	default:
		p.giveBackRun(w, l, from, w.end)
	}
	p.completeRun(w, l, w.first, from, &w.errands)
}

// completeRun ends items of a run: as complete, but for the slots that they don't have.
func (p *partition[T]) completeRun(w *worker[T], l *Lane[T], from, to int, e *errands[T]) {
	if from >= to {
		return
	}
	for i := from; i < to; i++ {
		begin := i
		for i < to && w.marks[i] {
			i++
		}
		e.tell(w.runFirst+uint64(begin), i-begin)
	}
	for i := from; w.byKey && i < to; i++ {
		p.vacate(&w.stands[i])
	}
	e.runs = append(e.runs, w.run[from:to])
	l.running -= to - from
	p.active -= to - from
	p.uncount(l, to-from, e)
}

// giveBackRun puts items of a run that were not run where they came from.
func (p *partition[T]) giveBackRun(w *worker[T], l *Lane[T], from, to int) {
	if from >= to {
		return
	}
	if w.byKey {
		for i := to - 1; i >= from; i-- {
			p.giveBack(l, p.settleDown(w, i))
		}
		return
	}
	p.store.queue.unshift(w.run[from:to], w.runFirst+uint64(from))
	l.running -= to - from
	p.active -= to - from
}
