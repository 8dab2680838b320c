package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errFenced: the client's member id is no longer that of the epoch, so its commit is not sent (C3).
var errFenced = errors.New("gapless: not sent: the group knows this process under another member id")

// commitLoop is the committer: one goroutine, one request in flight (C4).
func (e *Engine) commitLoop(ctx context.Context) {
	tick := time.NewTicker(e.cfg.Commit.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.kick:
		}
		if err := e.commit(ctx, e.allEpochs(), e.cfg.CommitTimeout); err != nil && ctx.Err() == nil {
			e.log.Debug().Err(err).Msg("commit")
		}
	}
}

func (e *Engine) wakeCommit() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// Commit commits what is settled now and waits for the broker's answer, by ctx's deadline.
func (e *Engine) Commit(ctx context.Context) error {
	select {
	case <-e.ready:
	default:
		return ErrNotRunning
	}
	return e.commit(ctx, e.allEpochs(), e.cfg.CommitTimeout)
}

// commit sends the frontiers of those eps that have something new, and waits for the answer. "Committed" is what the broker
// acknowledged for that very partition.
func (e *Engine) commit(ctx context.Context, eps []*epoch, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout) // a commit without a deadline would wedge later ones, the rejoin and Close
	defer cancel()
	select {
	case e.commitSem <- struct{}{}:
		defer func() { <-e.commitSem }()
	case <-ctx.Done():
		return fmt.Errorf("gapless: an earlier commit has not been answered: %w", ctx.Err())
	}
	if e.clock.suspended.Load() {
		return errSuspended
	}
	if err := e.storeErr(); err != nil {
		return err
	}
	sent := e.dirty(eps)
	if len(sent) == 0 {
		return nil
	}
	err := e.send(ctx, sent)
	if again := tooLong(sent); len(again) > 0 && ctx.Err() == nil { // the same offsets, without what the broker would not keep
		return e.send(ctx, again)
	}
	return err
}

// send sends one request and waits for its answer.
func (e *Engine) send(ctx context.Context, sent offers) error {
	req, topics := e.commitRequest(sent)
	if err := fenceCommit(req, sent); err != nil {
		e.commitFailed(sent.epochs(), err)
		return err
	}
	begun := time.Now()
	answer := make(chan error, 1)
	// Not through the client's CommitOffsets: where that is answered with UNKNOWN_MEMBER_ID the client rejoins under another
	// member id and keeps what it is given again, as if nobody had had it in between. So it hears of a loss by its heartbeat
	// only, which ends everything cleanly.
	go func() {
		resp, err := req.RequestWith(ctx, e.cl)
		if err == nil {
			nameTopics(resp, topics)
			err = errors.Join(e.committedBy(resp, sent), e.unanswered(req, resp, sent))
		} else {
			e.commitFailed(sent.epochs(), err)
		}
		answer <- err
	}()
	select {
	case err := <-answer:
		e.counts.commit(time.Since(begun), err)
		return err
	case <-ctx.Done():
		// The client gives the request up at the same deadline and reports to the callback; don't bet on it.
		e.counts.commit(time.Since(begun), ctx.Err())
		return fmt.Errorf("gapless: the commit was not answered: %w", ctx.Err())
	}
}

// commitRequest is the request for these offsets under the present member id, and the names of the topics by their ids: since
// its version 10 the protocol knows only those.
func (e *Engine) commitRequest(sent offers) (*kmsg.OffsetCommitRequest, map[[16]byte]string) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = e.cfg.Group
	req.MemberID, req.Generation = e.cl.GroupMetadata()
	if e.cfg.InstanceID != "" {
		req.InstanceID = &e.cfg.InstanceID
	}
	names := map[[16]byte]string{}
	at := map[string]int{}
	for _, o := range sent {
		i, ok := at[o.ep.topic]
		if !ok {
			i = len(req.Topics)
			at[o.ep.topic] = i
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = o.ep.topic
			e.mu.Lock()
			t.TopicID = e.topics[t.Topic].id
			e.mu.Unlock()
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[i]
		if o.ep.topicID != ([16]byte{}) { // the one that the epoch began with
			t.TopicID = o.ep.topicID
		}
		names[t.TopicID] = t.Topic
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = o.ep.partition, o.offset, o.leaderEpoch
		if o.metadata != "" {
			rp.Metadata = &o.metadata
		}
		t.Partitions = append(t.Partitions, rp)
	}
	return req, names
}

// nameTopics gives the topics of an answer their names.
func nameTopics(resp *kmsg.OffsetCommitResponse, names map[[16]byte]string) {
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic == "" {
			t.Topic = names[t.TopicID]
		}
	}
}

// fenceCommit takes out of the request what belongs to another member id, or to an epoch that has ended since.
func fenceCommit(req *kmsg.OffsetCommitRequest, sent offers) error {
	topics := req.Topics[:0]
	for _, t := range req.Topics {
		ps := t.Partitions[:0]
		for _, p := range t.Partitions {
			o := sent[tp{t.Topic, p.Partition}]
			if o != nil && o.ep.owner.MemberID == req.MemberID && !o.ep.is(phaseClosed) {
				ps = append(ps, p)
			}
		}
		if t.Partitions = ps; len(ps) > 0 {
			topics = append(topics, t)
		}
	}
	req.Topics = topics
	if len(topics) == 0 {
		return errFenced
	}
	return nil
}

