package engine

import (
	"context"
	"errors"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/gaplesshq/gapless/tracker"
	"github.com/gaplesshq/gapless/workers"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Why a handler's context ended early.
var (
	errDrained   = errors.New("gapless: the drain deadline has passed")
	errLost      = errors.New("gapless: the partition was lost to another member")
	errSuspended = errors.New("gapless: the group has not answered for a session timeout; another member may own the partition")
	errRenewed   = errors.New("gapless: the partition's log was truncated or its position reset")
)

// onAssigned begins an epoch for every partition. The client fetches offsets next (onOffsetsFetched, resolveStart), and
// records only after that.
func (e *Engine) onAssigned(_ context.Context, cl *kgo.Client, assigned map[string][]int32) {
	e.pace(len(assigned) > 0)
	e.sessions.begin()
	// The client keeps a pause across rebalances; ours begins anew with the epoch.
	cl.ResumeFetchPartitions(assigned)
	member, generation := cl.GroupMetadata()
	for topic, partitions := range assigned {
		for _, p := range partitions {
			e.assign(tp{topic, p}, Owner{MemberID: member, Generation: generation})
		}
	}
	e.lookForAdrift(member)
	e.unowned.letIn(member)
	e.noteAssignment()
}

// lookForAdrift finds partitions that the client still has from before the group threw it out. After a commit that was refused
// it rejoins under another member id, and a cooperative client then neither revokes nor assigns what it is given again: it
// would read on at its own position, though another member may have had the partition in between.
func (e *Engine) lookForAdrift(member string) {
	var old []*epoch
	for _, ep := range e.allEpochs() {
		if ep.owner.MemberID != member {
			old = append(old, ep)
		}
	}
	e.lose(old, "the group knows this process under another member id now")
	e.mu.Lock()
	for _, ep := range old {
		e.adrift[ep.tp] = time.Time{}
	}
	for p := range e.adrift {
		e.adrift[p] = time.Time{} // due: the client has been through its rejoin
	}
	n := len(e.adrift)
	e.mu.Unlock()
	if n > 0 {
		e.checkTopics()
	}
}

// resubscribe makes the client drop the topics of partitions that are adrift and ask the group for them anew.
func (e *Engine) resubscribe() {
	topics := map[string]bool{}
	e.mu.Lock()
	for p, due := range e.adrift {
		if !due.After(time.Now()) {
			topics[p.topic] = true
			delete(e.adrift, p)
		}
	}
	stopping := e.stopping
	e.mu.Unlock()
	if stopping {
		return
	}
	for topic := range topics {
		var eps []*epoch
		for _, ep := range e.allEpochs() {
			if ep.topic == topic {
				eps = append(eps, ep)
			}
		}
		e.lose(eps, "the topic is asked for anew, after the group had thrown this member out")
		e.consumeAnew(topic)
	}
}

// consumeAnew makes the client forget where it was in a topic, and subscribe to it again.
func (e *Engine) consumeAnew(topic string) {
	e.cl.PurgeTopicsFromConsuming(topic)
	if e.cfg.TopicPattern == "" {
		e.cl.AddConsumeTopics(topic)
		return
	}
	e.cl.ForceMetadataRefresh() // a pattern finds it again with the next metadata, which would be minutes from now
}

func (e *Engine) assign(p tp, owner Owner) *epoch {
	ep := &epoch{tp: p, committedAt: -1, commitEpoch: -1, acked: -1, said: nothingSaid, settled: e.breakers.topic(p.topic)}
	ep.single, ep.batch = e.handlerFor(p.topic)
	if e.cfg.Dedupe.Key != nil {
		ep.keyed = true
		ep.business = &business{scope: e.marks.store.Scope(e.cfg.scopeOf(p.topic))}
		ep.business.starting, ep.business.noStarts = context.WithCancel(context.Background())
	}
	if e.cfg.DeadLetter.AfterKey != KeyContinues {
		ep.keys = &keyMemory{}
	}
	ep.hwm.Store(-1)
	ep.lso.Store(-1)
	ep.logStart.Store(-1)
	e.mu.Lock()
	e.sequence++
	owner.Sequence = e.sequence
	ep.owner = owner
	delete(e.adrift, p)
	if e.stopping {
		e.mu.Unlock()
		return ep // what the group still gives a stopping member is left to the next owner
	}
	old := e.epochs[p]
	if old != nil && old.owner.MemberID == owner.MemberID && phase(old.phase.Load()) < phaseDraining {
		// A client whose topic was purged and added again may assign it twice, without a revoke. Whether it then goes on where it
		// was or goes back, the epoch stands where it was: a new one would wait for records that the old one was given.
		old.mu.Lock()
		old.isPaused = false
		old.mu.Unlock()
		e.mu.Unlock()
		e.touchAll()
		return old
	}
	e.epochs[p] = ep
	e.mu.Unlock()
	e.marks.own(ep)
	if old != nil { // a revoke or a loss should have come first. Nothing of it may count any more.
		e.end(old, errLost)
	}
	return ep
}

func (e *Engine) handlerFor(topic string) (Handler, BatchHandler) {
	if e.cfg.batching() {
		if h := e.cfg.BatchHandlers[topic]; h != nil {
			return nil, h
		}
		return nil, e.cfg.BatchHandler
	}
	if h := e.cfg.Handlers[topic]; h != nil {
		return h, nil
	}
	return e.cfg.Handler, nil
}

// activate opens the lane of an epoch whose start offset is known.
func (e *Engine) activate(ep *epoch, offset int64, leaderEpoch int32) {
	id := e.laneID(ep.tp)
	order := e.laneOrder()
	if ep.suspected {
		order = workers.ByPartition
	}
	lane := e.pool.Open(id, order, ep, e.cfg.PartitionRecords, e.cfg.PartitionRecords/2)
	lane.Pause()
	ep.mu.Lock()
	ep.tr = tracker.New(offset, leaderEpoch, tracker.Options{MaxSpan: maxSpan})
	ep.lane = lane
	ep.mu.Unlock()
	if !ep.advance(phaseActive) { // a stop came in between
		lane.Close()
		return
	}
	e.mu.Lock()
	delete(e.anew, ep.tp)
	e.mu.Unlock()
	ep.asked.Store(time.Now().UnixNano()) // for where it begins
	e.touchAll()
	e.breakers.holdIfOpen(e, ep)
	if err := e.storeErr(); err != nil {
		e.stop(ep, stopStore, err)
		if e.storeErr() == nil { // it came back in between, and may not have found this
			e.resume(ep, stopStore)
		}
	}
	e.touchRow(ep)
	ep.mu.Lock()
	e.unpauseLane(ep)
	ep.mu.Unlock()
	e.emit(Event{Name: EventAssigned, Topic: ep.topic, Partition: ep.partition, Offset: offset, Count: ep.earlier(), Owner: ep.owner})
}

func (e *Engine) laneOrder() workers.Order {
	switch e.cfg.Order {
	case OrderUnordered:
		return workers.Unordered
	case OrderPartition:
		return workers.ByPartition
	}
	return workers.ByKey
}

// take removes epochs from the assignment and returns them.
func (e *Engine) take(m map[string][]int32) (eps []*epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for topic, partitions := range m {
		for _, p := range partitions {
			delete(e.adrift, tp{topic, p})
			if ep := e.epochs[tp{topic, p}]; ep != nil {
				eps = append(eps, ep)
			}
		}
	}
	return eps
}

// onRevoked drains, commits and hands over. It waits for nothing without a deadline, and the drain deadline is below the
// group's rebalance timeout (C8). The client calls it with an empty map at every session's end.
func (e *Engine) onRevoked(ctx context.Context, cl *kgo.Client, revoked map[string][]int32) {
	eps := e.take(revoked)
	if len(eps) == 0 {
		return
	}
	// After a commit was answered with UNKNOWN_MEMBER_ID the client rejoins under a new member id and only then reports the
	// old partitions, as revoked. A commit now would carry the new id, be accepted, and rewind the new owner (C3).
	member, _ := cl.GroupMetadata()
	var ours, lost []*epoch
	for _, ep := range eps {
		if ep.owner.MemberID == member {
			ours = append(ours, ep)
		} else {
			lost = append(lost, ep)
		}
	}
	e.lose(lost, "the group knows this process under another member id now")
	e.drain(ctx, ours, "revoked")
}

// onLost ends epochs at once: another member may own the partitions. Nothing is committed after it.
func (e *Engine) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	e.sessions.lost()
	e.lose(e.take(lost), "the group session ended")
}

