package engine

import (
	"sync"
	"sync/atomic"
)

// breakers hold one breaker a topic. When most of what settles is dead-lettered, the handler is broken rather than the
// records: the topic's work is held instead of drained into its dead-letter topic.
type breakers struct {
	mu     sync.Mutex // comes before the engine's and the epochs'
	topics map[string]*breaker
}

// breaker is also where a topic's successes are counted, over all its epochs. The other fields are under breakers.mu.
type breaker struct {
	handled atomic.Int64 // a chunk at a time, so it can be up to a chunk behind

	open   bool
	since  int64   // what handled was when the ratio began to be judged
	dead   int64   // given up since then
	recent []int64 // how many had settled at each of the last dead letters; a window's worth
}

// of returns the breaker of a topic. b.mu is held.
func (b *breakers) of(topic string) *breaker {
	if b.topics == nil {
		b.topics = map[string]*breaker{}
	}
	br := b.topics[topic]
	if br == nil {
		br = &breaker{}
		b.topics[topic] = br
	}
	return br
}

func (b *breakers) topic(name string) *breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(name)
}

// handled is how many records handlers have settled, in all topics.
func (b *breakers) handled() (n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, br := range b.topics {
		n += br.handled.Load()
	}
	return n
}

// open says whether the breaker of a topic is open, so that nothing is dead-lettered now.
func (b *breakers) open(topic string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(topic).open
}

// holdIfOpen stops an epoch that begins while its topic's breaker is open.
func (b *breakers) holdIfOpen(e *Engine, ep *epoch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of(ep.topic).open {
		e.setStop(ep, stopBreaker, errBreaker)
		e.wakeFlow()
	}
}

// admit counts a record that is about to be dead-lettered, and judges the topic. False: the breaker is open, or opened with
// this record, which is then held like the rest. It counts records as they are given up, not as their dead letters are
// acknowledged: hundreds may be on their way by then.
func (b *breakers) admit(e *Engine, ep *epoch) bool {
	d := &e.cfg.DeadLetter
	b.mu.Lock()
	br := b.of(ep.topic)
	if br.open {
		b.mu.Unlock()
		return false
	}
	br.dead++
	total := br.handled.Load() - br.since + br.dead
	br.recent = append(br.recent, total)
	for len(br.recent) > 0 && br.recent[0] <= total-int64(d.BreakerWindow) {
		br.recent = br.recent[1:]
	}
	looked := min(total, int64(d.BreakerWindow))
	n := len(br.recent)
	br.open = total > int64(d.BreakerMin) && float64(n) > d.BreakerRatio*float64(looked)
	trip := br.open
	if trip { // under the lock, so that a reset comes before or after all of it
		e.health.set("breaker "+ep.topic, errBreaker)
		for _, other := range e.allEpochs() {
			if other.topic == ep.topic {
				e.setStop(other, stopBreaker, errBreaker)
			}
		}
	}
	b.mu.Unlock()
	if trip {
		e.emit(Event{Name: EventBreakerOpen, Topic: ep.topic, Partition: -1, Count: int64(n),
			Hint: "too large a share of what settled was dead-lettered; the topic's work is held until Engine.ResetBreaker or a restart"})
		e.flowNow()
	}
	return !trip
}

// reset closes the breaker of a topic. It says whether it was open, and what waits for a dead letter.
func (b *breakers) reset(e *Engine, topic string) (waiting []*retryState, was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	br := b.of(topic)
	was = br.open
	br.open, br.recent, br.dead, br.since = false, nil, 0, br.handled.Load()
	if !was {
		return nil, false
	}
	e.health.set("breaker "+topic, nil)
	for _, ep := range e.allEpochs() {
		if ep.topic == topic {
			e.resume(ep, stopBreaker)
			waiting = append(waiting, ep.parkedAt(stageDeadLetter)...)
		}
	}
	return waiting, true
}

// ResetBreaker closes the breaker of a topic: its work goes on, and the ratio is judged anew. It says whether it was open.
func (e *Engine) ResetBreaker(topic string) bool {
	waiting, was := e.breakers.reset(e, topic)
	if !was {
		return false
	}
	e.emit(Event{Name: EventBreakerReset, Topic: topic, Partition: -1})
	for _, st := range waiting {
		go e.writeDeadLetter(st) // it may wait for room in the producer's buffer
	}
	return true
}
