package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gaplesshq/gapless/tracker"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fetchLoop polls, hands every partition's records to its lane without ever blocking, and lets a rebalance pass. It holds a
// poll no longer than that: a poll in hand blocks the group.
func (e *Engine) fetchLoop(ctx context.Context) {
	var d delivery
	for {
		fs := e.cl.PollFetches(e.late.pollCtx(ctx))
		if ctx.Err() == nil {
			for i := range fs {
				for j := range fs[i].Topics {
					e.deliverTopic(&d, &fs[i].Topics[j])
				}
			}
			e.beginLate()
			e.flowNow()
		}
		e.cl.AllowRebalance() // a poll that returned an error counts, too
		if ctx.Err() != nil || e.cl.Context().Err() != nil {
			return
		}
	}
}

// delivery is the fetch loop's scratch space.
type delivery struct {
	topicID   [16]byte // of the topic that was fetched from; zero where the brokers go by names only
	stretches []stretch
	offsets   []int64
}

func (e *Engine) deliverTopic(d *delivery, t *kgo.FetchTopic) {
	d.topicID = t.TopicID
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if p.Err != nil {
			e.fetchError(t.Topic, p.Partition, p.Err)
		}
		e.deliver(d, t.Topic, p)
	}
}

// deliver adds a partition's fetched records to its tracker and its lane.
func (e *Engine) deliver(d *delivery, topic string, p *kgo.FetchPartition) {
	if len(p.Records) == 0 {
		return
	}
	ep := e.lookup(topic, p.Partition)
	if ep == nil || !ep.is(phaseActive) {
		e.records.Release(p.Records) // fetched for an assignment that has ended: the next owner gets them
		return
	}
	ep.hwm.Store(p.HighWatermark)
	ep.lso.Store(p.LastStableOffset)
	ep.logStart.Store(p.LogStartOffset)
	now := time.Now()
	ep.heard.Store(now.UnixNano())
	if s := e.marks.store; s != nil {
		s.Observe(p.Records[len(p.Records)-1].Timestamp)
	}

	if ep.suspected {
		var again bool
		if ep, again = e.lift(ep); ep == nil || again {
			e.records.Release(p.Records)
			return
		}
	}
	if _, next := ep.tr.Next(); p.Records[0].Offset < next {
		// The client went back: the log was truncated, or the position reset. What was delivered before belongs to a log that
		// no longer is, so a new epoch begins (C4: within an epoch nothing goes backwards).
		var again bool
		if ep, again = e.renew(ep, p.Records[0].Offset, -1, "rewound"); ep == nil || again {
			e.records.Release(p.Records)
			return
		}
	} else if e.startsBeyond(ep, p.Records[0].Offset, next) {
		e.records.Release(p.Records)
		return
	} else if p.LogStartOffset > next && p.Records[0].Offset > next && !e.overtaken(ep, next, p) {
		e.records.Release(p.Records)
		return
	}
	inherited := ep.before.Load() != nil
	if inherited { // a window that is taken after they are added and before they are passed over would say less than the one before it
		ep.joining.Lock()
	}
	d.stretches = d.stretches[:0]
	for recs := p.Records; len(recs) > 0; {
		if recs[0].Attrs.IsControl() {
			seq, err := ep.tr.AddRange(recs[0].Offset, 1, recs[0].LeaderEpoch)
			if err != nil {
				e.impossible(ep, recs, err)
				break
			}
			ep.tr.Done(seq) // a marker is no work, but the frontier may pass it: lag reaches 0 behind a trailing one
			e.records.ReleaseOne(recs[0])
			recs = recs[1:]
			continue
		}
		ep.noteRun(recs[0].Offset, recs[0].LeaderEpoch)
		s := stretchOf(recs, e.lender)
		if err := d.add(ep.tr, &s); err != nil {
			e.impossible(ep, recs, err)
			break
		}
		d.stretches = append(d.stretches, s)
		recs = recs[len(s.recs):]
	}
	if inherited {
		d.stretches = e.passSettled(ep, d.topicID, d.stretches)
		ep.joining.Unlock()
	}
	if len(d.stretches) == 0 {
		if e.cfg.Commit.Each { // only markers and what was settled earlier: the frontier has moved nevertheless
			e.wakeCommit()
		}
		return
	}
	d.handOver(ep, now)
	e.touch(ep)
}

