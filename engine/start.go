package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// onOffsetsFetched notes what the group had committed. The client calls it between onAssigned and resolveStart.
func (e *Engine) onOffsetsFetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				e.noteCommit(t.Topic, t.TopicID, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata)
			}
		}
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			e.noteCommit(t.Topic, [16]byte{}, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata)
		}
	}
	return nil
}

func (e *Engine) noteCommit(topic string, id [16]byte, partition int32, offset int64, leaderEpoch int32, metadata *string) {
	ep := e.lookup(topic, partition)
	if ep == nil || !ep.is(phaseStarting) {
		return
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if id != ([16]byte{}) {
		ep.topicID = id
	}
	if offset >= 0 {
		ep.hasCommit, ep.committedAt, ep.commitEpoch, ep.acked = true, offset, leaderEpoch, offset
		if metadata != nil {
			ep.metadata = *metadata
		}
	}
}

// claimedPartitions is how many partitions the topic had when the group first claimed the partition that this metadata came
// with. So a partition that was added later can be told from one that another member of a new group is about to claim. 0:
// somebody else committed, and it is not known.
func claimedPartitions(metadata string) int32 {
	w, err := window.Decode(metadata)
	if err != nil {
		return 0
	}
	return w.Partitions
}

// resolveStart decides where every newly assigned partition begins, and opens its lane. It runs between onAssigned and the
// first fetch; ctx ends when the session does.
func (e *Engine) resolveStart(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var fresh []*epoch
	for topic, ps := range offsets {
		for p := range ps {
			if ep := e.lookup(topic, p); ep != nil && ep.is(phaseStarting) {
				fresh = append(fresh, ep)
			}
		}
	}
	if len(fresh) == 0 {
		return offsets, nil
	}
	slices.SortFunc(fresh, byName)
	for _, ep := range fresh {
		e.findWindow(ep)
	}
	at, err := e.startsOf(ctx, fresh)
	if err != nil {
		return nil, err
	}
	for _, ep := range fresh {
		s, known := at[ep.tp]
		if !known {
			offsets[ep.topic][ep.partition] = e.waitForLog(ctx, ep)
			continue
		}
		offsets[ep.topic][ep.partition] = kgo.NewOffset().At(s.offset).WithEpoch(s.epoch)
		e.begin(ep, s)
	}
	e.flushStore(ctx, e.cfg.CommitTimeout) // the rows come before the claims that name their store
	e.claim(ctx, fresh)
	e.sessionWell()
	return offsets, nil
}

// begin opens the lane of an epoch whose start is known.
func (e *Engine) begin(ep *epoch, s startAt) {
	if s.event.Name != "" {
		if s.event.Name == EventDataLoss {
			ep.lostRecords.Add(s.event.Count)
			e.counts.lost.Add(s.event.Count)
		}
		e.emit(s.event)
	}
	ep.claim = true
	if s.anew {
		ep.before.Store(nil)
	}
	e.suspect(ep, s.offset)
	e.activate(ep, s.offset, s.epoch)
	if s.stopped {
		e.stop(ep, stopDataLoss, fmt.Errorf("retention deleted %d records before the group read them", ep.lostRecords.Load()))
	}
}

// claim commits where the partitions begin, before any record is handled. So the resolved start survives a restart, the window of
// the owner before is carried on, and an assignment that ends uncleanly counts as one. A commit that fails is tried again by the
// committer.
func (e *Engine) claim(ctx context.Context, eps []*epoch) {
	select {
	case <-e.connected:
	case <-ctx.Done():
		return
	}
	if err := e.commit(ctx, eps, e.cfg.CommitTimeout); err != nil {
		e.log.Debug().Err(err).Msg("claim")
		e.wakeCommit()
	}
}

type startAt struct {
	offset  int64
	epoch   int32
	stopped bool
	anew    bool  // what earlier owners settled does not count
	event   Event // what is to be said of it, once
}

var errNoLogEnds = errors.New("the brokers do not name its log's ends, and the group has no commit in it")

// startTries is how often the ends of all logs are asked for before the others go on without one that has no leader.
const startTries = 3

// failedStarts counts the asks for the ends of logs that failed in a row, over all assignments: a group that is rebalanced again and
// again may leave time for one ask in each.
type failedStarts struct {
	mu   sync.Mutex
	n    int
	last time.Time
}

func (f *failedStarts) failed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n, f.last = f.n+1, time.Now()
	return f.n
}

