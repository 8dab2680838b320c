package workers

// Lane is the queue of one partition from its assignment to its revocation. Its methods may be called from anywhere.
type Lane[T any] struct {
	part  *partition[T]
	owner any
	high  int
	low   int
	order Order

	// Guarded by the partition's lock.
	chunk   uint8 // how many items the next chunk may have
	full    bool  // Push returned true and Low has not been called since
	paused  bool
	closed  bool
	barrier bool // starts nothing while items of earlier lanes are unfinished
	// listed says that the lane is in the pool's ring, or that the worker who took it out has not looked yet. It is
	// guarded by the partition's lock, which that worker takes next: so work that is added while it is true is seen.
	listed  bool
	count   int // items that were pushed and are not complete
	running int // items in the chunks of workers
	held    int // items that are parked
	workers int // workers that have a chunk of this lane
	drained chan struct{}

	after *Lane[T] // the next lane in the pool's ring; guarded by the pool's lock
}

// Open makes the lane of a partition. id identifies the partition within this process over all its assignments: items
// that still run, or are held, in an earlier lane of the same id keep their keys, and the new lane starts nothing that
// would overlap with them. (If the order changed in between, the new lane waits for all of them, unless it is Unordered.)
// An id has one open lane: opening it again closes the one before.
//
// owner is the caller's and comes back from Lane.Owner. high and low are the marks for the items in the lane, counted
// from Push until they are complete, so running and held ones included: Push says that the lane is full from high on,
// Options.Low is called when it is down to low. A high below 1 means that it is never full.
func (p *Pool[T]) Open(id uint64, order Order, owner any, high, low int) *Lane[T] {
	if order == ByKey && p.o.Key == nil {
		panic("workers: a lane ByKey needs Options.Key")
	}
	l := &Lane[T]{owner: owner, order: order, high: high, low: max(0, min(low, high-1)), chunk: 1}
	for {
		part := p.partition(id)
		part.mu.Lock()
		if part.gone { // its last item ended between the look-up and here
			part.mu.Unlock()
			continue
		}
		if before := part.lane; before != nil {
			part.mu.Unlock()
			before.Close()
			continue
		}
		l.part = part
		part.mixed = part.active > 0 && (part.mixed || order != part.last) // also where a lane in between has started nothing
		l.barrier = part.mixed && order != Unordered
		part.lane, part.last = l, order
		part.mu.Unlock()
		return l
	}
}

// ID returns the identity that the lane was opened with.
func (l *Lane[T]) ID() uint64 { return l.part.id }

// Owner returns what the lane was opened for.
func (l *Lane[T]) Owner() any { return l.owner }

// Push adds the items to the end of the lane. They have the numbers first, first+1 and so on, which are the caller's and come
// back with Task.Look and in Options.Completed; the pool looks at none of them. The slice is the lane's from then on: the
// caller must neither read nor write it again. It never blocks. full says that the lane is at or above its high mark; the
// bound is soft, a push over it is still taken whole. Items that are pushed to a closed lane are released at once.
func (l *Lane[T]) Push(first uint64, items []T) (full bool) {
	p := l.part
	var e errands[T]
	p.mu.Lock()
	if l.closed {
		p.mu.Unlock()
		p.pool.release(items)
		return false
	}
	if len(items) > 0 {
		st := p.busy()
		if st.queue.n == 0 {
			p.queuedFirst()
		}
		st.queue.push(items, first)
		l.count += len(items)
	}
	if l.high > 0 && l.count >= l.high {
		l.full, full = true, true
	}
	p.unlock(&e)
	return full
}

// Pause starts nothing more of this lane. Items that run go on; those that a worker had claimed and not started wait.
func (l *Lane[T]) Pause() {
	p := l.part
	var e errands[T]
	p.mu.Lock()
	l.paused = true
	p.recallAll(l, &e)
	p.unlock(&e)
}

// Unpause ends a Pause.
func (l *Lane[T]) Unpause() {
	p := l.part
	var e errands[T]
	p.mu.Lock()
	l.paused = false
	p.unlock(&e)
}

// Close ends the lane: nothing more of it starts. Items that wait, claimed ones that have not been started included, are
// dropped and released before Close returns. Items that run go on and complete as usual, held ones stay until Finish;
// both keep their keys against a later lane of the same id. It returns how many items run. Closing again changes nothing.
func (l *Lane[T]) Close() (running int) {
	p := l.part
	var e errands[T]
	p.mu.Lock()
	if !l.closed {
		l.closed = true
		p.recallAll(l, &e)
		p.drop(&e)
		l.count = l.running + l.held
		p.lane = nil
		p.stopLinger()
		l.checkDrained()
	}
	running = l.running
	p.unlock(&e)
	return running
}

// Drained returns a channel that is closed once the lane is closed and none of its items runs or is held. (The release
// of the last ones may still be under way on their workers.)
func (l *Lane[T]) Drained() <-chan struct{} {
	l.part.mu.Lock()
	defer l.part.mu.Unlock()
	if l.drained == nil {
		l.drained = make(chan struct{})
		l.checkDrained()
	}
	return l.drained
}

// checkDrained closes the channel if the time has come.
func (l *Lane[T]) checkDrained() {
	if !l.closed || l.drained == nil || l.running > 0 || l.held > 0 {
		return
	}
	select {
	case <-l.drained:
	default:
		close(l.drained)
	}
}
