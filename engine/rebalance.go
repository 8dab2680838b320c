package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gaplesshq/gapless/tracker"
	"github.com/gaplesshq/gapless/workers"
	"github.com/twmb/franz-go/pkg/kerr"
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
	e.ended.Store(0)
	e.health.set("group session", nil)
	// The client keeps a pause across rebalances; ours begins anew with the epoch.
	cl.ResumeFetchPartitions(assigned)
	member, generation := cl.GroupMetadata()
	for topic, partitions := range assigned {
		for _, p := range partitions {
			e.assign(tp{topic, p}, Owner{MemberID: member, Generation: generation})
		}
	}
	e.lookForAdrift(member)
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
	ep := &epoch{tp: p, committedAt: -1, commitEpoch: -1, acked: -1, ended: make(chan struct{}), settled: e.breakers.topic(p.topic)}
	ep.single, ep.batch = e.handlerFor(p.topic)
	ep.newCtx()
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
		return old
	}
	e.epochs[p] = ep
	e.mu.Unlock()
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
	lane := e.pool.Open(id, e.laneOrder(), ep, e.cfg.PartitionRecords, e.cfg.PartitionRecords/2)
	lane.Pause()
	ep.mu.Lock()
	ep.tr = tracker.New(offset, leaderEpoch, tracker.Options{MaxSpan: maxSpan})
	ep.lane = lane
	ep.mu.Unlock()
	if !ep.advance(phaseActive) { // a stop came in between
		lane.Close()
		return
	}
	e.breakers.holdIfOpen(e, ep)
	ep.mu.Lock()
	e.unpauseLane(ep)
	ep.mu.Unlock()
	e.emit(Event{Name: EventAssigned, Topic: ep.topic, Partition: ep.partition, Offset: offset, Owner: ep.owner})
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
	e.lose(e.take(lost), "the group session ended")
}

func (e *Engine) lose(eps []*epoch, why string) {
	for _, ep := range eps {
		e.end(ep, errLost)
		e.counts.lostEpochs.Add(1)
		e.emit(Event{Name: EventLost, Topic: ep.topic, Partition: ep.partition, Owner: ep.owner, Hint: why})
	}
}

// drain gives up what has not started, waits for running handlers and their outputs up to DrainTimeout, commits, and ends the
// epochs.
func (e *Engine) drain(ctx context.Context, eps []*epoch, why string) {
	if len(eps) == 0 {
		return
	}
	slices.SortFunc(eps, byName)
	begun := time.Now()
	deadline := begun.Add(e.cfg.DrainTimeout)
	var drained, elsewhere []*epoch
	for _, ep := range eps {
		if !ep.advance(phaseDraining) {
			elsewhere = append(elsewhere, ep) // a stop and a rebalance at once: the other one drains it, or it is lost
			continue
		}
		drained = append(drained, ep)
		if lane := ep.opened(); lane != nil {
			lane.Close()
		}
		e.giveUpParked(ep)
	}
	late := e.awaitDrained(ctx, drained, deadline)
	for _, ep := range late {
		ep.endCtx(errDrained)
	}
	unsaved := slices.ContainsFunc(drained, (*epoch).unsaved)
	if err := e.lastCommit(ctx, drained); err != nil {
		if why == "stop" && unsaved {
			e.noteLastCommit(err)
		}
		e.emit(Event{Name: EventCommitFailed, Err: err, Partition: -1, Hint: "on " + why + ": what was settled since the last commit is delivered again"})
	}
	for _, ep := range drained {
		offset, _ := ep.frontier()
		acked := ep.committed()
		zombie := ep.running()
		e.end(ep, errDrained)
		name := EventRevoked
		if why == "stop" {
			name = EventReleased
		}
		ev := Event{Name: name, Topic: ep.topic, Partition: ep.partition, Offset: acked, Owner: ep.owner, Took: time.Since(begun)}
		if zombie {
			ev.Hint = fmt.Sprintf("handlers outlived the drain of %v; their records are delivered again", e.cfg.DrainTimeout)
		}
		if acked < offset {
			ev.Hint += " the last commit was not acknowledged"
		}
		e.emit(ev)
	}
	e.awaitEnded(elsewhere, deadline.Add(e.cfg.CommitTimeout))
}

