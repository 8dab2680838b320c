package workers

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Pool runs the items of its lanes on goroutines that come and go with the work. Make one with New.
type Pool[T any] struct {
	o      Options[T]
	hash   func(key []byte) uint64
	now    func() int64 // nanoseconds since the pool was made
	stores sync.Pool    // of *store[T]
	idle   sync.Pool    // of *worker[T]

	total    atomic.Int64  // the limit over all lanes
	laneMost atomic.Int64  // the limit per lane, 0 if there is none of its own
	hired    atomic.Int64  // goroutines; changed under mu only
	tickets  atomic.Uint64 // numbers given out
	recalled atomic.Uint64 // chunks that the monitor ended

	monitor monitor[T]

	mu      sync.Mutex // see partition for the lock order
	parts   map[uint64]*partition[T]
	ring    ring[T]
	crew    []*worker[T] // by worker number; nil where nobody has the number
	numbers numbers
	waking  bool // a new worker is on its way to the ring
	peak    int
	timers  int // set and neither stopped nor through
	quiet   sync.Cond
}

// New makes a pool. It has no goroutine until a lane has work, and needs no closing: close its lanes, and use Wait.
func New[T any](o Options[T]) *Pool[T] {
	p := &Pool[T]{o: o.withDefaults(), parts: make(map[uint64]*partition[T])}
	p.total.Store(int64(p.o.Total))
	p.laneMost.Store(int64(p.o.PerLane))
	p.quiet.L = &p.mu
	p.monitor.pool = p
	p.stores.New = func() any { return new(store[T]) }
	p.idle.New = func() any { return newWorker(p) }

	seed := maphash.MakeSeed()
	p.hash = func(key []byte) uint64 { return maphash.Bytes(seed, key) }

	now := p.o.Now
	began := now()
	p.now = func() int64 { return int64(now().Sub(began)) }
	if o.Now == nil {
		p.now = func() int64 { return int64(time.Since(began)) } // reads only the monotonic clock
	}
	return p
}

// SetLimit changes the limits while the pool runs: total over all lanes (below 1 leaves it as it is) and per lane (below
// 1 means no limit of its own). Where a limit went down nothing is interrupted, but when SetLimit returns, no handler
// starts until fewer than the new limit run.
func (p *Pool[T]) SetLimit(total, perLane int) {
	if total >= 1 {
		p.total.Store(int64(total))
	}
	p.laneMost.Store(int64(max(perLane, 0)))
	for _, part := range p.partitions() {
		var e errands[T]
		part.mu.Lock()
		// A worker that claimed before it could see the new limits did so under this lock, and is recalled.
		part.recallAll(nil, &e)
		part.unlock(&e)
	}
	p.mu.Lock()
	w := p.hire()
	p.mu.Unlock()
	if w != nil {
		go w.work()
	}
}

// perLane is the limit of handlers for a lane.
func (p *Pool[T]) perLane() int {
	if n := p.laneMost.Load(); n > 0 {
		return int(n)
	}
	return int(p.total.Load())
}

// crowded says that there are more workers than the limit allows, so that some have to leave.
func (p *Pool[T]) crowded() bool { return p.hired.Load() > p.total.Load() }

// Wait returns when no goroutine of the pool is left: call it when all lanes are closed and their handlers have returned
// or are about to. A pool that is idle has none either; Wait then returns at once, and the pool can be used further.
func (p *Pool[T]) Wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.hired.Load() > 0 || p.timers > 0 {
		if p.hired.Load() == 0 { // the monitor has nothing to look after
			p.mu.Unlock()
			stopped := p.monitor.stop()
			p.mu.Lock()
			if stopped {
				continue
			}
		}
		if p.hired.Load() > 0 || p.timers > 0 {
			p.quiet.Wait()
		}
	}
}

// partition returns the partition of that identity.
func (p *Pool[T]) partition(id uint64) *partition[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	part := p.parts[id]
	if part == nil {
		part = &partition[T]{pool: p, id: id}
		if p.o.BatchSize > 1 {
			part.linger = &linger{}
		}
		p.parts[id] = part
	}
	return part
}

// partitions returns all of them.
func (p *Pool[T]) partitions() []*partition[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*partition[T], 0, len(p.parts))
	for _, part := range p.parts {
		all = append(all, part)
	}
	return all
}

// forget takes out a partition that has no lane and no item left.
func (p *Pool[T]) forget(part *partition[T]) {
	p.mu.Lock()
	delete(p.parts, part.id)
	p.mu.Unlock()
}

// alarm calls f after d and counts as a goroutine of the pool until it has. stop says whether it was in time.
func (p *Pool[T]) alarm(d time.Duration, f func()) (stop func() bool) {
	p.mu.Lock()
	p.timers++
	p.mu.Unlock()
	over := func() {
		p.mu.Lock()
		if p.timers--; p.timers == 0 {
			p.quiet.Broadcast()
		}
		p.mu.Unlock()
	}
	cancel := p.o.AfterFunc(d, func() { f(); over() })
	return func() bool {
		if !cancel() {
			return false
		}
		over()
		return true
	}
}