// handOver gives the records to the lane: p.Records is its from then on.
func (d *delivery) handOver(ep *epoch, now time.Time) {
	head, tail := &d.stretches[0], &d.stretches[len(d.stretches)-1]
	sl := slice{first: head.first, n: int(tail.first-head.first) + len(tail.recs), at: now, timestamp: head.recs[0].Timestamp}
	for _, s := range d.stretches {
		sl.bytes += s.bytes
	}
	ep.mu.Lock()
	ep.slices = append(ep.slices, sl)
	ep.bytes += sl.bytes
	ep.mu.Unlock()
	ep.needCtx()
	for _, s := range d.stretches {
		ep.lane.Push(uint64(s.first), s.recs)
	}
	clear(d.stretches)
}

// startsBeyond says whether an epoch's first records begin beyond its start, which is then asked for once more. Most likely the
// log has a hole there (a marker, compaction). But a client whose topic was purged and added again may also go on where an
// earlier epoch had been, and then records would pass for a hole that nobody has handled (C1).
func (e *Engine) startsBeyond(ep *epoch, first, start int64) bool {
	if ep.begun {
		return false
	}
	ep.begun = true
	if first == start {
		return false
	}
	e.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{ep.topic: {ep.partition: {Epoch: -1, Offset: start}}})
	return true
}

// impossible handles records that the tracker refuses. The span bound is guarded by a pause long before, so this is a bug or a
// broker that breaks the protocol; going on could lose records, so the engine stops.
func (e *Engine) impossible(ep *epoch, recs []*kgo.Record, err error) {
	if errors.Is(err, tracker.ErrClosed) {
		e.records.Release(recs)
		return
	}
	e.fail(fmt.Errorf("gapless: %s[%d]: records from offset %d on can't be tracked: %w", ep.topic, ep.partition, recs[0].Offset, err))
	e.records.Release(recs)
}

// overtaken handles records that retention deleted before they were read: the one true loss (C9). It says whether to go on
// with what was fetched.
func (e *Engine) overtaken(ep *epoch, next int64, p *kgo.FetchPartition) bool {
	e.lost(ep, next, min(p.LogStartOffset, p.Records[0].Offset)-next)
	if e.cfg.OnDataLoss == DataLossLatest {
		ep.tr.Pass(p.HighWatermark)
		e.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{ep.topic: {ep.partition: {Epoch: -1, Offset: p.HighWatermark}}})
	}
	return e.cfg.OnDataLoss == DataLossEarliest
}

// lost counts and reports records that retention deleted, and stops the partition where that was chosen.
func (e *Engine) lost(ep *epoch, from, n int64) {
	ep.lostRecords.Add(n)
	e.counts.lost.Add(n)
	ev := Event{Name: EventDataLoss, Topic: ep.topic, Partition: ep.partition, Offset: from, Count: n,
		Hint: "retention deleted these records before the group read them"}
	if e.cfg.OnDataLoss != DataLossStop {
		ev.Hint += "; going on, as OnDataLoss says"
		e.emit(ev)
		return
	}
	ev.Hint += "; the partition stops: restart with OnDataLoss earliest or latest to go on, and give topics more retention"
	e.emit(ev)
	e.stop(ep, stopDataLoss, nil)
}

