package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// topicState is what was last heard of a topic.
type topicState struct {
	id         [16]byte
	partitions int
	missing    time.Time // since when the brokers do not know it; zero = they do
	gone       bool      // and it was said to be deleted
	toEnsure   bool      // its dead-letter topic could not be had yet
}

// missingFor is how long a topic must be unknown before it counts as deleted: a broker that has just started knows none.
const missingFor = time.Second

// logEndTick is how often the brokers are asked for ids and log ends. Fetches tell the ends, too, but not of partitions that
// are paused or idle; and the client never notices by itself that a topic was deleted and created again.
const logEndTick = 5 * time.Second

// logEndRetry is how long after a look that was not answered the next one comes.
const logEndRetry = time.Second

func (e *Engine) logEndLoop(ctx context.Context) {
	tick := time.NewTimer(logEndTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.topicKick:
		}
		again := logEndTick
		e.lookForRefused(ctx)
		e.resubscribe()
		e.lookForUnowned(ctx)
		topics := e.watchedTopics()
		e.forgetTopics(topics)
		if len(topics) > 0 && !e.lookAtTopics(ctx, topics) {
			again = logEndRetry // what is ill because of it is to be well again soon after the brokers are
		}
		e.forgetMetadata(topics)
		tick.Reset(again)
	}
}

// forgetMetadata has the side client let go of what the brokers have just said about the topics' partitions, some 330 bytes of each. It keeps
// that for good, and at the next look it would be too old to be used. It may take until a request of the client's own has an answer. While
// starts are asked for nothing is forgotten: the client could not name the topics of the group's offsets, which their brokers give by id.
func (e *Engine) forgetMetadata(topics []string) {
	topics = slices.Clone(topics)
	go func() {
		if e.asking.TryAcquire(everyAsk) {
			e.side.PurgeTopicsFromClient(topics...)
			e.asking.Release(everyAsk)
		}
	}()
}

// everyAsk is how many may ask for starts at a time.
const everyAsk = 1 << 30

// checkTopics asks for a look at the topics soon.
func (e *Engine) checkTopics() {
	select {
	case e.topicKick <- struct{}{}:
	default:
	}
}

// watchedTopics are those that are assigned here, and those that are configured by name: under KIP-848 the broker takes the
// partitions of a deleted topic away, and it is deleted all the same.
func (e *Engine) watchedTopics() []string {
	seen := map[string]bool{}
	topics := slices.Clone(e.cfg.Topics)
	for _, t := range topics {
		seen[t] = true
	}
	for _, ep := range e.allEpochs() {
		if !seen[ep.topic] {
			seen[ep.topic] = true
			topics = append(topics, ep.topic)
		}
	}
	return topics
}

// forgetTopics drops what speaks against topics that are no longer watched: nobody would take it back.
func (e *Engine) forgetTopics(watched []string) {
	e.mu.Lock()
	for name, t := range e.topics {
		if t.gone && !slices.Contains(watched, name) {
			delete(e.topics, name)
			delete(e.seen, "deleted:"+name)
		}
	}
	e.mu.Unlock()
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	for subject := range e.health.ill {
		for _, prefix := range []string{"topic ", "dead letter "} {
			if name, ok := strings.CutPrefix(subject, prefix); ok && !slices.Contains(watched, name) {
				delete(e.health.ill, subject)
			}
		}
	}
}

// listTopics asks for topics, one by one where a single forbidden one fails the listing of all.
func (e *Engine) listTopics(ctx context.Context, names []string) (kadm.TopicDetails, error) {
	details, err := e.adm.ListTopics(ctx, names...)
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return details, err
	}
	details = kadm.TopicDetails{}
	for _, name := range names {
		one, err := e.adm.ListTopics(ctx, name)
		if errors.Is(err, kerr.TopicAuthorizationFailed) {
			details[name] = kadm.TopicDetail{Topic: name, Err: err}
		} else if err == nil {
			details[name] = one[name]
		}
	}
	return details, nil
}

// lookAtTopics says whether the brokers have answered.
func (e *Engine) lookAtTopics(ctx context.Context, names []string) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	details, err := e.listTopics(ctx, names)
	if err != nil {
		return false // the brokers are not to be had: the clock and the committer notice
	}
	live := names[:0]
	for _, name := range names {
		if e.lookAtTopic(ctx, name, details[name]) {
			live = append(live, name)
		}
	}
	return len(live) == 0 || e.lookAtLogs(ctx, live)
}

// lookAtTopic compares a topic with what it was. It says whether the topic is as it should be.
func (e *Engine) lookAtTopic(ctx context.Context, name string, t kadm.TopicDetail) bool {
	e.mu.Lock()
	was, known := e.topics[name]
	e.mu.Unlock()
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		if was.missing.IsZero() {
			was.missing = time.Now()
		}
		was.gone = was.gone || time.Since(was.missing) >= missingFor
		e.setTopic(name, was)
		if was.gone {
			e.topicDeleted(name)
		}
		return false
	case errors.Is(t.Err, kerr.TopicAuthorizationFailed):
		e.topicError(name, t.Err)
		return false
	case t.Err != nil || t.Topic == "":
		return false
	case !known || was.id == [16]byte{} && was.partitions == 0:
		e.noteTopic(t)
		e.ensureLater(ctx, t)
		e.topicBack(name, was)
		e.health.set("topic "+name, nil)
		return true
	case t.ID != was.id && was.id != [16]byte{}:
		e.topicRecreated(t)
		return false
	case len(t.Partitions) > was.partitions:
		e.noteTopic(t)
		ev := Event{Name: EventPartitionsAdded, Topic: name, Partition: -1, Count: int64(len(t.Partitions))}
		if e.cfg.Order != OrderUnordered {
			ev.Hint = "keys move to other partitions with that: records of a key from before and after the growth may be handled at the same time"
		}
		e.emit(ev)
		e.cl.ForceMetadataRefresh() // else the group would hear of them at the client's next look, minutes from now
	}
	e.topicBack(name, was)
	if was.toEnsure {
		e.ensureLater(ctx, t)
	}
	e.health.set("topic "+name, nil)
	return true
}