// unsaved says whether something was settled that is not committed; a start that is to be claimed is none.
func (ep *epoch) unsaved() bool {
	offset, _ := ep.frontier()
	return offset > max(ep.committed(), 0)
}

// lastCommit commits for the last time. It tries again where the group is between two generations: there is no later commit
// that would make up for it.
func (e *Engine) lastCommit(ctx context.Context, eps []*epoch) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.CommitTimeout)
	defer cancel()
	for {
		err := e.commit(ctx, eps, e.cfg.CommitTimeout)
		if !errors.Is(err, kerr.RebalanceInProgress) && !errors.Is(err, kerr.IllegalGeneration) {
			return err
		}
		tick, stop := after(100 * time.Millisecond)
		select {
		case <-tick:
		case <-ctx.Done():
			return err
		}
		stop()
	}
}

// awaitEnded waits for epochs that another drain ends. A revoke that returned before would let the next owner begin, and the
// other drain's commit would rewind it.
func (e *Engine) awaitEnded(eps []*epoch, deadline time.Time) {
	timeout, stop := after(time.Until(deadline))
	defer stop()
	for _, ep := range eps {
		select {
		case <-ep.ended:
		case <-timeout:
			for _, ep := range eps {
				e.end(ep, errDrained)
			}
			return
		}
	}
}

// awaitDrained waits for all lanes together, and returns the epochs that were not drained by the deadline.
func (e *Engine) awaitDrained(ctx context.Context, eps []*epoch, deadline time.Time) (late []*epoch) {
	timeout, stop := after(time.Until(deadline))
	defer stop()
	expired := false
	for _, ep := range eps {
		lane := ep.opened()
		if lane == nil {
			continue
		}
		if !expired {
			select {
			case <-lane.Drained():
				continue
			case <-timeout:
			case <-e.hardC:
			case <-ctx.Done():
			}
			expired = true
		}
		select {
		case <-lane.Drained():
		default:
			late = append(late, ep)
		}
	}
	return late
}

// end closes an epoch: from now on its completions only count, and nothing of it is committed. Handlers that still run keep
// their keys until they return (C6).
func (e *Engine) end(ep *epoch, cause error) bool {
	if !ep.advance(phaseClosed) {
		return false
	}
	ep.endCtx(cause)
	if lane := ep.opened(); lane != nil {
		lane.Close()
		ep.tr.Close()
	}
	e.giveUpParked(ep)
	close(ep.ended)
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
	return true
}

// renew ends an epoch and begins another for the same assignment, at another position.
func (e *Engine) renew(old *epoch, offset int64, leaderEpoch int32, why string) (ep *epoch, again bool) {
	if frontier, _ := old.frontier(); frontier >= 0 && frontier < offset {
		// What the old epoch had not finished is still in the log below the new position: it is fetched again.
		offset, leaderEpoch, again = frontier, -1, true
	}
	if !e.end(old, errRenewed) {
		return nil, false // lost in the meantime: not ours to begin anew
	}
	ep = e.assign(old.tp, Owner{MemberID: old.owner.MemberID, Generation: old.owner.Generation})
	ep.topicID, ep.partitions = old.topicID, old.partitions
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

// abandoned lists what a stop leaves behind: the records that wait for nothing but an acknowledgement, or were given up as they
// did, and those whose handlers still run, over all epochs, ended ones as well.
func (e *Engine) abandoned() *AbandonedError {
	e.mu.Lock()
	left := slices.Clone(e.givenUp)
	e.mu.Unlock()
	for _, ep := range e.allEpochs() {
		ep.mu.Lock()
		for st := range ep.held {
			if st.waitsFor() != "" {
				left = append(left, st.abandoned())
			}
		}
		ep.mu.Unlock()
	}
	parked := len(left)
	e.pool.EachRunning(func(l *workers.Lane[item], it *item, since time.Duration) {
		ep := l.Owner().(*epoch)
		a := Abandoned{Topic: ep.topic, Partition: ep.partition, Offset: it.rec.Offset, For: WaitsForHandler, Running: since}
		if !slices.ContainsFunc(left[:parked], a.same) { // else its handler is done, and its worker about to leave it
			left = append(left, a)
		}
	})
	if len(left) == 0 {
		return nil
	}
	return &AbandonedError{Records: left}
}
