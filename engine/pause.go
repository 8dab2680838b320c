package engine

import (
	"strings"
	"time"
)

// pauseToldAfter is how long a pause must last before it is an event, where all that it takes is that handlers catch up. Shorter ones
// come and go many times a second where handlers are slow; the status, the metrics and the log at debug level show them.
const pauseToldAfter = 30 * time.Second

// healedAfter is how long a partition must go without another fetch error before it counts as well, where it has no records.
const healedAfter = 10 * time.Second

// fetchBackoffMax bounds the time between two tries of a partition that the broker refuses, and so how long it stays ill once that
// has been mended.
const fetchBackoffMax = 10 * time.Second

// stopsFlow are the reasons that go away as handlers catch up.
const stopsFlow = stopRecords | stopBytes | stopTotal

// pauseNote is what is known, and what was said, of a partition's pauses. It is under its epoch's lock.
type pauseNote struct {
	at        time.Time     // when the present pause began; zero = none
	from      time.Time     // when that did which was announced; a retry of a fetch error does not end it
	spent     time.Duration // in pauses that are over
	announced bool          // by an event; its end is to be one, too
	told      stopReason    // the reasons that were named
}

// lasted is how long fetching has been paused in all.
func (n *pauseNote) lasted(now time.Time) time.Duration {
	if n.at.IsZero() {
		return n.spent
	}
	return n.spent + now.Sub(n.at)
}

// notePause follows a partition's pauses, and returns the event where there is one: a pause for a reason that needs somebody, one that
// lasts, and the end of either. ep.mu is held.
func (ep *epoch) notePause(now time.Time) (ev Event, ok bool) {
	if ep.stops == 0 {
		return ep.noteResumed(now)
	}
	n := &ep.trouble().pause
	if n.at.IsZero() {
		n.at = now
	}
	if n.from.IsZero() {
		n.from = now
	}
	n.told &= ep.stops | stopFetchError // what has gone and comes again is news; a fetch error comes again at each retry
	long := !n.announced && now.Sub(n.from) >= pauseToldAfter
	if ep.stops&^stopsFlow&^n.told == 0 && !long {
		return ev, false
	}
	n.told, n.announced = n.told|ep.stops, true
	ev = ep.pauseEvent(EventPaused, now)
	ev.Reason, ev.Err = strings.Join(ep.stops.strings(), ","), ep.troubles.stopErr
	ev.Hint = ep.stops.hint()
	ev.minor = ep.stops&^stopsFlow == 0
	return ev, true
}

// noteResumed is notePause where nothing speaks against fetching any more.
func (ep *epoch) noteResumed(now time.Time) (ev Event, ok bool) {
	t := ep.troubles
	if t == nil {
		return ev, false
	}
	n := &t.pause
	if !n.at.IsZero() {
		n.spent += now.Sub(n.at)
		n.at = time.Time{}
	}
	if !n.announced {
		n.from = time.Time{}
		return ev, false
	}
	if n.told&stopFetchError != 0 && ep.heard.Load() <= t.retryAt.UnixNano() && now.Sub(t.retryAt) < healedAfter {
		return ev, false // it is only tried again
	}
	ev = ep.pauseEvent(EventUnpaused, now)
	t.backoff = 0
	*n = pauseNote{spent: n.spent}
	return ev, true
}

// pauseEvent is an event about the pause that began at n.from. ep.mu is held.
func (ep *epoch) pauseEvent(name EventName, now time.Time) Event {
	ev := Event{Name: name, Topic: ep.topic, Partition: ep.partition, Offset: -1, Took: now.Sub(ep.troubles.pause.from)}
	if ep.tr != nil {
		_, ev.Offset = ep.tr.Next()
	}
	return ev
}

var stopHints = []struct {
	bits stopReason
	hint string
}{
	{stopStore, "the dedupe store can't write, or not read for this partition: see the event before this one"},
	{stopHold, "a record holds the partition: nothing of it starts until Engine.Unhold or a restart"},
	{stopBreaker, "the topic's breaker is open: mend the handler, then Engine.ResetBreaker"},
	{stopDataLoss, "retention deleted records before they were read: restart with OnDataLoss earliest or latest to go on"},
	{stopTopicGone, "the topic was deleted"},
	{stopKeys, "DeadLetter.AfterKeyMax keys with dead letters are remembered; release some (Engine.ReleaseKey), or restart to forget them"},
	{stopDeadLetter, "a dead letter can't be written: check the dead-letter topic, its ACLs and its size limit"},
	{stopOutputs, "outputs can't be written: check the topic that they go to"},
	{stopFetchError, "the broker refuses the partition; tried again with backoff"},
	{stopNotAssigned, "the brokers do not name the ends of its log, so that it can't begin; it does as soon as they do"},
	{stopSpan, "a stuck record holds the frontier, and as many deliveries as can be tracked are behind it"},
	{stopRecords, "PartitionRecords are held: its handlers are slower than the topic, or some are stuck; more Workers, or look at the stuck events"},
	{stopBytes, "its records take PartitionBytes: its handlers are slower than the topic, or some are stuck; more Workers, or look at the stuck events"},
	{stopTotal, "all records together take MaxBytes: handlers are slower than the topics; more Workers, or more memory"},
}

// hint says what to do about the reason that matters most.
func (s stopReason) hint() string {
	for _, h := range stopHints {
		if s&h.bits != 0 {
			return h.hint
		}
	}
	return ""
}

// tell emits what flow found worth telling. No lock may be held that OnEvent could want.
func (e *Engine) tell() {
	f := &e.flows
	f.tellMu.Lock()
	defer f.tellMu.Unlock()
	e.mu.Lock()
	evs := f.untold
	f.untold = nil
	e.mu.Unlock()
	for _, ev := range evs {
		e.emit(ev)
	}
}
