package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessionClock is the engine's own view of whether the group still counts on this member (C3). The client learns that it was
// thrown out only when the network is back; until then another member may own the partitions. So the clock runs from the
// sending of the last coordinator request that was answered, and past its limit every epoch is suspended: nothing starts,
// nothing is committed, handler contexts end. The next answer resumes what is still ours; a loss ends it. An answer that only
// says that the coordinator is elsewhere is none (search).
type sessionClock struct {
	e         *Engine
	suspended atomic.Bool
	fellBack  atomic.Bool // KIP-848 was asked for, and the client joined by the classic protocol

	mu      sync.Mutex
	last    time.Time     // when the last answered request was sent
	limit   time.Duration // the session timeout
	joining time.Time     // when a JoinGroup was sent that has not been answered; zero = none
	heard   time.Time     // when the first answer since the suspension came; zero = none yet
	proven  bool          // an answer since then proves that the group still counts this member
	moved   chan struct{}
	search  search

	refused, refusedLast time.Time // since when the instance id is held by another member, and when that was last said

	fetches sync.Map // broker id -> time of its last answer to a fetch
}

func (c *sessionClock) init(e *Engine) {
	c.e = e
	c.limit = e.cfg.SessionTimeout
	c.moved = make(chan struct{}, 1)
}

const (
	keyFetch                  = int16(kmsg.Fetch)
	keyJoinGroup              = int16(kmsg.JoinGroup)
	keyHeartbeat              = int16(kmsg.Heartbeat)
	keySyncGroup              = int16(kmsg.SyncGroup)
	keyConsumerGroupHeartbeat = int16(kmsg.ConsumerGroupHeartbeat)
	keyFindCoordinator        = int16(kmsg.FindCoordinator)
)

// OnBrokerWrite implements kgo.HookBrokerWrite: a JoinGroup that is out waits for the other members, for up to the rebalance
// timeout, and the group keeps the member meanwhile.
func (c *sessionClock) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		return
	}
	switch key {
	case keyFindCoordinator:
		c.searching()
	case keyJoinGroup:
		c.fellBack.Store(c.e.cfg.Protocol == ProtocolConsumer)
		c.mu.Lock()
		c.joining = time.Now()
		c.mu.Unlock()
		c.wake()
	}
}

// OnBrokerE2E implements kgo.HookBrokerE2E. An answer that carries a member error counts here, too, but the client ends the
// session at once on reading it, and the epochs with it. Commits do not count: heartbeats alone carry the clock.
func (c *sessionClock) OnBrokerE2E(broker kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == keyFetch {
		if e2e.Err() == nil {
			c.fetches.Store(broker.NodeID, time.Now())
		}
		return
	}
	counts := e2e.Err() == nil
	if counts {
		c.mu.Lock()
		counts = c.search.answered(key, c.last)
		c.mu.Unlock()
	}
	switch key {
	case keyJoinGroup, keyHeartbeat, keySyncGroup, keyConsumerGroupHeartbeat:
	default:
		return
	}
	// An answered JoinGroup may have been sent longer ago than a session lasts. It leads to a SyncGroup: only the answer to that
	// is fresh again.
	if key != keyJoinGroup || e2e.Err() != nil {
		c.mu.Lock()
		joined := !c.joining.IsZero()
		c.joining = time.Time{}
		c.mu.Unlock()
		if joined {
			c.wake() // the deadline is nearer now than the one that the loop waits for
		}
	}
	if counts {
		c.goodSince(time.Now().Add(-e2e.DurationE2E()))
	}
}

func (c *sessionClock) goodSince(sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspended.Load() && !c.proven {
		// The hook does not see what an answer says: it may be that the group no longer knows this member. After such an answer
		// the client ends the session, and our epochs with it, before it asks for anything else. So one answer proves nothing,
		// and a second one to a request that was sent after the first does.
		if c.heard.IsZero() {
			c.heard = time.Now()
			return
		}
		if sent.Before(c.heard) {
			return
		}
		c.proven = true
	}
	if sent.After(c.last) {
		c.last = sent
	}
	if c.suspended.Load() && time.Since(c.last) < c.limit {
		c.wake()
	}
}

func (c *sessionClock) wake() {
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// deadline is when the member may have been thrown out; zero = the clock does not run yet.
func (c *sessionClock) deadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.IsZero() {
		return time.Time{}
	}
	limit := c.limit
	if !c.joining.IsZero() {
		limit += c.e.cfg.RebalanceTimeout
	}
	return c.last.Add(limit)
}

func (c *sessionClock) setLimit(d time.Duration) {
	c.mu.Lock()
	c.limit = d
	c.mu.Unlock()
	c.wake()
}

func (c *sessionClock) loop(ctx context.Context) {
	for {
		c.e.noteFallBack()
		wait := c.e.cfg.SessionTimeout
		if d := c.deadline(); !d.IsZero() {
			wait = time.Until(d)
			c.judge(wait <= 0 || c.unproven())
			if wait <= 0 {
				wait = c.e.cfg.SessionTimeout
			}
		}
		timer, stop := after(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
			stop()
			return
		case <-timer:
		case <-c.moved:
		}
		stop()
	}
}

// unproven says that the epochs are suspended, and that nothing proves yet that they may go on.
func (c *sessionClock) unproven() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.suspended.Load() && !c.proven
}

// judge suspends or resumes.
func (c *sessionClock) judge(expired bool) {
	if expired == c.suspended.Load() {
		return
	}
	c.mu.Lock()
	c.heard, c.proven = time.Time{}, false
	c.suspended.Store(expired)
	c.mu.Unlock()
	e := c.e
	eps := e.allEpochs()
	if expired {
		for _, ep := range eps {
			ep.mu.Lock() // as unpauseLane, which looks at suspended: the later of the two wins
			if ep.lane != nil && ep.is(phaseActive) {
				ep.lane.Pause()
			}
			ep.mu.Unlock()
			ep.endCtx(errSuspended)
		}
		e.counts.suspensions.Add(1)
		e.emit(Event{Name: EventSuspended, Partition: -1, Count: int64(len(eps)), Hint: "no coordinator has answered this member for a session timeout; nothing starts and nothing is committed until it does"})
		return
	}
	member, _ := e.cl.GroupMetadata()
	resumed := 0
	for _, ep := range eps {
		if ep.owner.MemberID != member || phase(ep.phase.Load()) > phaseActive {
			continue
		}
		resumed++
		ep.mu.Lock()
		if c := ep.ctx.Load(); c != nil && c.Err() != nil { // an epoch that began meanwhile has a good one
			ep.ctx.Store(newHandlerCtx())
		}
		e.unpauseLane(ep)
		ep.mu.Unlock()
	}
	e.emit(Event{Name: EventResumed, Partition: -1, Count: int64(resumed), Hint: "the coordinator answers again; what it no longer counts as ours was given up"})
}

// fetchAnswered says whether a broker has answered a fetch within d.
func (c *sessionClock) fetchAnswered(broker int32, d time.Duration) bool {
	at, ok := c.fetches.Load(broker)
	return ok && time.Since(at.(time.Time)) < d
}

// unreleased says that the group holds our instance id for another member, and for how long it has said so. A member that
// crashed is forgotten after a session timeout.
func (c *sessionClock) unreleased() (since, limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.refusedLast.IsZero() || now.Sub(c.refusedLast) > c.limit {
		c.refused = now
	}
	c.refusedLast = now
	return now.Sub(c.refused), c.limit
}
