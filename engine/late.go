package engine

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A partition whose log has no leader when it is assigned can't begin: nobody says where its log begins and ends. The client gets it
// nevertheless, paused and at an offset that means nothing, because a partition that it never had can't be added to a group's session
// (AddConsumePartitions is not for groups, SetOffsets leaves out what has no cursor). When the log is back its start is looked up as for
// any other, set at the client within a poll, and the pause taken away; the topic's other partitions notice nothing.

// lateStart is where such a partition begins.
type lateStart struct {
	ep *epoch
	at startAt
}

// latecomers hands late starts and the ends of investigations to the fetch loop: positions are set within a poll only, when no revoke can run.
type latecomers struct {
	mu     sync.Mutex
	starts []lateStart
	lifts  []*epoch        // whose crash loop's investigation may end: see crash.go
	poll   context.Context // of the poll under way
	end    context.CancelFunc
}

// pollCtx is the context for the next poll: it ends with ctx, or when there is something to take.
func (l *latecomers) pollCtx(ctx context.Context) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poll == nil || l.poll.Err() != nil {
		l.poll, l.end = context.WithCancel(ctx)
	}
	return l.poll
}

func (l *latecomers) put(s []lateStart) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts = append(l.starts, s...)
	l.wake()
}

func (l *latecomers) lift(ep *epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lifts = append(l.lifts, ep)
	l.wake()
}

// wake ends the poll. l.mu is held.
func (l *latecomers) wake() {
	if l.end != nil {
		l.end()
	}
}

func (l *latecomers) take() (starts []lateStart, lifts []*epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	starts, lifts = l.starts, l.lifts
	l.starts, l.lifts = nil, nil
	return starts, lifts
}

// waitForLog keeps a partition paused until its log's ends are known, and returns the offset that the client gets meanwhile.
func (e *Engine) waitForLog(ctx context.Context, ep *epoch) kgo.Offset {
	select {
	case <-e.connected: // there is a client to be told
	case <-ctx.Done():
	}
	e.stop(ep, stopNotAssigned, errNoLogEnds)
	return kgo.NewOffset().At(0)
}

// waitsForLog says whether the partition can't begin.
func (ep *epoch) waitsForLog() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.is(phaseStarting) && ep.stops&stopNotAssigned != 0
}

// startLate looks up where partitions begin whose logs are back. What still can't be had is tried again at the next look.
func (e *Engine) startLate(ctx context.Context, eps []*epoch) {
	if len(eps) == 0 {
		return
	}
	topics := map[string]bool{}
	var names []string
	for _, ep := range eps {
		if !topics[ep.topic] {
			topics[ep.topic] = true
			names = append(names, ep.topic)
		}
	}
	at, err := e.askStarts(ctx, names, eps)
	if err != nil {
		e.log.Debug().Err(err).Msg("late start")
	}
	var starts []lateStart
	for _, ep := range eps {
		if s, known := at[ep.tp]; known {
			starts = append(starts, lateStart{ep, s})
		}
	}
	e.late.put(starts)
}

// beginLate begins the partitions whose starts have become known, and those whose records are no longer suspected anew. It is part of the fetch loop, before a rebalance is allowed.
func (e *Engine) beginLate() {
	starts, lifts := e.late.take()
	for _, ep := range lifts {
		if e.lookup(ep.topic, ep.partition) == ep && ep.is(phaseActive) {
			e.lift(ep)
		}
	}
	for _, s := range starts {
		ep := s.ep
		if e.lookup(ep.topic, ep.partition) != ep || !ep.waitsForLog() {
			continue // taken away meanwhile
		}
		e.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{ep.topic: {ep.partition: {Epoch: -1, Offset: s.at.offset}}})
		e.begin(ep, s.at)
		e.resume(ep, stopNotAssigned)
	}
	if len(starts) > 0 {
		e.wakeCommit() // the claims
	}
}

// A partition of which the coordinator does not say where the group is in it (an error for it alone in the answer to OffsetFetch) is
// dropped by the client, which has reported the error and never asks again. So its epoch stays at its start, ill, until the coordinator
// answers for it; then its topic is asked for anew, which interrupts the topic's other partitions, but only once.

// lookForRefused finds those of them whose offsets are to be had now.
func (e *Engine) lookForRefused(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, ep := range e.allEpochs() {
		if !ep.is(phaseStarting) || !ep.stoppedFor(stopFetchError) || !e.offsetsToBeHad(ctx, ep) {
			continue
		}
		e.mu.Lock()
		if e.epochs[ep.tp] == ep && e.anew.due(ep.tp, time.Now()) {
			e.adrift[ep.tp] = time.Time{} // due
		}
		e.mu.Unlock()
	}
}

// anew says when topics may be asked for anew for a partition that could not begin: each time it comes to nothing, the next has to wait twice as
// long, up to a minute, because it is a rebalance for the whole group.
type anew map[tp]*struct {
	n    int
	next time.Time
}

func (a anew) due(p tp, now time.Time) bool {
	at := a[p]
	if at == nil {
		at = new(struct {
			n    int
			next time.Time
		})
		a[p] = at
	}
	if now.Before(at.next) {
		return false
	}
	at.next = now.Add(min(time.Second<<min(at.n, 6), time.Minute))
	at.n++
	return true
}

// offsetsToBeHad asks the coordinator where the group is in a partition.
func (e *Engine) offsetsToBeHad(ctx context.Context, ep *epoch) bool {
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = e.cfg.Group
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = ep.topic, []int32{ep.partition}
	e.mu.Lock()
	t.TopicID = e.topics[ep.topic].id
	e.mu.Unlock()
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, e.side)
	if err != nil || len(resp.Groups) != 1 || resp.Groups[0].ErrorCode != 0 {
		return false
	}
	for _, t := range resp.Groups[0].Topics {
		for _, p := range t.Partitions {
			return p.ErrorCode == 0
		}
	}
	return false
}
