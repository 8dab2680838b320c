package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/tracker"
)

var errBreaker = errors.New("the breaker is open: too large a share of the topic's records was dead-lettered")

// watchTick is how often the watchdog looks.
const watchTick = time.Second

// stuckRecord identifies a running record.
type stuckRecord struct {
	ep  *epoch
	seq tracker.Seq
}

// watchdog remembers what it has reported, so that a state is one event and not one a tick (C9).
type watchdog struct {
	stuck   map[stuckRecord]int64
	stalled map[*epoch]bool
	tails   map[*epoch]*tail // of those that are stalled: what seems to be compacted away
	found   chan finding
	seen    map[*epoch]progress
	unbegun map[*epoch]time.Time // since when they are seen not to begin; zero = it was said
	stale   bool                 // the log ends are
	alone   time.Time            // since when nothing is assigned here
	losses  int64                // when something was last assigned
	outside time.Time            // since when the member has no session
	counted time.Time            // when sessions were last counted, and how many had begun and waited by then
	begun   int
	paused  int
	sizing  sizing
}

// progress is what must change for a partition not to be stalled.
type progress struct {
	frontier, handled, next int64
	at                      time.Time
}

func (e *Engine) watchLoop(ctx context.Context) {
	w := watchdog{stuck: map[stuckRecord]int64{}, stalled: map[*epoch]bool{}, tails: map[*epoch]*tail{}, found: make(chan finding), seen: map[*epoch]progress{}, unbegun: map[*epoch]time.Time{}}
	tick := time.NewTicker(watchTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		eps := e.allEpochs()
		w.lookForStuck(e)
		w.lookForStalled(ctx, e, eps, now)
		w.lookForUnbegun(e, eps, now)
		w.lookForFailingCommits(e, now)
		w.lookForIdle(e, eps, now)
		w.lookForOutside(e, now)
		w.lookForRestless(e, now)
		e.lookAtSession(eps, now)
		e.lookAtStarts(eps, now)
		w.lookForStaleEnds(e, eps, now)
		w.sizing.look(e, now)
		e.buryZombies()
	}
}

func (w *watchdog) lookForStuck(e *Engine) {
	running := map[stuckRecord]bool{}
	var fresh []Event
	e.pool.EachRunning(func(l *lane, in look, since time.Duration) { // under the lane's lock: only look
		if since < e.cfg.StuckAfter {
			return
		}
		ep, it := l.Owner().(*epoch), itemOf(in)
		r := stuckRecord{ep, it.seq}
		running[r] = true
		if _, known := w.stuck[r]; known {
			return
		}
		w.stuck[r] = it.rec.Offset
		fresh = append(fresh, Event{Name: EventStuck, Topic: ep.topic, Partition: ep.partition, Offset: it.rec.Offset, Took: since, Count: int64(it.st.attempt()),
			Hint: "the handler has not returned; its offset is not committed, its key waits, other keys go on"})
	})
	for _, ev := range fresh {
		e.health.set(stuckSubject(ev.Topic, ev.Partition, ev.Offset), errors.New("the handler has not returned"))
		e.emit(ev)
	}
	for r, offset := range w.stuck {
		if !running[r] {
			delete(w.stuck, r)
			e.emit(Event{Name: EventUnstuck, Topic: r.ep.topic, Partition: r.ep.partition, Offset: offset})
			e.health.set(stuckSubject(r.ep.topic, r.ep.partition, offset), nil)
		}
	}
}

func stuckSubject(topic string, partition int32, offset int64) string {
	return fmt.Sprintf("stuck %s[%d]@%d", topic, partition, offset)
}

func stalledSubject(ep *epoch) string { return fmt.Sprintf("stalled %s[%d]", ep.topic, ep.partition) }

func (w *watchdog) lookForStalled(ctx context.Context, e *Engine, eps []*epoch, now time.Time) {
	for _, ep := range eps {
		if !ep.is(phaseActive) {
			continue
		}
		frontier := ep.frontier()
		_, next := ep.tr.Next()
		p := progress{frontier: frontier, handled: ep.handled.Load() + ep.failures.Load(), next: next, at: now}
		backlog := max(ep.hwm.Load(), ep.lso.Load()) - frontier
		if backlog <= 0 {
			w.forget(e, ep)
			continue
		}
		was, known := w.seen[ep]
		if !known || was.frontier != p.frontier || was.handled != p.handled || was.next != p.next {
			w.forget(e, ep)
			w.seen[ep] = p
			continue
		}
		if now.Sub(was.at) < e.cfg.StalledAfter || w.stalled[ep] {
			continue
		}
		w.stalled[ep] = true
		ev := Event{Name: EventStalled, Topic: ep.topic, Partition: ep.partition, Offset: frontier, Count: backlog, Took: now.Sub(was.at)}
		ev.Name, ev.Hint = e.whyStalled(ep, next)
		if ev.Hint == compactedHint { // so it seems
			w.tails[ep] = &tail{stalled: ev, next: next}
			continue
		}
		e.health.set(stalledSubject(ep), errors.New(ev.Hint))
		e.emit(ev)
	}
	w.lookAtTails(ctx, e, now)
	for ep := range w.seen {
		if !ep.is(phaseActive) {
			w.forget(e, ep)
		}
	}
	if len(w.seen) == 0 { // a map keeps the size of its worst days
		w.seen = map[*epoch]progress{}
	}
}