func (e *Engine) lose(eps []*epoch, why string) {
	for _, ep := range eps {
		if !e.end(ep, errLost) {
			continue
		}
		e.counts.lostEpochs.Add(1)
		e.emit(Event{Name: EventLost, Topic: ep.topic, Partition: ep.partition, Owner: ep.owner, Hint: why})
	}
}

// end closes an epoch: from now on its completions only count, and nothing of it is committed. Handlers that still run keep
// their keys until they return (C6).
func (e *Engine) end(ep *epoch, cause error) bool {
	if lane := ep.opened(); lane != nil {
		lane.Close() // before a handler can hear of it, and leave its record unsettled: the next of its order must not start (C6)
	}
	if !ep.advance(phaseClosed) {
		return false
	}
	ep.endCtx(cause)
	ep.noStarts()
	if lane := ep.opened(); lane != nil {
		lane.Close()
		ep.tr.Close()
	}
	e.giveUpParked(ep)
	ep.mu.Lock()
	ep.closed = true
	if ep.ended != nil {
		close(ep.ended)
	}
	ep.mu.Unlock()
	e.marks.disown(ep)
	e.mu.Lock()
	if e.epochs[ep.tp] == ep {
		delete(e.epochs, ep.tp)
		ep.isPaused = false
		if e.cl != nil {
			e.cl.ResumeFetchPartitions(map[string][]int32{ep.topic: {ep.partition}})
		}
	}
	if ep.running() {
		e.zombies[ep] = struct{}{}
	}
	e.mu.Unlock()
	e.touchAll()
	return true
}

