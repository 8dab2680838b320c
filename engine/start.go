package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
				e.noteCommit(t.Topic, t.TopicID, p.Partition, p.Offset, p.LeaderEpoch)
			}
		}
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			e.noteCommit(t.Topic, [16]byte{}, p.Partition, p.Offset, p.LeaderEpoch)
		}
	}
	return nil
}

func (e *Engine) noteCommit(topic string, id [16]byte, partition int32, offset int64, leaderEpoch int32) {
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
	}
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
	at, err := e.startsOf(ctx, fresh)
	if err != nil {
		return nil, err
	}
	for _, ep := range fresh {
		s := at[ep.tp]
		offsets[ep.topic][ep.partition] = kgo.NewOffset().At(s.offset).WithEpoch(s.epoch)
		e.activate(ep, s.offset, s.epoch)
		if s.stopped {
			e.stop(ep, stopDataLoss, fmt.Errorf("retention deleted %d records before the group read them", ep.lostRecords.Load()))
		}
	}
	e.wakeCommit() // the claims
	return offsets, nil
}

type startAt struct {
	offset  int64
	epoch   int32
	stopped bool
}

// startsOf asks the brokers for the log's ends, again until ctx ends: there is nothing else to do without them.
func (e *Engine) startsOf(ctx context.Context, eps []*epoch) (map[tp]startAt, error) {
	topics := map[string]bool{}
	for _, ep := range eps {
		topics[ep.topic] = true
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		at, err := e.askStarts(ctx, names, eps)
		if err == nil {
			return at, nil
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
	}
}

func (e *Engine) askStarts(ctx context.Context, topics []string, eps []*epoch) (map[tp]startAt, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	first, err := e.adm.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = first.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the first offsets: %w", err)
	}
	last, err := e.adm.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = last.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the last offsets: %w", err)
	}
	var known map[string]bool // topics in which the group has a commit; asked for only where it matters
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
		ep.claim = true
		s := e.cfg.Start
		switch {
		case known[ep.topic]: // a partition that was added: all that is in it is new to the group
			at[ep.tp] = startAt{offset: lo, epoch: -1}
		case s.latest:
			e.once("latest:"+ep.topic, Event{Name: EventStartsLatest, Topic: ep.topic, Partition: -1,
				Hint: "the group has no commit in this topic and Start is latest: what is in it already is not consumed"})
			at[ep.tp] = startAt{offset: hi, epoch: -1}
		case !s.at.IsZero():
			if byTime == nil {
				if byTime, err = e.adm.ListOffsetsAfterMilli(ctx, s.at.UnixMilli(), topics...); err != nil {
					return nil, fmt.Errorf("list the offsets at %v: %w", s, err)
				}
			}
			o := listed(byTime, ep.tp)
			if o < 0 {
				o = hi
			}
			at[ep.tp] = startAt{offset: o, epoch: -1}
		default:
			at[ep.tp] = startAt{offset: lo, epoch: -1}
		}
	}
	for p, s := range at {
		if s.offset < 0 { // -1 and -2 mean the log's ends to the client: a sentinel must never pass for an offset
			return nil, fmt.Errorf("%s[%d]: the broker did not name an offset to start from", p.topic, p.partition)
		}
	}
	return at, nil
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
		ep.lostRecords.Add(lost)
		e.counts.lost.Add(lost)
		ev := Event{Name: EventDataLoss, Topic: ep.topic, Partition: ep.partition, Offset: c, Count: lost,
			Hint: "retention deleted these records before the group read them"}
		switch e.cfg.OnDataLoss {
		case DataLossEarliest:
			e.emit(ev)
			ep.claim = true
			return startAt{offset: lo, epoch: -1}
		case DataLossLatest:
			e.emit(ev)
			ep.claim = true
			return startAt{offset: hi, epoch: -1}
		}
		ev.Hint += "; the partition stops: restart with OnDataLoss earliest or latest to go on, and give topics more retention"
		e.emit(ev)
		return startAt{offset: c, epoch: -1, stopped: true}
	case hi >= 0 && c > hi: // the log is shorter than what was committed: truncated, or another topic of this name
		e.emit(Event{Name: EventTruncated, Topic: ep.topic, Partition: ep.partition, Offset: c, Count: c - hi,
			Hint: "the commit lies beyond the end of the log, which was truncated or begun anew: consumed from its first record on, so records may come twice"})
		ep.claim = true
		return startAt{offset: lo, epoch: -1}
	}
	return startAt{offset: c, epoch: ep.commitEpoch}
}

// committedTopics are the topics in which the group has committed anything.
func (e *Engine) committedTopics(ctx context.Context) (map[string]bool, error) {
	resp, err := e.adm.FetchOffsets(ctx, e.cfg.Group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, fmt.Errorf("fetch the group's offsets: %w", err)
	}
	known := map[string]bool{}
	resp.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			known[o.Topic] = true
		}
	})
	return known, nil
}