// forget ends the watch of a partition that moves, or has nothing to do.
func (w *watchdog) forget(e *Engine, ep *epoch) {
	delete(w.seen, ep)
	if w.stalled[ep] {
		delete(w.stalled, ep)
		delete(w.tails, ep)
		e.health.set(stalledSubject(ep), nil)
	}
}

var errUnbegun = errors.New("assigned, and it does not begin: the group's coordinator does not say where the group is in it, or nobody says where its log begins and ends")

// lookForUnbegun finds partitions that were assigned and do not begin, where nothing else tells it: the client asks for the group's offsets
// again and again by itself, and keeps the answers to itself.
func (w *watchdog) lookForUnbegun(e *Engine, eps []*epoch, now time.Time) {
	waits := func(ep *epoch) bool { return ep.is(phaseStarting) && !ep.stoppedFor(^stopReason(0)) }
	for _, ep := range eps {
		if !waits(ep) {
			continue
		}
		since, known := w.unbegun[ep]
		switch {
		case !known:
			w.unbegun[ep] = now
		case since.IsZero() || now.Sub(since) < e.cfg.StalledAfter:
		default:
			w.unbegun[ep] = time.Time{}
			e.health.set(unbegunSubject(ep), errUnbegun)
			e.emit(Event{Name: EventStalled, Topic: ep.topic, Partition: ep.partition, Offset: -1, Took: now.Sub(since), Hint: errUnbegun.Error()})
		}
	}
	for ep, since := range w.unbegun {
		if !waits(ep) {
			delete(w.unbegun, ep)
			if since.IsZero() {
				e.health.set(unbegunSubject(ep), nil)
			}
		}
	}
	if len(w.unbegun) == 0 {
		w.unbegun = map[*epoch]time.Time{}
	}
}

func unbegunSubject(ep *epoch) string { return fmt.Sprintf("start %s[%d]", ep.topic, ep.partition) }

// whyStalled tells apart what makes a partition stand still with backlog.
func (e *Engine) whyStalled(ep *epoch, next int64) (EventName, string) {
	waiting, running, held := ep.lane.Len()
	ep.mu.Lock()
	stops := ep.stops
	ep.mu.Unlock()
	lso, hwm := ep.lso.Load(), ep.hwm.Load()
	switch {
	case running > 0:
		return EventStalled, "none of its running handlers has returned: look at what they wait for (see the stuck events)"
	case held > 0:
		return EventStalled, "its records wait for a retry, an acknowledgement or an operator"
	case stops&^stopsBriefly != 0:
		return EventStalled, fmt.Sprintf("it is paused: %v", (stops &^ stopsBriefly).strings())
	case waiting > 0: // that it is full, and so paused, only follows
		return EventStalled, "records wait, and none runs: every worker is busy with other partitions; raise Workers, or look at the stuck events"
	case stops != 0:
		return EventStalled, fmt.Sprintf("it is paused: %v", stops.strings())
	case lso >= 0 && lso < hwm && next >= lso:
		return EventOpenTransaction, "a transaction in the topic is neither committed nor aborted; nothing behind it is delivered (read committed) until its producer or the broker ends it"
	}
	if leader, _, err := e.cl.PartitionLeader(ep.topic, ep.partition); err == nil && e.clock.fetchAnswered(leader, e.cfg.StalledAfter/2) {
		return EventStalled, compactedHint
	}
	return EventStalled, "fetches bring nothing although the log goes on: look at the broker and at the network"
}

// compactedHint is for the one exception of C2: nothing is wrong with such a partition.
const compactedHint = "the broker answers fetches, and there is no record up to the end of the log: compaction removed its tail. The lag stays until the next record comes"

// idleAfter is how long a member must be without partitions before that is said: in a rebalance it may be so for a moment.
const idleAfter = 15 * time.Second

func (w *watchdog) lookForIdle(e *Engine, eps []*epoch, now time.Time) {
	switch {
	case len(eps) > 0 || e.clock.deadline().IsZero():
		w.alone, w.losses = time.Time{}, e.counts.lossesSoFar()
	case w.alone.IsZero():
		w.alone = now
	case now.Sub(w.alone) >= idleAfter:
		if e.counts.lossesSoFar() > w.losses {
			e.once("idle after a loss", Event{Name: EventNoPartitions, Partition: -1,
				Hint: "nothing has been assigned here since its partitions were lost or their topic was deleted; the events before this one say why"})
			return
		}
		e.once("idle", Event{Name: EventNoPartitions, Partition: -1,
			Hint: "the group has more members than partitions, so this one has nothing to do. It stays healthy and takes over when another ends. Gapless works on many records of a partition at once: fewer members with more Workers do the same"})
	}
}

// lossesSoFar counts what takes partitions away without a rebalance.
func (c *counters) lossesSoFar() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events[EventLost] + c.events[EventTopicDeleted]
}

// buryZombies forgets ended epochs whose last handler has returned.
func (e *Engine) buryZombies() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ep := range e.zombies {
		if !ep.running() {
			delete(e.zombies, ep)
		}
	}
}
