package workers

import "sync"

// partition is one identity over all the lanes that were opened for it, one at a time: what must outlive the closing of
// a lane stands here, above all the keys that are still running. Its lock guards everything of its lanes as well.
//
// Lock order: a partition's lock before the pool's. Callbacks other than Key run under neither.
type partition[T any] struct {
	mu   sync.Mutex
	pool *Pool[T]
	id   uint64

	lane  *Lane[T]  // the lane that is open, or nil
	store *store[T] // nil while there is nothing to store

	active int                    // items that are claimed or parked, of the open lane and of closed ones
	held   map[uint64]heldItem[T] // by ticket number: what Resume and Finish have not been called for

	linger *linger // nil in a pool without batches
	last   Order   // of the lane that was opened last
	mixed  bool    // items may be active that were started in another order than last
	gone   bool    // no longer in the pool's map: look it up again
}

// store is the memory that a partition needs only while it has items. An idle one hands it back to the pool, which is
// why ten thousand idle lanes are cheap; sync.Pool lets go of what grew and is not used again.
type store[T any] struct {
	queue queue[T]
	slab  slab[T]
	ready list[T]
	keys  keys[T]
	crew  []*worker[T] // the workers that have a chunk of this partition
}

// busy is the partition's store, fetched from the pool if it has none.
func (p *partition[T]) busy() *store[T] {
	if p.store == nil {
		p.store = p.pool.stores.Get().(*store[T])
	}
	return p.store
}

// errands are what came up under the lock and is to be done without it.
type errands[T any] struct {
	released []T
	runs     [][]T  // also released, where they lie
	told     []Span // what Completed is to be told of
	low      *Lane[T]
	hired    *worker[T]
}

// spins is how often a worker tries for the lock before it lets the runtime put it to sleep: about a microsecond, where another worker's
// turn takes half of one, by key nearly a whole one. A sync.Mutex tries as well, but not while its processor has other goroutines to run,
// as it always has where many handlers wait; and whoever sleeps gets the processor back behind all of those, some hundred times as late.
const spins = 1000

// lock takes the lock for a worker's turn.
func (p *partition[T]) lock() {
	for range spins {
		if p.mu.TryLock() {
			return
		}
	}
	p.mu.Lock()
}

// unlock puts the lane where workers find it if it has something to run, gives the lock back and does the errands.
func (p *partition[T]) unlock(e *errands[T]) {
	p.settle(e)
	p.mu.Unlock()
	e.do(p.pool)
}

// settle is the end of every change: nothing that can run may be left unlisted, and nothing idle may keep memory.
func (p *partition[T]) settle(e *errands[T]) {
	if l := p.lane; l != nil && !l.listed && p.claimable(l) {
		l.listed = true
		if w := p.pool.list(l); w != nil {
			e.hired = w
		}
	}
	if s := p.store; s != nil && s.slab.used == 0 && s.queue.n == 0 && len(s.crew) == 0 {
		p.store = nil
		p.pool.stores.Put(s)
	}
	if p.lane == nil && p.active == 0 && !p.gone {
		p.gone = true
		p.pool.forget(p)
	}
}

func (e *errands[T]) do(pool *Pool[T]) {
	if e.hired != nil {
		go e.hired.work()
		e.hired = nil
	}
	for _, run := range e.runs {
		pool.release(run)
	}
	clear(e.runs)
	e.runs = e.runs[:0]
	pool.release(e.released)
	e.released = e.released[:0]
	if e.low != nil {
		pool.o.Low(e.low)
		e.low = nil
	}
}

// release releases items and forgets them, so that what remembers them keeps nothing alive.
func (p *Pool[T]) release(items []T) {
	if p.o.Release != nil && len(items) > 0 {
		p.o.Release(items)
	}
	clear(items)
}

// claimable says whether a worker would find something to run in the lane now.
func (p *partition[T]) claimable(l *Lane[T]) bool {
	s := p.store
	if s == nil || s.ready.head == nil && s.queue.n == 0 {
		return false
	}
	if l.closed || l.paused || l.workers >= p.pool.perLane() {
		return false
	}
	if p.active > 0 && (l.order == ByPartition || l.barrier) {
		return false
	}
	return p.pool.o.BatchSize == 1 || p.batchDue()
}

