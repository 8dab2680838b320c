package engine

import "sync"

// breakers hold one breaker a topic. When most of what settles is dead-lettered, the handler is broken rather than the
// records: the topic's work is held instead of drained into its dead-letter topic.
type breakers struct {
	mu     sync.Mutex
	topics map[string]*breaker
}

type breaker struct {
	open   bool
	base   int64   // settled in epochs that have ended
	dead   int64   // dead-lettered in all
	recent []int64 // how many had settled at each of the last dead letters; a window's worth
}

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

// settledIn counts what has settled in a topic. Handler calls are counted a chunk at a time, so it can be up to a chunk behind.
func (e *Engine) settledIn(topic string) (n int64) {
	for _, ep := range e.allEpochs() {
		if ep.topic == topic {
			n += ep.handled.Load() - ep.failures.Load()
		}
	}
	return n
}

// open says whether the breaker of a topic is open, so that nothing is dead-lettered now.
func (b *breakers) open(topic string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of(topic).open
}

// admit counts a record that is about to be dead-lettered, and judges the topic. False: the breaker is open, or opened with
// this record, which is then held like the rest. It counts records as they are given up, not as their dead letters are
// acknowledged: hundreds may be on their way by then.
func (b *breakers) admit(e *Engine, ep *epoch) bool {
	d := &e.cfg.DeadLetter
	live := e.settledIn(ep.topic)
	b.mu.Lock()
	br := b.of(ep.topic)
	if br.open {
		b.mu.Unlock()
		return false
	}
	br.dead++
	total := br.base + live + br.dead
	br.recent = append(br.recent, total)
	for len(br.recent) > 0 && br.recent[0] <= total-int64(d.BreakerWindow) {
		br.recent = br.recent[1:]
	}
	looked := min(total, int64(d.BreakerWindow))
	n := len(br.recent)
	br.open = total >= int64(d.BreakerMin) && float64(n) > d.BreakerRatio*float64(looked)
	trip := br.open
	b.mu.Unlock()
	if !trip {
		return true
	}
	e.emit(Event{Name: EventBreakerOpen, Topic: ep.topic, Partition: -1, Count: int64(n),
		Hint: "too large a share of what settled was dead-lettered; the topic's work is held until Engine.ResetBreaker or a restart"})
	e.health.set("breaker "+ep.topic, errBreaker)
	for _, other := range e.allEpochs() {
		if other.topic == ep.topic {
			e.stop(other, stopBreaker, errBreaker)
		}
	}
	return false
}

// ended keeps what had settled in an epoch that has ended.
func (b *breakers) ended(ep *epoch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(ep.topic).base += ep.handled.Load() - ep.failures.Load()
}

// ResetBreaker closes the breaker of a topic: its work goes on, and the ratio is judged anew. It says whether it was open.
func (e *Engine) ResetBreaker(topic string) bool {
	b := &e.breakers
	b.mu.Lock()
	br := b.of(topic)
	was := br.open
	br.open, br.recent, br.dead, br.base = false, nil, 0, -e.settledIn(topic)
	b.mu.Unlock()
	if !was {
		return false
	}
	e.health.set("breaker "+topic, nil)
	e.emit(Event{Name: EventBreakerReset, Topic: topic, Partition: -1})
	for _, ep := range e.allEpochs() {
		if ep.topic != topic {
			continue
		}
		ep.mu.Lock()
		var waiting []*retryState
		for st := range ep.held {
			if st.stage == stageDeadLetter {
				waiting = append(waiting, st)
			}
		}
		ep.mu.Unlock()
		e.resume(ep, stopBreaker)
		for _, st := range waiting {
			e.writeDeadLetter(st)
		}
	}
	return true
}
