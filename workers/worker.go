package workers

import (
	"sync/atomic"
	"time"
)

const (
	// maxChunk is the most items that a worker claims at once. From 16 on the cost of a turn hardly shows.
	maxChunk = 64
	// A chunk that took less than fastChunk may be twice as long the next time, one that took more than slowChunk only
	// half as long. Slow handlers so get one item at a time, and no worker goes without while another has a supply.
	fastChunk = 50 * time.Microsecond
	slowChunk = 200 * time.Microsecond
	// turnsPerVisit is how many chunks a worker runs before it goes to the next lane, if one waits.
	turnsPerVisit = 2
)

// worker is one goroutine of the pool and the chunk that it runs. Thousands of them with slow handlers find their memory out of the cache at
// each turn. So what a turn needs stands together, and a worker that never had a larger chunk than one item needs no other memory: that is
// what room is for.
type worker[T any] struct {
	// at counts the starts of this chunk: the one word that worker and recallers share without a lock.
	at atomic.Uint64
	// lane is whose chunk it is. It changes under the lock of that lane's partition only, so whoever finds it equal
	// under the lock can trust the chunk.
	lane  atomic.Pointer[Lane[T]]
	began atomic.Int64 // when the chunk began, on the pool's clock

	// The worker's own. Others read the chunk, under the lock, between claim and finish.
	pool     *Pool[T]
	number   int
	task     Task[T]
	took     int64 // nanoseconds for the chunk
	chunks   uint64
	size     int // items of the chunk, at the claim
	slots    []*slot[T]
	run      []T    // instead of slots; see claimRun
	runFirst uint64 // of the first item of run
	holding  *slot[T]
	marks    []bool // by item of the chunk: Task.Mark was called
	byKey    bool   // run is of a lane ByKey; see claimKeyRun
	working  bool

	arriving bool // hired and not yet at the ring; guarded by the pool's lock

	// Guarded by the partition's lock.
	recalled   bool // the worker starts nothing more of this chunk
	first, end int  // the items that are not accounted for: all of them, or what a recall left
	place      int  // in the store's crew

	// The worker's own, again.
	errands errands[T]
	room    struct { // what slots, marks and errands begin with
		slots    [1]*slot[T]
		told     [1]Span
		runs     [1][]T
		released [1]T
		marks    [maxChunk]bool
	}
	stands []slot[T] // for the items of a run ByKey, or nil if there was none yet

	seen sighting // guarded by the partition's lock
}

// The word at: in the lower half the number of items that were started, which goes too far when the worker finds the
// end; above it whether the chunk has more than one item to account for; above that the number of the chunk, so that
// a word that has not changed means that nothing has moved.
const (
	startedMask = 1<<32 - 1
	multiBit    = 1 << 32
	chunkShift  = 33
	stopped     = 1 << 30 // as the number of started items: no chunk is as long, and an int of 32 bits holds it
)

func started(at uint64) int { return int(at & startedMask) }

func newWorker[T any](p *Pool[T]) *worker[T] {
	w := &worker[T]{pool: p}
	w.task.worker = w
	w.slots, w.marks = w.room.slots[:0], w.room.marks[:]
	if p.o.BatchSize > maxChunk {
		w.marks = make([]bool, p.o.BatchSize)
	}
	w.errands.told, w.errands.runs, w.errands.released = w.room.told[:0], w.room.runs[:0], w.room.released[:0]
	return w
}

// work is the life of the goroutine. A handler that ends it from within (runtime.Goexit) gets a successor, which goes on
// with the same chunk.
func (w *worker[T]) work() {
	left := false
	defer func() {
		if !left {
			go w.work()
		}
	}()
	if w.working { // a successor
		w.visit(w.lane.Load(), w.runChunk())
	}
	for {
		l, next := w.pool.pick(w)
		if next != nil {
			go next.work()
		}
		if l == nil {
			break
		}
		w.visit(l, false)
	}
	left = true
	clear(w.slots[:cap(w.slots)]) // a slot that is used again remembers its worker: one would keep the other, and that the next
	w.pool.idle.Put(w)
}

// visit runs a few chunks of a lane. ran says that it has run one already.
func (w *worker[T]) visit(l *Lane[T], ran bool) {
	for turns := 0; w.turn(l, ran, turns); turns++ {
		ran = w.runChunk()
	}
}

// turn is a worker's one way into a partition: under a single lock it accounts for the chunk that it has run, if any, and
// claims the next one, if it may: after a few turns others come first, but while no other lane waits the worker stays. It says
// whether there is a chunk to run.
func (w *worker[T]) turn(l *Lane[T], ran bool, turns int) bool {
	p := l.part
	handled := w.handled()
	p.lock()
	if ran {
		p.finish(w, l)
	} else {
		l.listed = false
	}
	if (turns < turnsPerVisit || !w.pool.othersWait(l)) && !w.pool.crowded() {
		p.claim(w, l)
	} else {
		w.size = 0
	}
	if ran && w.size == 0 {
		p.leave(w)
	}
	if ran {
		l.checkDrained()
	}
	p.unlock(&w.errands)
	w.outgrow()
	if ran && handled > 0 && w.pool.o.Turn != nil {
		w.pool.o.Turn(w.number, l, handled, time.Duration(w.took))
	}
	if w.size > 1 && w.pool.o.BatchSize == 1 {
		w.pool.monitor.wake()
	}
	return w.size > 0
}

// outgrow forgets what lies in the room of that which has grown out of it, and left a copy there.
func (w *worker[T]) outgrow() {
	if cap(w.slots) > len(w.room.slots) {
		clear(w.room.slots[:])
	}
	if cap(w.errands.runs) > len(w.room.runs) {
		clear(w.room.runs[:])
	}
	if cap(w.errands.released) > len(w.room.released) {
		clear(w.room.released[:])
	}
}

// runChunk handles the items of the chunk until it is through or recalled.
func (w *worker[T]) runChunk() (ran bool) {
	handle, t := w.pool.o.Handle, &w.task
	if !w.working {
		w.working = true
		t.base, t.n = -1, 0
		w.began.Store(w.pool.now())
	}
	if w.pool.o.BatchSize == 1 {
		for t.n = 1; w.next(); {
			handle(t)
		}
	} else if started(w.at.Add(1)) == 1 {
		t.base, t.n, t.from = 0, w.size, w.size
		handle(t)
	}
	w.took = w.pool.now() - w.began.Load()
	w.working = false
	return true
}

// next goes on to the next item of the chunk, if nobody has taken it back.
func (w *worker[T]) next() bool {
	i := started(w.at.Add(1)) - 1
	if i >= w.size {
		return false
	}
	w.task.base, w.task.from = i, 1
	return true
}

// handled is the number of items that the handler got from the last chunk.
func (w *worker[T]) handled() int {
	t := &w.task
	if t.base < 0 {
		return 0
	}
	return t.base + t.n
}