// fetchError sorts what the client could not heal by itself. A partition with an error that stays is paused: the client would
// otherwise return it thousands of times a second.
func (e *Engine) fetchError(topic string, partition int32, err error) {
	var loss *kgo.ErrDataLoss
	var session *kgo.ErrGroupSession
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrClientClosed):
		return
	case errors.As(err, &session):
		e.sessionError(session.Err)
		return
	case errors.As(err, &loss):
		ep := e.lookup(loss.Topic, loss.Partition)
		switch {
		case ep == nil:
		case ep.stands(loss.ResetTo): // else it would begin anew there without end
			e.fetchFailed(ep, errNoSuchPlace, "the broker says that the position is outside of the log, and names the same one as inside; tried again with backoff")
		default:
			e.emit(Event{Name: EventTruncated, Topic: loss.Topic, Partition: loss.Partition, Offset: loss.ResetTo, Count: loss.ConsumedTo - loss.ResetTo,
				Hint: "the log was truncated (an unclean leader election); records from this offset on are consumed anew"})
			e.renew(ep, loss.ResetTo, loss.ResetToEpoch, "truncated")
		}
		return
	}
	ep := e.lookup(topic, partition)
	if ep == nil {
		e.topicError(topic, err)
		return
	}
	hint, err := explainFetch(topic, err)
	e.fetchFailed(ep, err, hint)
}

// errNoSuchPlace: the client was sent back to where it already was.
var errNoSuchPlace = fmt.Errorf("the broker refuses the very offset that it names: %w", kerr.OffsetOutOfRange)

// stands says whether the epoch waits for its first records at this offset.
func (ep *epoch) stands(offset int64) bool {
	if ep.begun || ep.opened() == nil {
		return false
	}
	_, next := ep.tr.Next()
	return next == offset
}

// fetchFailed pauses a partition that can't be fetched, for a while that grows.
func (e *Engine) fetchFailed(ep *epoch, err error, hint string) {
	ep.mu.Lock()
	t := ep.trouble()
	t.backoff = min(max(2*t.backoff, time.Second), fetchBackoffMax)
	t.retryAt = time.Now().Add(t.backoff)
	if errors.Is(err, kgo.ErrMaxDecompress) { // the client will not fetch it again, and it will not be smaller
		t.retryAt = time.Now().Add(never)
	}
	ep.mu.Unlock()
	e.emit(Event{Name: EventFetchFailed, Topic: ep.topic, Partition: ep.partition, Err: err, Hint: hint})
	e.stop(ep, stopFetchError, err)
}

// never is a time that nobody waits for.
const never = 100 * 365 * 24 * time.Hour

// explainFetch says what to do about an error of a topic. The error that it returns wraps err.
func explainFetch(topic string, err error) (hint string, explained error) {
	var large *kgo.ErrDecompressTooLarge
	switch {
	case errors.As(err, &large):
		return fmt.Sprintf("the partition stops: restart with a larger FetchMaxBatchBytes, or stop the group and commit offset %d to pass the batch over", large.NextOffset),
			fmt.Errorf("the batch at offset %d expands to more than FetchMaxBatchBytes: %w", large.Offset, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "tried again with backoff; it goes on once the right is there", fmt.Errorf("grant READ and DESCRIBE on topic %q to this user: %w", topic, err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return "the position is outside of the log; tried again with backoff", err
	}
	return "the partition is paused and tried again with backoff", err
}

// topicError is an error for a topic as a whole, which has no partition here.
func (e *Engine) topicError(topic string, err error) {
	if kerr.IsRetriable(err) {
		e.log.Debug().Str("topic", topic).Err(err).Msg("metadata")
		return
	}
	hint, err := explainFetch(topic, err)
	e.once("topic:"+topic+err.Error(), Event{Name: EventFetchFailed, Topic: topic, Partition: -1, Err: err, Hint: hint})
	if slices.Contains(e.watchedTopics(), topic) { // else nobody would say that it is well again
		if e.health.set("topic "+topic, err) { // a look takes it back where it was for a moment only
			e.checkTopics()
		}
	}
}
