package workers

import (
	"math/bits"
	"sync/atomic"
)

// ring lists the lanes that have something to run, in the order in which they get a worker. A lane that still has work
// after its turn goes to the end, so a deep lane delays a shallow one by a turn or two and not by its depth.
type ring[T any] struct {
	head, tail *Lane[T]
	n          atomic.Int32 // lanes in it; changed under the pool's lock only
}

func (r *ring[T]) push(l *Lane[T]) {
	r.n.Add(1)
	if r.tail == nil {
		r.head = l
	} else {
		r.tail.after = l
	}
	r.tail = l
}

func (r *ring[T]) pop() *Lane[T] {
	r.n.Add(-1)
	l := r.head
	r.head, l.after = l.after, nil
	if r.head == nil {
		r.tail = nil
	}
	return l
}

// list puts a lane into the ring and returns the worker to start for it, if there is one. Called under the lock of the
// lane's partition.
func (p *Pool[T]) list(l *Lane[T]) *worker[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ring.push(l)
	return p.hire()
}

// othersWait says whether the ring has a lane other than this one. Called under the lock of the lane's partition. (A worker that
// has taken the lane out and not looked yet makes it miss one, for as long as that takes.)
func (p *Pool[T]) othersWait(l *Lane[T]) bool {
	n := p.ring.n.Load()
	if l.listed {
		n--
	}
	return n > 0
}

// hire returns a worker to start if there is a lane for it and room under the limit. Only one is on its way at a time:
// when it has arrived and sees more to do, it hires the next. So work for one wakes one, and work for many wakes many.
func (p *Pool[T]) hire() *worker[T] {
	if p.ring.head == nil || p.waking || p.hired.Load() >= p.total.Load() {
		return nil
	}
	w := p.idle.Get().(*worker[T])
	w.number = p.numbers.take()
	w.arriving = true
	if w.number == len(p.crew) {
		p.crew = append(p.crew, nil)
	}
	p.crew[w.number] = w
	p.waking = true
	p.peak = max(p.peak, int(p.hired.Add(1)))
	return w
}

// pick gives a worker its next lane, or nil: then the worker has left the pool and must end. The worker that it returns
// besides is to be started.
func (p *Pool[T]) pick(w *worker[T]) (l *Lane[T], next *worker[T]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.arriving {
		w.arriving, p.waking = false, false
	}
	if p.ring.head == nil || p.crowded() {
		if p.o.Left != nil {
			p.o.Left(w.number)
		}
		p.crew[w.number] = nil
		p.numbers.put(w.number)
		if p.hired.Add(-1) == 0 {
			p.quiet.Broadcast()
		}
		return nil, nil
	}
	return p.ring.pop(), p.hire()
}

// numbers gives each worker the lowest number that is free, so that what is kept per worker stays dense and warm.
type numbers struct {
	taken []uint64 // a bit for each number
}

func (n *numbers) take() int {
	for i, word := range n.taken {
		if free := bits.TrailingZeros64(^word); free < 64 {
			n.taken[i] |= 1 << free
			return i*64 + free
		}
	}
	n.taken = append(n.taken, 1)
	return (len(n.taken) - 1) * 64
}

func (n *numbers) put(number int) { n.taken[number/64] &^= 1 << (number % 64) }