// renew ends an epoch and begins another for the same assignment, at another position.
func (e *Engine) renew(old *epoch, offset int64, leaderEpoch int32, why string) (ep *epoch, again bool) {
	if frontier := old.frontier(); frontier >= 0 && frontier < offset {
		// What the old epoch had not finished is still in the log below the new position: it is fetched again.
		offset, leaderEpoch, again = frontier, -1, true
	}
	var before *window.Window
	if old.opened() != nil {
		before = new(snapshotter).window(old, rowListMax)
	}
	if !e.end(old, errRenewed) {
		return nil, false // lost in the meantime: not ours to begin anew
	}
	ep = e.assign(old.tp, Owner{MemberID: old.owner.MemberID, Generation: old.owner.Generation})
	ep.topicID, ep.partitions, ep.bypassBelow = old.topicID, old.partitions, old.bypassBelow
	if before != nil && max(before.Highest+1, before.Frontier) > offset { // those that come again and are still the same records are not done again
		ep.before.Store(before)
	}
	ep.rowSeq.Store(old.rowSeq.Load())
	ep.suspected = ep.crash.goOn(offset, &old.crash, why == renewedCleared)
	e.mu.Lock()
	current := e.epochs[ep.tp] == ep
	e.mu.Unlock()
	if !current {
		return nil, false
	}
	ep.claim = true // the position went back; the group is to know
	e.emit(Event{Name: EventRenewed, Topic: ep.topic, Partition: ep.partition, Offset: offset, Hint: why})
	e.activate(ep, offset, leaderEpoch)
	if again {
		e.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{ep.topic: {ep.partition: {Epoch: -1, Offset: offset}}})
	}
	return ep, again
}

// noteAssignment says how many partitions are assigned here now.
func (e *Engine) noteAssignment() {
	e.mu.Lock()
	n := len(e.epochs)
	e.mu.Unlock()
	e.emit(Event{Name: EventRebalanced, Partition: -1, Count: int64(n)})
}
