package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// topicState is what was last heard of a topic.
type topicState struct {
	id         [16]byte
	partitions int
}

// logEndTick is how often the brokers are asked for ids and log ends. Fetches tell the ends, too, but not of partitions that
// are paused or idle; and the client never notices by itself that a topic was deleted and created again.
const logEndTick = 5 * time.Second

func (e *Engine) logEndLoop(ctx context.Context) {
	tick := time.NewTicker(logEndTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.topicKick:
		}
		e.resubscribe()
		if topics := e.watchedTopics(); len(topics) > 0 {
			e.lookAtTopics(ctx, topics)
		}
	}
}

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

func (e *Engine) lookAtTopics(ctx context.Context, names []string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	details, err := e.adm.ListTopics(ctx, names...)
	if err != nil {
		return // the brokers are not to be had: the clock and the committer notice
	}
	live := names[:0]
	for _, name := range names {
		if e.lookAtTopic(ctx, name, details[name]) {
			live = append(live, name)
		}
	}
	if len(live) > 0 {
		e.lookAtLogs(ctx, live)
	}
}

// lookAtTopic compares a topic with what it was. It says whether the topic is as it should be.
func (e *Engine) lookAtTopic(ctx context.Context, name string, t kadm.TopicDetail) bool {
	e.mu.Lock()
	was, known := e.topics[name]
	e.mu.Unlock()
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		e.topicDeleted(name)
		return false
	case t.Err != nil || t.Topic == "":
		return false
	case !known:
		e.noteTopic(t)
		if err := e.ensureDeadLetterTopic(ctx, t); err != nil {
			e.health.set("dead letter "+name, err)
			e.emit(Event{Name: EventDeadLetterFailed, Topic: name, Partition: -1, Err: err, Hint: "dead letters of this topic can't be written until this is mended"})
		}
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
	e.health.set("topic "+name, nil)
	return true
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

// lookAtLogs asks for the ends of the logs.
func (e *Engine) lookAtLogs(ctx context.Context, topics []string) {
	first, err1 := e.adm.ListStartOffsets(ctx, topics...)
	last, err2 := e.adm.ListEndOffsets(ctx, topics...)
	var stable kadm.ListedOffsets
	var err3 error
	if !e.cfg.ReadUncommitted {
		stable, err3 = e.adm.ListCommittedOffsets(ctx, topics...)
	}
	if err1 != nil || err2 != nil || err3 != nil {
		return
	}
	for _, ep := range e.allEpochs() {
		if o := listed(first, ep.tp); o >= 0 {
			ep.logStart.Store(o)
		}
		if o := listed(last, ep.tp); o >= 0 {
			ep.hwm.Store(o)
			if e.cfg.ReadUncommitted {
				ep.lso.Store(o)
			}
		}
		if o := listed(stable, ep.tp); o >= 0 {
			ep.lso.Store(o)
		}
	}
}
