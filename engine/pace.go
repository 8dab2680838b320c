package engine

import "time"

// pacer gives sessions that end as they begin, and bring nothing, a pause from the fifth on. In KIP-848 the client gives them none where it
// can't learn at which offsets a session begins, and the coordinator refuses connections: it would try again as fast as a processor can.
// In the classic protocol it does, and there a pause could last for ever: one member's rebalances come at the heels of another's, and each
// waits for the other.
type pacer struct {
	empty  int       // sessions in a row, each at the heels of the one before, that brought nothing
	after  time.Time // when the last one began, its own pause over
	paused int       // sessions so far that waited
}

const (
	atTheHeels   = 100 * time.Millisecond
	emptyFree    = 5
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// pause is how long a session that begins now is to wait. brings says that it assigns something.
func (p *pacer) pause(brings bool, now time.Time) (wait time.Duration) {
	if brings || now.Sub(p.after) > atTheHeels {
		p.empty = 0
	} else if p.empty++; p.empty >= emptyFree {
		wait = min(firstPause<<min(p.empty-emptyFree, 10), longestPause)
		p.paused++
	}
	p.after = now.Add(wait)
	return wait
}

// pace keeps the client from going through sessions without a pause. The session waits for the callback that this is part of, and so may polls;
// heartbeats do not.
func (e *Engine) pace(brings bool) {
	if e.protocol() != ProtocolConsumer {
		return
	}
	e.sessions.mu.Lock()
	wait := e.sessions.pacer.pause(brings, time.Now())
	e.sessions.mu.Unlock()
	if wait == 0 {
		return
	}
	timer, stop := after(wait)
	defer stop()
	select {
	case <-timer:
		return
	case <-e.stopC: // the leave waits for this session, and the drain may last: less of a pause, but one
	}
	brief, stop := after(min(wait, firstPause))
	defer stop()
	select {
	case <-timer:
	case <-brief:
	}
}
