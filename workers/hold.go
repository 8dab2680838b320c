package workers

// Ticket stands for an item that is held. It is good for one Resume or one Finish. The zero Ticket is stale.
type Ticket struct {
	lane   any // *Lane[T]; the ticket itself need not know T
	number uint64
}

type heldItem[T any] struct {
	slot *slot[T]
	lane *Lane[T]
}

// verdict is what was said about a held item whose handler has not returned yet.
type verdict uint8

const (
	pending verdict = iota
	resume
	finish
)

// Resume lets a held item run again: its retry is due. It runs before anything that waits for it. If its handler has not
// returned yet, it runs again after that. An item of a closed lane cannot run any more and is finished instead. Resume
// returns false, and does nothing, if the ticket is stale.
func (p *Pool[T]) Resume(t Ticket) bool { return p.decide(t, resume) }

// Finish completes a held item: its key is free and it is released, at once or when its handler returns. It returns
// false, and does nothing, if the ticket is stale.
func (p *Pool[T]) Finish(t Ticket) bool { return p.decide(t, finish) }

func (p *Pool[T]) decide(t Ticket, v verdict) bool {
	l, ok := t.lane.(*Lane[T])
	if !ok {
		return false
	}
	part := l.part
	var e errands[T]
	part.mu.Lock()
	h, ok := part.held[t.number]
	if ok {
		delete(part.held, t.number)
		if len(part.held) == 0 {
			part.held = nil // a map keeps the size of its best days
		}
		if h.slot.holding {
			h.slot.verdict = v
		} else {
			l.held--
			part.active--
			part.conclude(l, h.slot, v, &e)
			l.checkDrained()
		}
	}
	part.unlock(&e)
	return ok
}

// returned accounts for an item whose handler has returned, and may have marked it.
func (p *partition[T]) returned(l *Lane[T], s *slot[T], marked bool, e *errands[T]) {
	l.running--
	p.active--
	switch {
	case !s.holding:
		if marked {
			e.tell(s.number, 1)
		}
		p.complete(l, s, e)
	case s.verdict == pending:
		s.holding, s.state = false, parked
		l.held++
		p.active++
	default:
		s.holding = false
		p.conclude(l, s, s.verdict, e)
	}
}

// conclude does what was said about a held item. It is counted neither as running nor as held any more.
func (p *partition[T]) conclude(l *Lane[T], s *slot[T], v verdict, e *errands[T]) {
	if v == finish || l.closed {
		p.complete(l, s, e)
		return
	}
	s.resumed = true
	if p.pool.o.BatchSize > 1 {
		s.came = p.pool.now()
	}
	if l.order == ByPartition { // nothing that came later may pass
		p.makeNext(s)
	} else {
		p.makeReady(s)
	}
}
