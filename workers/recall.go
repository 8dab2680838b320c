package workers

// recall ends a worker's chunk where it stands: what the worker has run is completed, what it has not started goes back,
// and only the item that it runs stays with it. It is right at any moment, for the word that counts the starts decides
// between the worker and the recaller. Called under the lock of the lane whose chunk it is.
func (p *partition[T]) recall(w *worker[T], e *errands[T]) {
	if w.recalled {
		return
	}
	w.recalled = true
	stop := w.at.Load()&^(startedMask|multiBit) | stopped
	at := w.at.Swap(stop)
	begun := min(started(at), w.end)
	if w.seen.at == at || begun == 1 { // for those who watch it the same item runs on
		w.seen = sighting{at: stop, since: w.sight(at, w.began.Load())}
	}
	if p.pool.o.BatchSize > 1 && begun > 0 {
		return // a batch is started whole
	}
	l := w.lane.Load()
	done := max(begun-1, 0)
	if w.run != nil {
		p.completeRun(w, l, 0, done, e)
		p.giveBackRun(w, l, begun, w.end)
	} else {
		for i, s := range w.slots[:done] {
			p.returned(l, s, w.marks[i], e)
		}
		for i := w.end - 1; i >= begun; i-- {
			p.giveBack(l, w.slots[i])
		}
	}
	p.tell(l, e)
	w.first, w.end = done, begun
}

// recallAll recalls the chunks of a lane, or those of all lanes if l is nil.
func (p *partition[T]) recallAll(l *Lane[T], e *errands[T]) {
	if p.store == nil {
		return
	}
	for _, w := range p.store.crew {
		if l == nil || w.lane.Load() == l {
			p.recall(w, e)
		}
	}
}
