package workers

// Task is what a handler gets: one item, or with Options.BatchSize above 1 a batch of one lane. It belongs to the worker
// and is valid only until the handler returns. A handler that has much to prepare for each item may go on to more with Next.
type Task[T any] struct {
	worker *worker[T]
	base   int // of the task's first item in the worker's chunk
	n      int
	from   int // the items from here on go back
}

// Lane returns the lane of the items.
func (t *Task[T]) Lane() *Lane[T] { return t.worker.lane.Load() }

// Next ends the item as the handler's return would, and makes the next one of this lane that the worker has claimed the task's: pointers
// to the one before do not count any more. It returns false if there is none, or if it was taken back since or goes back by Hold or
// Return; the task is then what it was, and what is left to do is to return. A batch has no next. Whoever returns without having asked is
// called again.
func (t *Task[T]) Next() bool { return t.worker.pool.o.BatchSize == 1 && t.worker.next() }

// Len returns the number of items: 1, or up to Options.BatchSize.
func (t *Task[T]) Len() int { return t.n }

// Item returns the i-th item, where the pool keeps it. The handler may change it, except what Options.Key reads and
// what the callbacks of Lane.EachWaiting and Pool.EachRunning read.
func (t *Task[T]) Item(i int) *T { return t.Look(i).Item }

// Look is the i-th item with what belongs to it.
func (t *Task[T]) Look(i int) Look[T] { return t.worker.look(t.at(i)) }

// Worker returns the number of the worker that runs the task. Numbers start from 0 and are below the highest number of
// workers there have been at once. A worker keeps its number as long as it lives, and no other worker has the same one
// at that time, so scratch memory can go by it. (Only after runtime.Goexit in a handler the goroutine behind it changes.)
func (t *Task[T]) Worker() int { return t.worker.number }

// Resumed says whether the i-th item was held before.
func (t *Task[T]) Resumed(i int) bool {
	s := t.worker.slotAt(t.at(i))
	return s != nil && s.resumed
}

// Mark has the i-th item told of to Options.Completed once the handler has returned or gone on with Next, unless it is held or goes back.
func (t *Task[T]) Mark(i int) { t.worker.marks[t.at(i)] = true }

// at is the place of the i-th item in the worker's chunk.
func (t *Task[T]) at(i int) int {
	if uint(i) >= uint(t.n) {
		panic("workers: a task has no such item")
	}
	return t.base + i
}

// Hold keeps the i-th item unfinished beyond the return of the handler, without a worker. keep takes its place, with the
// same key and number: typically a copy that does not pin what the original came in. memo comes back with Task.Look when
// it runs again. Until Pool.Resume or Pool.Finish is called
// with the ticket, the later items of its key, and under ByPartition all later items of the lane, wait.
//
// The old value is the caller's again as soon as Hold returns: the pool does not read it any more and will not release
// it. What is released in the end is keep, once. Pointers to items that were got before do not count any more: Hold may
// move the other items of a batch. Holding an item twice in one task panics.
func (t *Task[T]) Hold(i int, keep T, memo any) Ticket {
	w, at := t.worker, t.at(i)
	l := w.lane.Load()
	p := l.part
	var e errands[T]
	p.mu.Lock()
	s := p.slotOf(w, at)
	if s.holding {
		p.mu.Unlock()
		panic("workers: the item is held already")
	}
	ticket := Ticket{lane: l, number: p.pool.tickets.Add(1)}
	s.item, s.memo, s.holding, s.verdict = keep, memo, true, pending
	if p.held == nil {
		p.held = make(map[uint64]heldItem[T])
	}
	p.held[ticket.number] = heldItem[T]{slot: s, lane: l}
	// What is left of the chunk must not go by: later items of this key may be in it.
	p.recall(w, &w.errands)
	p.settle(&e)
	p.mu.Unlock()
	e.do(p.pool)
	return ticket
}

// Return says that the items from the i-th on were not handled after all. When the handler returns they go back to where
// they came from and run again, in order and before later ones; under ByPartition after an item that this task held. So
// the first failure ends a batch: Hold(i), Return(i+1). An item that is held stays held.
func (t *Task[T]) Return(i int) {
	if i < 0 || i > t.n {
		panic("workers: a task has no such item")
	}
	t.from = min(t.from, i)
	if i < t.n && t.worker.pool.o.BatchSize == 1 { // the rest of the chunk goes back as well
		w := t.worker
		p := w.lane.Load().part
		var e errands[T]
		p.mu.Lock()
		p.recall(w, &w.errands)
		p.settle(&e)
		p.mu.Unlock()
		e.do(p.pool)
	}
}
