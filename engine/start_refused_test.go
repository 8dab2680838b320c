package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C9: the coordinator refuses to say where the group is in one partition: the partition waits, ill, and the others do not; it begins when it
// is told.
func TestOffsetsOfAPartitionAreRefused(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		w.produce(0, "a")
		w.produce(1, "b")
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Topic: "t", Partitions: []int32{1}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		m := w.start(config(func(context.Context, *Record) error { return nil }))
		w.eventually("the other", func() bool { return w.committed("t", 0) == 1 })
		time.Sleep(time.Minute)
		if ok, why := m.e.Healthy(); ok || m.count(EventLost) != 0 {
			w.Errorf("healthy %v %v: %v", ok, why, m.names())
		}
		refused.Remove()
		w.eventually("it begins", func() bool { return w.committed("t", 1) == 1 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		w.settled(m)
		m.stop()
	})
}

// C9: a member that is let in, given its partitions and thrown back each time because it can't learn where the group is in them is ill for as
// long as that lasts.
func TestSessionsThatComeToNothing(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		m := w.start(config(func(context.Context, *Record) error { return nil }))
		w.eventually("assigned", func() bool { return len(m.owns()) == 2 })
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: testGroup, Err: kerr.UnknownServerError, Count: -1})
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat}, TopLevel: true, Err: kerr.UnknownMemberID})
		w.eventually("ill", func() bool { ok, _ := m.e.Healthy(); return !ok && m.count(EventSessionEnded) > 3 })
		for range 60 {
			time.Sleep(time.Second)
			if ok, _ := m.e.Healthy(); ok {
				w.Fatalf("it passes for healthy: %v", m.names())
			}
		}
		refused.Remove()
		w.produce(0, "a")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}

// C8, C9: what may pass does not end a member that starts, whatever check meets it; a connection that is closed each time does, soon.
func TestTroubleAtStartPasses(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.FindCoordinator, kmsg.OffsetFetch, kmsg.CreateTopics} {
		t.Run(key.Name(), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				w.produce(0, "a")
				left := 2
				w.cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
					if left--; left < 0 {
						return nil, nil, false
					}
					w.cluster.KeepControl()
					return nil, errBoom, true // the connection is closed
				})
				w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.NotController, Count: 1}, kfake.Fault{Keys: []kmsg.Key{key}, TopLevel: true, Err: kerr.CoordinatorLoadInProgress, Count: 1})
				m := w.start(w.config(func(context.Context, *Record) error { return nil }))
				w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
				m.stop()
			})
		})
	}
	inWorld(t, 1, func(w *world) {
		w.cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			return nil, errBoom, true
		})
		begun := time.Now()
		err := <-w.launch(w.config(func(context.Context, *Record) error { return nil })).done
		if took := time.Since(begun); err == nil || took > 5*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// C9: a member that the group never answers is ill, once no session and no rebalance lasts so long, and well when it is let in, with
// partitions or without.
func TestNeverLetIn(t *testing.T) {
	eachProtocol(t, 1, func(w *world, config func(HandlerFunc) Config) {
		var let atomic.Bool
		for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.ConsumerGroupHeartbeat} {
			w.cluster.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
				w.cluster.KeepControl()
				hb, ok := req.(*kmsg.ConsumerGroupHeartbeatRequest)
				question := ok && hb.MemberEpoch < 0 // at start: a good-bye of nobody
				return nil, nil, !let.Load() && !question
			})
		}
		var members []*member
		for range 2 { // one of them will have no partition
			c := config(func(context.Context, *Record) error { return nil })
			members = append(members, w.start(c))
		}
		time.Sleep(members[0].e.cfg.SessionTimeout)
		for _, m := range members {
			if ok, why := m.e.Healthy(); !ok {
				w.Errorf("a rebalance may take as long: %v", why)
			}
		}
		for _, m := range members {
			w.eventually("ill", func() bool { ok, _ := m.e.Healthy(); return !ok })
		}
		let.Store(true)
		for _, m := range members {
			w.eventually("well", func() bool { ok, _ := m.e.Healthy(); return ok })
		}
		for _, m := range members {
			m.stop()
		}
	})
}
