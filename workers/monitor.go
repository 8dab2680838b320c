package workers

import (
	"sync"
	"sync/atomic"
	"time"
)

// tick is how often the monitor looks. A chunk in which nothing was started from one look to the next is recalled, so
// what was claimed together with a record that is stuck waits for two ticks at most.
const tick = time.Millisecond

// monitor recalls chunks that do not move. It runs only while there is a chunk that it could do something about: one
// with more than a single item. Without one it sets no timer, so it neither wakes an idle process nor drives virtual time.
type monitor[T any] struct {
	pool *Pool[T]
	on   atomic.Bool // a timer is set, or a look under way

	mu     sync.Mutex // taken before the pool's lock
	cancel func() bool

	// Of the look under way; there is one at a time.
	crew []*worker[T]
	last []uint64 // by worker number: what the word was at the last look
}

// wake starts the monitor if it rests. Called after the chunk was published: either this sees that the monitor rests, or
// the monitor, which says so before its last look, sees the chunk.
func (m *monitor[T]) wake() {
	if !m.on.Load() && m.on.CompareAndSwap(false, true) {
		m.set()
	}
}

func (m *monitor[T]) set() {
	m.mu.Lock()
	m.cancel = m.pool.alarm(tick, m.look)
	m.mu.Unlock()
}

// stop ends the monitor early, for Wait. It says whether there was a timer to stop.
func (m *monitor[T]) stop() bool {
	m.mu.Lock()
	stopped := m.cancel != nil && m.cancel()
	m.cancel = nil
	m.mu.Unlock()
	if stopped {
		m.rest()
	}
	return stopped
}

// look is one tick.
func (m *monitor[T]) look() {
	if m.check() {
		m.set()
	} else {
		m.rest()
	}
}

// rest says first that the monitor rests and looks then whether it may.
func (m *monitor[T]) rest() {
	m.on.Store(false)
	if m.pool.watched() {
		m.wake()
	}
}

// check says whether there is anything to look after, and recalls the chunks that have not moved since the last time.
func (m *monitor[T]) check() (busy bool) {
	m.crew = m.pool.everyone(m.crew[:0])
	if more := len(m.crew) - len(m.last); more > 0 {
		m.last = append(m.last, make([]uint64, more)...)
	}
	for number, w := range m.crew {
		if w == nil || !w.watched() {
			continue
		}
		at := w.at.Load()
		busy = true
		if m.last[number] == at {
			m.recall(w, at)
		}
		m.last[number] = at
	}
	clear(m.crew)
	return busy
}

// recall ends a chunk that has not moved, if it still has not.
func (m *monitor[T]) recall(w *worker[T], at uint64) {
	l := w.lane.Load()
	if l == nil {
		return
	}
	var e errands[T]
	l.part.mu.Lock()
	if w.lane.Load() == l && w.at.Load() == at {
		w.sight(at, m.pool.now()-int64(tick))
		l.part.recall(w, &e)
		l.chunk = 1
		m.pool.recalled.Add(1)
	}
	l.part.unlock(&e)
}

// watched says whether the worker has a chunk with more than one item to account for.
func (w *worker[T]) watched() bool { return w.at.Load()&multiBit != 0 && w.lane.Load() != nil }

// watched says whether there is such a worker.
func (p *Pool[T]) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.crew {
		if w != nil && w.watched() {
			return true
		}
	}
	return false
}

// everyone appends the workers there are, by number, with nil for a number that nobody has.
func (p *Pool[T]) everyone(crew []*worker[T]) []*worker[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append(crew, p.crew...)
}