// committedBy reads the answer partition by partition: the request as a whole succeeds even where a partition was refused.
func (e *Engine) committedBy(resp *kmsg.OffsetCommitResponse, sent offers) (first error) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			o := sent[tp{t.Topic, p.Partition}]
			if o == nil {
				continue
			}
			err := kerr.ErrorForCode(p.ErrorCode)
			switch {
			case err == nil:
				o.ep.acknowledged(o)
				e.failing.passed(o.ep.tp)
				continue
			case errors.Is(err, kerr.OffsetMetadataTooLarge) && o.metadata != "":
				e.metadataRefused(o)
				continue
			}
			e.refused(o.ep, err)
			if first == nil {
				first = fmt.Errorf("%s[%d]: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return first
}

// errUnanswered: the answer to a commit says nothing of a partition that the request named.
var errUnanswered = errors.New("gapless: the broker's answer left the partition out")

// unanswered finds partitions that the answer left out: silence is not an acknowledgement (C4).
func (e *Engine) unanswered(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, sent offers) (first error) {
	answered := map[tp]bool{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			answered[tp{t.Topic, p.Partition}] = true
		}
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			at := tp{t.Topic, p.Partition}
			if answered[at] {
				continue
			}
			e.commitFailed(map[tp]*epoch{at: sent[at].ep}, errUnanswered)
			if first == nil {
				first = fmt.Errorf("%s[%d]: %w", at.topic, at.partition, errUnanswered)
			}
		}
	}
	return first
}

func (ep *epoch) acknowledged(o *offer) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.acked = o.offset
	ep.said, ep.saidPlain = o.says, o.plain
	ep.claim = false
	if ep.troubles != nil {
		ep.troubles.commitErr, ep.troubles.commitFails = nil, 0
	}
	ep.forgetRuns(o.offset)
}

func (ep *epoch) committed() int64 {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.acked
}

// refused handles a commit that the broker refused for a partition: fatal, fenced or to be tried again at the next tick.
func (e *Engine) refused(ep *epoch, err error) {
	switch {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedMemberEpoch), errors.Is(err, kerr.FencedInstanceID) && !e.isPresent(ep):
		e.failing.failed(ep.tp, err)
		e.thrownOut(ep, err)
		return
	case errors.Is(err, kerr.FencedInstanceID):
		e.lose([]*epoch{ep}, err.Error())
		e.sessionError(err)
		return
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		e.checkTopics() // deleted, or deleted and created again
	case errors.Is(err, kerr.GroupAuthorizationFailed), errors.Is(err, kerr.TopicAuthorizationFailed):
		e.once("commit-acl:"+ep.topic, Event{Name: EventCommitFailed, Topic: ep.topic, Partition: ep.partition, Err: err,
			Hint: fmt.Sprintf("grant READ on group %q and on topic %q to this user", e.cfg.Group, ep.topic)})
	}
	e.commitFailed(map[tp]*epoch{ep.tp: ep}, err)
}

// isPresent says whether an epoch is of the member that this process is now. A static one that has lost its session and joins again fences its
// own earlier member id, and the answer to that one's last commit may come later.
func (e *Engine) isPresent(ep *epoch) bool {
	member, _ := e.cl.GroupMetadata()
	return ep.owner.MemberID == member && !ep.is(phaseClosed)
}

// thrownOut ends what the group has taken from this member: another may own the partition by now. Where the epoch was renewed while its
// commit was under way, that is its successor; where its session has ended, it is nothing.
func (e *Engine) thrownOut(ep *epoch, err error) {
	e.mu.Lock()
	at := e.epochs[ep.tp]
	e.mu.Unlock()
	if at == nil || at.owner.MemberID != ep.owner.MemberID || at.owner.Generation != ep.owner.Generation {
		return
	}
	e.lose([]*epoch{at}, "the group no longer knows this member: "+err.Error())
	e.mu.Lock()
	e.adrift[at.tp] = time.Now().Add(e.cfg.SessionTimeout) // until the client hears of it, too
	e.mu.Unlock()
}

// commitFailed notes a failure. The offsets stay dirty, so the next tick sends them, or better ones, again.
func (e *Engine) commitFailed(eps map[tp]*epoch, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	worthTelling := 1
	if errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.StaleMemberEpoch) {
		worthTelling = 3 // a commit that meets a rebalance is refused as a matter of course, and sent again
	}
	for _, ep := range eps {
		e.failing.failed(ep.tp, err)
		ep.mu.Lock()
		t := ep.trouble()
		t.commitErr = err
		t.commitFails++
		n := t.commitFails
		ep.mu.Unlock()
		if n == worthTelling || n%60 == 0 {
			e.emit(Event{Name: EventCommitFailed, Topic: ep.topic, Partition: ep.partition, Err: err, Count: int64(n), Hint: "tried again with the next commit"})
		}
	}
}