func (e *Engine) setTopic(name string, s topicState) {
	e.mu.Lock()
	e.topics[name] = s
	e.mu.Unlock()
}

// topicBack takes back that a topic is missing: it is the same as before.
func (e *Engine) topicBack(name string, was topicState) {
	if was.missing.IsZero() {
		return
	}
	e.mu.Lock()
	s := e.topics[name]
	s.missing, s.gone = time.Time{}, false
	e.topics[name] = s
	delete(e.seen, "deleted:"+name)
	e.mu.Unlock()
	for _, ep := range e.allEpochs() {
		if ep.topic == name {
			e.resume(ep, stopTopicGone)
		}
	}
}

// ensureLater sees to the dead-letter topic of a topic that came up while running, until it is there.
func (e *Engine) ensureLater(ctx context.Context, t kadm.TopicDetail) {
	key := "dead letter " + t.Topic
	err := e.ensureDeadLetterTopic(ctx, t)
	e.mu.Lock()
	s := e.topics[t.Topic]
	failed := s.toEnsure
	s.toEnsure = err != nil
	e.topics[t.Topic] = s
	e.mu.Unlock()
	switch {
	case err != nil:
		e.health.set(key, err)
		if !failed {
			e.emit(Event{Name: EventDeadLetterFailed, Topic: t.Topic, Partition: -1, Err: err, Hint: "dead letters of this topic can't be written until this is mended; tried again"})
		}
	case failed:
		e.health.set(key, nil)
	}
}

func (e *Engine) topicDeleted(name string) {
	e.health.set("topic "+name, fmt.Errorf("topic %q was deleted", name))
	e.once("deleted:"+name, Event{Name: EventTopicDeleted, Topic: name, Partition: -1,
		Hint: "its partitions stop; if it is created again, it is consumed from its beginning"})
	for _, ep := range e.allEpochs() {
		if ep.topic == name {
			e.stop(ep, stopTopicGone, kerr.UnknownTopicOrPartition)
		}
	}
}

// topicRecreated begins anew: the offsets of the old topic mean nothing in the new one, and the client would go on with them.
// The broker dropped the group's commits in the old topic with it.
func (e *Engine) topicRecreated(t kadm.TopicDetail) {
	e.emit(Event{Name: EventTopicRecreated, Topic: t.Topic, Partition: -1, Hint: "the topic was deleted and created again; consumed from its first record on"})
	e.mu.Lock()
	delete(e.seen, "deleted:"+t.Topic)
	e.mu.Unlock()
	for _, ep := range e.allEpochs() {
		if ep.topic == t.Topic {
			e.end(ep, errLost)
		}
	}
	e.noteTopic(t)
	e.health.set("topic "+t.Topic, nil)
	e.consumeAnew(t.Topic)
}

// lookAtLogs asks for the ends of the logs. It says whether the brokers have answered.
func (e *Engine) lookAtLogs(ctx context.Context, topics []string) bool {
	first, err1 := listOffsets(ctx, e.adm.ListStartOffsets, topics)
	last, err2 := listOffsets(ctx, e.adm.ListEndOffsets, topics)
	var stable kadm.ListedOffsets
	var err3 error
	if !e.cfg.ReadUncommitted {
		stable, err3 = listOffsets(ctx, e.adm.ListCommittedOffsets, topics)
	}
	if err1 != nil || err2 != nil || err3 != nil {
		return false
	}
	var late []*epoch
	for _, ep := range e.allEpochs() {
		if o := listed(first, ep.tp); o >= 0 {
			ep.logStart.Store(o)
		}
		if o := listed(last, ep.tp); o >= 0 {
			ep.hwm.Store(o)
			ep.asked.Store(time.Now().UnixNano())
			if e.cfg.ReadUncommitted {
				ep.lso.Store(o)
			}
		}
		if o := listed(stable, ep.tp); o >= 0 {
			ep.lso.Store(o)
		}
		e.lookForEmptied(ep, listed(first, ep.tp), listed(last, ep.tp))
		if ep.waitsForLog() && listed(first, ep.tp) >= 0 && listed(last, ep.tp) >= 0 {
			late = append(late, ep)
		}
	}
	e.startLate(ctx, late)
	return true
}

// lookForEmptied finds a partition of which retention deleted all that was to come: no record will tell of the loss. What the
// client has fetched before may still come, so nothing may move between two looks.
func (e *Engine) lookForEmptied(ep *epoch, lo, hi int64) {
	ep.mu.Lock()
	stops := ep.stops
	ep.mu.Unlock()
	if !ep.is(phaseActive) || stops != 0 {
		ep.emptied = nil
		return
	}
	_, next := ep.tr.Next()
	if lo < 0 || lo != hi || next >= lo {
		ep.emptied = nil
		return
	}
	if ep.emptied == nil || ep.emptied.next != next {
		ep.emptied = &progress{next: next, at: time.Now()}
		return
	}
	if time.Since(ep.emptied.at) < logEndTick/2 {
		return
	}
	ep.emptied = nil
	e.lost(ep, next, lo-next)
	if e.cfg.OnDataLoss != DataLossStop {
		ep.tr.Pass(lo)
	}
}
