package enginetest

import (
	"bytes"
	"context"
	"testing"

	"github.com/gaplesshq/gapless/engine"
)

// C9: a topic that was deleted and created again has new records under old offsets. The client would wait for ever for those
// that come after the old ones; the engine notices the new id and consumes all of it.
func TestRecreatedTopicIsConsumedAfresh(t *testing.T) {
	t.Parallel() // it waits for the engine's look at the topics, every five seconds
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		t.Parallel()
		w := newWorld(t, 2)
		w.produceAll(30, 5)
		l, fresh := w.ledger(), w.ledger()
		c := w.config(func(ctx context.Context, r *engine.Record) error {
			if bytes.HasPrefix(r.Key, []byte("new")) {
				return fresh.keep(nil)(ctx, r)
			}
			return l.keep(nil)(ctx, r)
		})
		set(&c)
		m := w.start(c)
		l.reaches(60)
		w.noLagLeft()

		w.deleteTopic()
		w.cluster.CreateTopic(t, w.topic, 2, nil)
		w.reconnect()
		for p := range w.parts {
			w.produce(p, "new0=0", "new1=1", "new0=2") // fewer than there were
		}
		m.hears(engine.EventTopicRecreated)
		fresh.reaches(6)
		w.noLagLeft()
		for p := range w.parts {
			w.produce(p, "new=3")
		}
		fresh.reaches(8)
		w.noLagLeft()
		if ok, problems := m.e.Healthy(); !ok {
			t.Errorf("not healthy: %v", problems)
		}
		m.stop()
		l.eachOnce(30)
		fresh.eachOnce(4)
	})
}

func (w *world) deleteTopic() {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	if _, err := w.adm.DeleteTopic(ctx, w.topic); err != nil {
		w.Fatal(err)
	}
	w.eventually("the topic is gone", func() bool {
		details, err := w.adm.ListTopics(ctx, w.topic)
		return err == nil && details[w.topic].Err != nil
	})
}

// C2, C6: a partition that is added while a group runs is consumed from its beginning, also where the group began at the end:
// all that is in it is new to the group. That keys move is said.
func TestAddedPartitionIsConsumedFromItsBeginning(t *testing.T) {
	t.Parallel() // it waits for the engine's look at the topics, every five seconds
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		t.Parallel()
		w := newWorld(t, 2)
		w.produceAll(5, 5)
		l := w.ledger()
		c := w.config(l.keep(nil))
		c.Start = engine.StartLatest
		set(&c)
		m := w.start(c)
		m.owns(2)
		w.noLagLeft()

		ctx, cancel := patient()
		defer cancel()
		if _, err := w.adm.UpdatePartitions(ctx, 3, w.topic); err != nil {
			t.Fatal(err)
		}
		w.parts = 3
		w.eventually("the broker has the new partition", func() bool {
			details, err := w.adm.ListTopics(ctx, w.topic)
			return err == nil && len(details[w.topic].Partitions) == 3 && details[w.topic].Partitions[2].Err == nil
		})
		w.reconnect()
		w.produce(2, keyed(20, 5)...)
		if ev := m.hears(engine.EventPartitionsAdded); ev.Count != 3 || ev.Hint == "" {
			t.Errorf("event %+v", ev)
		}
		m.owns(3)
		l.reaches(20)
		w.noLagLeft()
		m.stop()
		if got := l.offsets(2); len(got) != 20 || got[0] != 0 {
			t.Errorf("handled %v of the new partition", got)
		}
		if n := len(l.offsets(0)) + len(l.offsets(1)); n != 0 {
			t.Errorf("handled %d records of before the start", n)
		}
	})
}

// C9: a topic that is deleted for good is said, and is a health failure.
func TestDeletedTopicIsReported(t *testing.T) {
	t.Parallel() // it waits for the engine's look at the topics, every five seconds
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		t.Parallel()
		w := newWorld(t, 1)
		w.produceAll(3, 3)
		l := w.ledger()
		c := w.config(l.keep(nil))
		set(&c)
		m := w.start(c)
		l.reaches(3)
		w.noLagLeft()
		w.deleteTopic()
		if ev := m.hears(engine.EventTopicDeleted); ev.Topic != w.topic {
			t.Errorf("event %+v", ev)
		}
		w.eventually("unhealthy", func() bool { ok, _ := m.e.Healthy(); return !ok })
		m.stop()
	})
}

// C1: a pattern, which under KIP-848 the broker matches, does not consume the dead letters of what it matches, or they would
// go round for ever.
func TestPatternLeavesItsDeadLettersAlone(t *testing.T) {
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		w := newWorld(t, 1)
		l := w.ledger()
		dead := w.ledger()
		c := w.config(func(ctx context.Context, r *engine.Record) error {
			if r.Topic != w.topic {
				return dead.keep(nil)(ctx, r)
			}
			if r.Offset == 0 {
				return engine.Permanent(errBoom)
			}
			return l.keep(nil)(ctx, r)
		})
		c.Topics, c.TopicPattern = nil, w.topic[:len(w.topic)-2]
		c.DeadLetter = engine.DeadLetter{}
		set(&c)
		for run := range 2 { // at the second start there is a dead letter to be consumed
			w.produceAll(3, 3)
			m := w.start(c)
			l.reaches(3*run + 2)
			w.noLagLeft()
			m.stop()
		}
		if n := dead.handled(); n != 0 {
			t.Errorf("%d dead letters were consumed", n)
		}
		if rs := w.read(w.topic+".dlq", 1); len(rs) != 1 {
			t.Errorf("%d dead letters", len(rs))
		}
	})
}