// complete ends an item: the next of its key may run, its slot is free, and it is to be released.
func (p *partition[T]) complete(l *Lane[T], s *slot[T], e *errands[T]) {
	if s.keyed {
		p.freeKey(s)
	}
	if p.pool.o.Release != nil {
		e.released = append(e.released, s.item)
	}
	p.store.slab.give(s)
	p.uncount(l, 1, e)
}

// uncount takes items that have ended out of the lane's count.
func (p *partition[T]) uncount(l *Lane[T], n int, e *errands[T]) {
	l.count -= n
	if l.full && l.count <= l.low {
		l.full = false
		if p.pool.o.Low != nil && !l.closed {
			e.low = l
		}
	}
}

// tell notes that Completed is to be told of n items with the numbers from first on.
func (e *errands[T]) tell(first uint64, n int) {
	if n == 0 {
		return
	}
	if k := len(e.told); k > 0 && e.told[k-1].First+uint64(e.told[k-1].N) == first {
		e.told[k-1].N += n
		return
	}
	e.told = append(e.told, Span{First: first, N: n})
}

// tell tells of the marked items that have completed.
func (p *partition[T]) tell(l *Lane[T], e *errands[T]) {
	if len(e.told) == 0 {
		return
	}
	if p.pool.o.Completed != nil {
		p.pool.o.Completed(l, e.told)
	}
	e.told = e.told[:0]
}

// freeKey hands the key of s to the item that waits for it.
func (p *partition[T]) freeKey(s *slot[T]) {
	switch f := s.next; {
	case f == nil:
		p.store.keys.remove(s)
	case f.state == chained: // comes next in the same chunk, or has been there already
		f.state = claimed
	default:
		p.makeReady(f)
	}
}

// makeReady puts an item that may run behind those that may run already.
func (p *partition[T]) makeReady(s *slot[T]) {
	p.noteReady(s)
	s.state = ready
	p.store.ready.pushBack(s)
}

// makeNext puts an item that may run before those that may run already.
func (p *partition[T]) makeNext(s *slot[T]) {
	p.noteReady(s)
	s.state = ready
	p.store.ready.pushFront(s)
}

// giveBack puts an item that was claimed and not run before those that may run, unless an earlier item of its key goes
// back or runs on. Whoever gives back several begins with the last.
func (p *partition[T]) giveBack(l *Lane[T], s *slot[T]) {
	l.running--
	p.active--
	if s.state == chained {
		s.state = blocked
		return
	}
	p.makeNext(s)
}

// register puts the slot's key into the key table and returns the unfinished item before it, or nil if it may run.
func (p *partition[T]) register(s *slot[T]) (before *slot[T]) {
	pool := p.pool
	key := pool.o.Key(s.ref())
	if key == nil {
		return nil
	}
	return p.store.keys.register(s, pool.hash(key), key, pool.o.Same)
}

// drop gives up everything that waits. What runs or is held stays, and goes on holding its key.
func (p *partition[T]) drop(e *errands[T]) {
	st := p.store
	if st == nil {
		return
	}
	keep := p.pool.o.Release != nil
	for st.queue.n > 0 {
		items, _ := st.queue.cut(st.queue.n)
		e.runs = append(e.runs, items)
	}
	st.ready = list[T]{}
	st.keys.clear()
	for _, w := range st.crew {
		for i := w.first; w.byKey && i < w.end; i++ {
			if s := &w.stands[i]; s.keyed {
				s.next = nil
				st.keys.add(s)
			}
		}
	}
	st.slab.each(func(s *slot[T]) {
		switch s.state {
		case ready, blocked:
			if keep {
				e.released = append(e.released, s.item)
			}
			st.slab.give(s)
		default: // of each key at most one is left
			s.next = nil
			if s.keyed {
				st.keys.add(s)
			}
		}
	})
}
