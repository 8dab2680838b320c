package workers

import "time"

// linger is what a partition needs to know to start a batch that is not full in time.
type linger struct {
	ready  int64 // when the oldest item that is ready came
	queued int64 // when the oldest item of the queue came
	set    bool  // the alarm is set
	cancel func() bool
}

// queuedFirst notes that the queue, which was empty, gets items.
func (p *partition[T]) queuedFirst() {
	if p.linger != nil {
		p.linger.queued = p.pool.now()
	}
}

// noteReady keeps the time of the oldest item that is ready. If younger ones are left when it has gone, they count as
// being as old.
func (p *partition[T]) noteReady(s *slot[T]) {
	if p.linger != nil && (p.store.ready.n == 0 || s.came < p.linger.ready) {
		p.linger.ready = s.came
	}
}

// claimBatch fills the chunk with one batch, or leaves it empty if the batch should wait for more. Of each key only one
// item at a time is ready, so no batch has two.
func (p *partition[T]) claimBatch(w *worker[T], l *Lane[T]) {
	st, size := p.store, p.pool.o.BatchSize
	if st.ready.head == nil && l.order != ByKey && st.queue.n > 0 && st.queue.oldest() >= size {
		w.run, w.runFirst = st.queue.cut(size) // a full batch, as it came
		return
	}
	p.stage(l, size)
	if !p.batchDue() || st.ready.n < size && st.queue.n > 0 { // the latter: more to stage, in another turn
		return
	}
	for len(w.slots) < size && st.ready.head != nil {
		w.add(st.ready.pop(), claimed)
	}
}

// stage takes items from the queue until a batch is ready. Only so it is known how many can go together: under ByKey
// those that wait for a key do not count.
func (p *partition[T]) stage(l *Lane[T], size int) {
	st := p.store
	for scanned := 0; st.queue.n > 0 && st.ready.n < size && scanned < size+maxScan; scanned++ {
		s := st.slab.take(st.queue.pop())
		s.came = p.linger.queued
		if l.order == ByKey && p.register(s) != nil {
			s.state = blocked
		} else {
			p.makeReady(s)
		}
	}
}

// batchDue says whether a worker should look at the lane: to stage, or to start a batch that is full or has lingered
// long enough. If only time is missing it sets the alarm.
func (p *partition[T]) batchDue() bool {
	st, o := p.store, &p.pool.o
	if st.queue.n > 0 || st.ready.n >= o.BatchSize {
		return true
	}
	if st.ready.n == 0 {
		return false
	}
	wait := time.Duration(p.linger.ready-p.pool.now()) + o.BatchLinger
	if wait <= 0 {
		return true
	}
	if !p.linger.set {
		p.linger.set = true
		p.linger.cancel = p.pool.alarm(wait, p.lingered)
	}
	return false
}

// lingered is the alarm. One is set for a partition at a time: if the batch it was set for has started in the meantime,
// the next one gets its own now.
func (p *partition[T]) lingered() {
	var e errands[T]
	p.mu.Lock()
	p.linger.set = false
	p.unlock(&e)
}

// stopLinger ends the wait for a batch that nobody will run.
func (p *partition[T]) stopLinger() {
	if p.linger != nil && p.linger.set && p.linger.cancel() {
		p.linger.set = false
	}
}
