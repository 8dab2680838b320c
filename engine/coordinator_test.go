package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var briefSession = kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "500", "group.consumer.session.timeout.ms": "20000"})

// C3, C9: a member whose heartbeats are answered by brokers that are not the group's coordinator, or not yet, is not counted on by the group.
// A KIP-848 client asks again for ever and says nothing: the member suspends, and comes back when there is a coordinator.
func TestHeartbeatsThatReachNoCoordinator(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress} {
		t.Run(code.Message, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				gates := w.shut("stays")
				cause := make(chan error, 1)
				c := brisk(w.config(func(ctx context.Context, r *Record) error {
					err := gates.pass(ctx, r)
					if err != nil {
						select {
						case cause <- err:
						default:
						}
					}
					return err
				}))
				c.Protocol = ProtocolConsumer
				m := w.start(c)
				w.produce(0, "stays")
				w.eventually("it runs", func() bool { return gates.isAt("stays") })
				astray := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, TopLevel: true, Err: code, Count: -1})
				begun := time.Now()
				m.awaitName(EventSuspended)
				if took := time.Since(begun); took > c.SessionTimeout+time.Second {
					w.Errorf("suspended after %v", took)
				}
				if err := <-cause; !errors.Is(err, errSuspended) {
					w.Errorf("the handler's context ended because %v", err)
				}
				for range 60 {
					time.Sleep(time.Second)
					if ok, _ := m.e.Healthy(); ok {
						w.Fatalf("it passes for healthy: %v", m.names())
					}
				}
				astray.Remove()
				gates.openAll()
				w.produce(1, "a")
				w.eventually("committed", func() bool { return w.committed("t", 0) == 1 && w.committed("t", 1) == 1 })
				w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
				w.settled(m)
				m.stop()
			}, briefSession)
		})
	}
}

// C3: commits that no coordinator takes (as where too few replicas of the offsets' log are in sync) make the client look for one, too. They
// say nothing against heartbeats that are answered well: nothing is suspended, and handlers go on.
func TestCommitsThatReachNoCoordinator(t *testing.T) {
	eachProtocol(t, 1, func(w *world, config func(HandlerFunc) Config) {
		gates := w.shut("stays")
		m := w.start(config(func(ctx context.Context, r *Record) error { return gates.pass(ctx, r) }))
		w.eventually("assigned", func() bool { return len(m.owns()) == 1 })
		astray := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: "t", Err: kerr.CoordinatorNotAvailable, Count: -1})
		w.produce(0, "a", "stays")
		w.eventually("ill", func() bool { ok, _ := m.e.Healthy(); return !ok })
		time.Sleep(5 * time.Minute)
		if came, left := gates.calls("stays"); came != 1 || left != 0 || m.count(EventSuspended) > 0 {
			w.Errorf("the handler was called %d times and returned %d times: %v", came, left, m.names())
		}
		astray.Remove()
		gates.openAll()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 2 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	}, briefSession)
}

// C9: a member that was thrown out and then is never let in again is ill, though its client, which takes the refusal for one that passes,
// says nothing.
func TestThrownOutAndNeverLetIn(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.Protocol = ProtocolConsumer
		m := w.start(c)
		w.eventually("assigned", func() bool { return len(m.owns()) == 1 })
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, TopLevel: true, Err: kerr.StaleMemberEpoch, Count: -1})
		m.awaitName(EventLost)
		w.eventually("ill", func() bool { ok, _ := m.e.Healthy(); return !ok })
		refused.Remove()
		w.produce(0, "a")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}

// C9: sessions that a broker ends as they begin, as rebalances, bring a KIP-848 member nothing: it never reads what it is to have. That is ill
// health, and rebalances in which members come and go are not.
func TestSessionsThatEndAsTheyBegin(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.Protocol = ProtocolConsumer
		m := w.start(c)
		w.eventually("assigned", func() bool { return len(m.owns()) == 2 })
		var restless atomic.Bool
		restless.Store(true)
		w.cluster.ControlKey(int16(kmsg.ConsumerGroupHeartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if !restless.Load() {
				return nil, nil, false
			}
			time.Sleep(10 * time.Millisecond) // else the client would ask for ever in no time at all
			resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
			resp.ErrorCode = kerr.RebalanceInProgress.Code
			return resp, nil, true
		})
		w.eventually("ill", func() bool { _, why := m.e.Healthy(); return why["rebalances"] != "" })
		restless.Store(false)
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		h := func(context.Context, *Record) error { return nil }
		m := w.start(config(h))
		for begun := time.Now(); time.Since(begun) < 2*restlessWithin+time.Second; {
			other := w.start(config(h))
			w.eventually("shared", func() bool { return len(m.owns()) == 1 && len(other.owns()) == 1 })
			time.Sleep(time.Second)
			other.stop()
			w.eventually("alone", func() bool { return len(m.owns()) == 2 })
			if _, why := m.e.Healthy(); why["rebalances"] != "" {
				w.Fatalf("ill: %v", why)
			}
		}
		m.stop()
	})
}
