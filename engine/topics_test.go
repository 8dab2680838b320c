package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unknown makes the broker say that it does not know the topics that it is asked for by name, until heal.
func (w *world) unknown() (heal func()) {
	var done atomic.Bool
	w.cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if done.Load() {
			return nil, nil, false
		}
		w.cluster.KeepControl()
		r := req.(*kmsg.MetadataRequest)
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		b := kmsg.NewMetadataResponseBroker()
		b.Host, b.Port, b.NodeID = "127.0.0.1", 9093, 0
		resp.Brokers = append(resp.Brokers, b)
		for _, t := range r.Topics {
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic, rt.TopicID, rt.ErrorCode = t.Topic, t.TopicID, kerr.UnknownTopicOrPartition.Code
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return func() { done.Store(true) }
}

func (w *world) topicExists(name string) bool {
	w.Helper()
	details, err := w.adm.ListTopics(context.Background(), name)
	return err == nil && details[name].Err == nil
}

// C9: brokers that do not know a topic for a while do not stop it for good.
func TestTopicUnknownForAWhile(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		m := w.start(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
		w.produce(0, "a")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		heal := w.unknown()
		m.awaitName(EventTopicDeleted)
		heal()
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		w.produce(0, "b")
		w.eventually("goes on", func() bool { return w.committed("t", 0) == 2 && log.len() == 2 })
		m.stop()
	})
}

// C9: a topic of a pattern that is deleted is no ill health for ever, and one that is created again is consumed at once.
func TestPatternTopicDeletedAndRecreated(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
		c.Topics, c.TopicPattern = nil, "^t$"
		w.produce(0, "old")
		m := w.start(c)
		w.eventually("the old one", func() bool { return w.committed("t", 0) == 1 })
		if err := w.cluster.DeleteTopic("t"); err != nil {
			t.Fatal(err)
		}
		if err := w.cluster.CreateTopic("t", 1, nil); err != nil {
			t.Fatal(err)
		}
		fresh := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		defer fresh.Close()
		begun := time.Now()
		if err := fresh.ProduceSync(context.Background(), &kgo.Record{Topic: "t", Value: []byte("new")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		w.eventually("the new one", func() bool { return log.len() == 2 })
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("took %v", took)
		}
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}

// C9: a dead-letter topic that can't be made for a topic that came up while running is tried again.
func TestDeadLetterTopicIsTriedAgain(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return nil })
		c.Topics, c.TopicPattern = nil, "^(t|u)$"
		c.KgoOpts = append(c.KgoOpts, kgo.MetadataMaxAge(10*time.Second))
		m := w.start(c)
		var refuse atomic.Bool
		refuse.Store(true)
		w.cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if !refuse.Load() {
				return nil, nil, false
			}
			w.cluster.KeepControl()
			r := req.(*kmsg.CreateTopicsRequest)
			if r.Topics[0].Topic != "u.dlq" {
				return nil, nil, false
			}
			resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.ErrorCode = "u.dlq", kerr.InvalidReplicationFactor.Code
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		if _, err := w.adm.CreateTopic(context.Background(), 1, 1, nil, "u"); err != nil {
			t.Fatal(err)
		}
		m.await("u.dlq fails", func(ev Event) bool { return ev.Name == EventDeadLetterFailed && ev.Topic == "u" })
		if ok, _ := m.e.Healthy(); ok {
			t.Error("healthy")
		}
		refuse.Store(false)
		w.eventually("made", func() bool { return w.topicExists("u.dlq") })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	}, kfake.DefaultNumPartitions(1))
}

// C2: a tail that compaction removed is the exception: it is said, and it is no ill health.
func TestCompactedTailIsNoIllHealth(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return nil })
		c.StalledAfter = 20 * time.Second
		m := w.start(c)
		w.produce(0, "a")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		w.cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			r := req.(*kmsg.ListOffsetsRequest)
			resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
			for _, t := range r.Topics {
				rt := kmsg.NewListOffsetsResponseTopic()
				rt.Topic = t.Topic
				for _, p := range t.Partitions {
					rp := kmsg.NewListOffsetsResponseTopicPartition()
					rp.Partition = p.Partition
					if p.Timestamp == -1 {
						rp.Offset = 3 // two offsets that no record has any more
					}
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		})
		if ev := m.awaitName(EventStalled); ev.Hint != compactedHint {
			t.Errorf("%+v", ev)
		}
		if ok, why := m.e.Healthy(); !ok {
			t.Errorf("unhealthy: %v", why)
		}
		m.stop()
	})
}

// C9: a topic that is forbidden does not stop the listing of the others.
func TestForbiddenTopicAmongOthers(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.start(w.config(func(context.Context, *Record) error { return nil }))
		w.cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			r := req.(*kmsg.MetadataRequest)
			asked := func(mt kmsg.MetadataRequestTopic) bool { return mt.Topic != nil && *mt.Topic == "u" }
			if !slices.ContainsFunc(r.Topics, asked) {
				return nil, nil, false
			}
			resp := r.ResponseKind().(*kmsg.MetadataResponse)
			b := kmsg.NewMetadataResponseBroker()
			b.Host, b.Port, b.NodeID = "127.0.0.1", 9093, 0
			resp.Brokers = append(resp.Brokers, b)
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic, rt.ErrorCode = kmsg.StringPtr("u"), kerr.TopicAuthorizationFailed.Code
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		details, err := m.e.listTopics(context.Background(), []string{"t", "u"})
		if err != nil || len(details["t"].Partitions) != 1 || !errors.Is(details["u"].Err, kerr.TopicAuthorizationFailed) {
			t.Error(details, err)
		}
		m.stop()
	}, kfake.SeedTopics(1, "t", "u"))
}

// C9: a member whose topic was deleted is not told that the group has too many members.
func TestIdleAfterADeletion(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return nil })
		c.Protocol = ProtocolConsumer
		m := w.start(c)
		w.eventually("claimed", func() bool { return w.committed("t", 0) == 0 })
		if err := w.cluster.DeleteTopic("t"); err != nil {
			t.Fatal(err)
		}
		m.awaitName(EventTopicDeleted)
		if ev := m.awaitName(EventNoPartitions); strings.Contains(ev.Hint, "more members") {
			t.Error(ev.Hint)
		}
		m.stop()
	})
}

// C9: what spoke against a topic that is no longer watched is forgotten.
func TestTopicNoLongerWatched(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.start(w.config(func(context.Context, *Record) error { return nil }))
		m.e.health.set("topic u", errBoom)
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}

// C9: what a client says of a topic for a moment is taken back with the next answer of the brokers, not at a slow tick; a topic that
// stays ill is not asked for all the time.
func TestTopicIllForAMoment(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.start(w.config(func(context.Context, *Record) error { return nil }))
		w.produce(0, "a")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		var asked atomic.Int64
		w.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if req.Key() == int16(kmsg.Metadata) {
				asked.Add(1)
			}
			return nil, nil, false
		})
		for range 3 {
			m.e.topicError("t", errBoom)
			if ok, _ := m.e.Healthy(); ok {
				t.Error("healthy")
			}
			synctest.Wait()
			if ok, problems := m.e.Healthy(); !ok {
				t.Error(problems)
			}
			time.Sleep(time.Second)
		}
		was := asked.Load()
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
		time.Sleep(time.Minute)
		if n := asked.Load() - was; n > 120 { // by two clients
			t.Errorf("asked %d times in a minute", n)
		}
		if ok, _ := m.e.Healthy(); ok {
			t.Error("healthy")
		}
		refused.Remove()
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}