// startsWell forgets the asks that failed.
func (e *Engine) startsWell() {
	e.starts.mu.Lock()
	e.starts.n = 0
	e.starts.mu.Unlock()
	e.health.set("start", nil)
}

// startsForgottenAfter is how long a member has nothing to begin before what it could not begin is no longer its trouble.
const startsForgottenAfter = 10 * time.Second

// lookAtStarts finds that the partitions which could not begin are no longer this member's.
func (e *Engine) lookAtStarts(eps []*epoch, now time.Time) {
	e.starts.mu.Lock()
	over := e.starts.n > 0 && now.Sub(e.starts.last) >= startsForgottenAfter
	e.starts.mu.Unlock()
	if over && !slices.ContainsFunc(eps, func(ep *epoch) bool { return ep.is(phaseStarting) }) {
		e.startsWell()
	}
}

// startsOf asks the brokers for the log's ends, again until ctx ends: there is nothing else to do without them. A partition that
// stays without an answer is left out, so that it does not hold up the rest.
func (e *Engine) startsOf(ctx context.Context, eps []*epoch) (map[tp]startAt, error) {
	topics := map[string]bool{}
	for _, ep := range eps {
		topics[ep.topic] = true
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	defer e.forgetMetadata(names)
	wait := 100 * time.Millisecond
	for tries := 1; ; tries++ {
		at, err := e.askStarts(ctx, names, eps)
		if err == nil || len(at) > 0 && tries >= startTries {
			e.startsWell()
			return at, nil
		}
		if ctx.Err() != nil { // a rebalance came first: nothing is wrong
			return nil, context.Cause(ctx)
		}
		if e.starts.failed() >= startTries {
			e.health.set("start", err)
		}
		e.emit(Event{Name: EventStartFailed, Err: err, Partition: -1, Hint: "the log's ends are asked for again"})
		timer, stop := after(wait)
		select {
		case <-ctx.Done():
			stop()
			return nil, context.Cause(ctx)
		case <-e.stopC:
			stop()
			return nil, context.Canceled
		case <-timer:
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// listOffsets lists what it can: a broker that is down or a topic that is forbidden does not stop the rest.
func listOffsets(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error), topics []string) (kadm.ListedOffsets, error) {
	all, err := list(ctx, topics...)
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) && !shards.AllFailed {
		return all, nil
	}
	var auth *kadm.AuthError
	if !errors.As(err, &auth) || len(topics) == 1 {
		return all, err
	}
	all = kadm.ListedOffsets{}
	for _, t := range topics {
		if one, err := list(ctx, t); err == nil || errors.As(err, &shards) {
			for name, ps := range one {
				all[name] = ps
			}
		}
	}
	return all, nil
}

// askStarts returns the starts that are known; the error is for those that are not.
func (e *Engine) askStarts(ctx context.Context, topics []string, eps []*epoch) (map[tp]startAt, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := e.asking.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("list the first offsets: %w", err)
	}
	defer e.asking.Release(1)
	first, err := listOffsets(ctx, e.adm.ListStartOffsets, topics)
	if err != nil {
		return nil, fmt.Errorf("list the first offsets: %w", err)
	}
	last, err := listOffsets(ctx, e.adm.ListEndOffsets, topics)
	if err != nil {
		return nil, fmt.Errorf("list the last offsets: %w", err)
	}
	var known map[string]int32 // topics in which the group has a commit; asked for only where it matters
	var byTime kadm.ListedOffsets
	at := map[tp]startAt{}
	for _, ep := range eps {
		lo, hi := listed(first, ep.tp), listed(last, ep.tp)
		ep.logStart.Store(lo)
		ep.hwm.Store(hi)
		if ep.hasCommit {
			at[ep.tp] = e.fromCommit(ep, lo, hi)
			continue
		}
		if known == nil {
			if known, err = e.committedTopics(ctx); err != nil {
				return nil, err
			}
		}
		count, claimed := known[ep.topic]
		if ep.partitions = count; !claimed {
			ep.partitions = e.partitionsOf(ep.topic, first)
		}
		s := e.cfg.Start
		switch {
		case claimed && ep.partition >= count: // a partition that was added: all that is in it is new to the group
			at[ep.tp] = startAt{offset: lo, epoch: -1}
		case s.latest:
			e.once("latest:"+ep.topic, Event{Name: EventStartsLatest, Topic: ep.topic, Partition: -1,
				Hint: "the group has no commit in this topic and Start is latest: what is in it already is not consumed"})
			at[ep.tp] = startAt{offset: hi, epoch: -1}
		case !s.at.IsZero():
			if byTime == nil {
				byTime, err = listOffsets(ctx, func(ctx context.Context, topics ...string) (kadm.ListedOffsets, error) {
					return e.adm.ListOffsetsAfterMilli(ctx, s.at.UnixMilli(), topics...)
				}, topics)
				if err != nil {
					return nil, fmt.Errorf("list the offsets at %v: %w", s, err)
				}
			}
			at[ep.tp] = startAt{offset: listed(byTime, ep.tp), epoch: -1} // the end, where nothing is as late
		default:
			at[ep.tp] = startAt{offset: lo, epoch: -1}
		}
	}
	var missing error
	for p, s := range at {
		if s.offset < 0 { // -1 and -2 mean the log's ends to the client: a sentinel must never pass for an offset
			delete(at, p)
			missing = fmt.Errorf("%s[%d]: the broker did not name an offset to start from", p.topic, p.partition)
		}
	}
	return at, missing
}

// partitionsOf is how many partitions a topic has.
func (e *Engine) partitionsOf(topic string, l kadm.ListedOffsets) int32 {
	e.mu.Lock()
	n := e.topics[topic].partitions
	e.mu.Unlock()
	for p := range l[topic] {
		n = max(n, int(p)+1)
	}
	return int32(n)
}

func listed(l kadm.ListedOffsets, p tp) int64 {
	if o, ok := l.Lookup(p.topic, p.partition); ok && o.Err == nil {
		return o.Offset
	}
	return -1
}

// fromCommit begins at the group's commit, unless the log has no such place any more.
func (e *Engine) fromCommit(ep *epoch, lo, hi int64) startAt {
	c := ep.committedAt
	switch {
	case lo >= 0 && c < lo: // retention overtook the group
		lost := lo - c
		ev := Event{Name: EventDataLoss, Topic: ep.topic, Partition: ep.partition, Offset: c, Count: lost,
			Hint: "retention deleted these records before the group read them"}
		switch e.cfg.OnDataLoss {
		case DataLossEarliest:
			return startAt{offset: lo, epoch: -1, event: ev}
		case DataLossLatest:
			return startAt{offset: hi, epoch: -1, event: ev}
		}
		ev.Hint += "; the partition stops: restart with OnDataLoss earliest or latest to go on, and give topics more retention"
		return startAt{offset: c, epoch: -1, stopped: true, event: ev}
	case hi >= 0 && c > hi: // the log is shorter than what was committed: truncated, or another topic of this name
		ev := Event{Name: EventTruncated, Topic: ep.topic, Partition: ep.partition, Offset: c, Count: c - hi,
			Hint: "the commit lies beyond the end of the log, which was truncated or begun anew: consumed from its first record on, so records may come twice"}
		return startAt{offset: lo, epoch: -1, anew: true, event: ev}
	}
	return startAt{offset: c, epoch: ep.commitEpoch}
}

// committedTopics are the topics in which the group has committed anything, and how many partitions each had then: those beyond
// were added later. 0 where a commit does not say; then all may be, as nothing must be skipped.
func (e *Engine) committedTopics(ctx context.Context) (map[string]int32, error) {
	resp, err := e.adm.FetchOffsets(ctx, e.cfg.Group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("fetch the group's offsets: %w", err)
	}
	known := map[string]int32{}
	resp.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			n := claimedPartitions(o.Metadata)
			if was, ok := known[o.Topic]; ok {
				n = min(n, was)
			}
			known[o.Topic] = n
		}
	})
	return known, nil
}
