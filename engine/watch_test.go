package engine

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C9, C3: a handler that never returns costs one worker, is reported, and holds its offset and its key; other keys go
// on. When the partition is lost and it returns after all, that changes nothing.
// Seen at riverqueue/river#78.
func TestStuckHandler(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		gates := w.shut("k=stuck")
		c := brisk(w.config(func(_ context.Context, r *Record) error { return gates.pass(context.Background(), r) }))
		c.Workers, c.StuckAfter = 2, 10*time.Second
		w.produce(0, "j=0", "k=stuck", "k=2", "j=3")
		m := w.start(c)
		if ev := m.awaitName(EventStuck); ev.Offset != 1 || ev.Took < 10*time.Second || ev.Took > 12*time.Second {
			t.Errorf("stuck: %+v", ev)
		}
		w.produce(0, numbered("j=", 100)...)
		w.eventually("the rest goes on", func() bool { return m.e.Status().Counts.Handled == 102 })
		if ok, _ := m.e.Healthy(); ok || w.committed("t", 0) != 1 {
			t.Errorf("healthy %v, committed %d", ok, w.committed("t", 0))
		}
		if n := m.count(EventStuck); n != 1 {
			t.Errorf("%d events", n)
		}
		w.kick(m.id())
		m.awaitName(EventLost)
		w.eventually("back", func() bool { return len(m.owns()) == 1 && m.part(0).Position == 104 })
		time.Sleep(5 * time.Second)
		if came, _ := gates.calls("k=stuck"); came != 1 {
			t.Errorf("its key runs twice")
		}
		gates.openAll()
		m.awaitName(EventUnstuck)
		w.eventually("all committed", func() bool { return w.committed("t", 0) == 104 })
		if n := m.e.Status().Counts.StaleCompletions; n != 1 {
			t.Errorf("%d stale completions", n)
		}
		w.settled(m)
		m.stop()
	})
}

// C9: fetches that bring nothing while the log goes on are reported; an idle topic is not.
// Seen at segmentio/kafka-go#955.
func TestStalledFetch(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var calls atomic.Int32
		c := brisk(w.config(func(context.Context, *Record) error { calls.Add(1); return nil }))
		c.StalledAfter = 20 * time.Second
		w.produce(0, "x")
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		time.Sleep(5 * time.Minute)
		if n := m.count(EventStalled) + m.count(EventOpenTransaction); n != 0 {
			t.Errorf("an idle topic is called stalled: %v", m.names())
		}
		release := w.stall(nil, kmsg.Fetch)
		w.produce(0, "y")
		ev := m.awaitName(EventStalled)
		if ok, _ := m.e.Healthy(); ok || ev.Count != 1 {
			t.Errorf("healthy %v, %+v", ok, ev)
		}
		release()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 2 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}

// C9: a transaction that nobody ends holds everything behind it back, and the event says that it is that.
// Seen at segmentio/kafka-go#955.
func TestHangingTransaction(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		tx := w.client(kgo.TransactionalID("tx"), kgo.TransactionTimeout(10*time.Minute))
		defer tx.Close()
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(context.Background(), &kgo.Record{Topic: "t", Value: []byte("open")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		var log callLog
		c := brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
		c.StalledAfter = 20 * time.Second
		w.produce(0, "behind")
		m := w.start(c)
		m.awaitName(EventOpenTransaction)
		if n := m.count(EventStalled); n != 0 || log.len() != 0 {
			t.Errorf("%d stalled, handled %v", n, log.all())
		}
		if err := tx.EndTransaction(context.Background(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}

// Static members: a restart within the session gets the same partitions, and nobody else notices. LeaveOnStop gives them up.
func TestStaticMembers(t *testing.T) {
	for _, p := range protocols {
		for _, leave := range []bool{false, true} {
			name := p.name
			if leave {
				name += " leaves"
			}
			t.Run(name, func(t *testing.T) {
				inWorld(t, 4, func(w *world) {
					config := func(id string) Config {
						c := brisk(w.config(func(context.Context, *Record) error { return nil }))
						p.set(&c)
						c.InstanceID, c.LeaveOnStop = id, leave
						return c
					}
					a, b := w.start(config("a")), w.start(config("b"))
					w.eventually("two each", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 })
					tr := w.trace()
					had, revoked, assigned := a.owns(), b.count(EventRevoked), b.count(EventAssigned)
					id := a.id()
					a.stop()
					if left := len(tr.of(kmsg.LeaveGroup, id)) > 0; p.name != "KIP-848" && left != leave {
						t.Errorf("a leave was sent: %v", left)
					}
					if leave {
						w.eventually("B has all", func() bool { return len(b.owns()) == 4 })
						b.stop()
						return
					}
					time.Sleep(3 * time.Second)
					a = w.start(config("a"))
					w.eventually("the same again", func() bool { return slices.Equal(a.owns(), had) })
					time.Sleep(5 * time.Second)
					// An eager client that leads the group balances anew after its restart (KIP-814), with the same result.
					if p.name != "eager" && (b.count(EventRevoked) != revoked || b.count(EventAssigned) != assigned) {
						t.Errorf("B noticed: %v", b.names())
					}
					w.produce(had[0], "x")
					w.eventually("it works", func() bool { return w.committed("t", had[0]) == 1 })
					a.stop()
					b.stop()
				}, kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "500", "group.consumer.session.timeout.ms": "30000"}))
			})
		}
	}
}

// C9: a broker that answers each fetch with an error for all of it, and a client that waits for another answer before it fetches, are not
// taken for a log whose tail was compacted away.
func TestFetchesThatBringNothing(t *testing.T) {
	for name, spoil := range map[string]func(w *world) (mend func()){
		"an error for the whole fetch": func(w *world) func() {
			return w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, TopLevel: true, Err: kerr.UnknownServerError, Count: -1}).Remove
		},
		"the leader epoch is not told": func(w *world) func() { return w.stall(nil, kmsg.OffsetForLeaderEpoch) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				w.produce(0, "a", "b")
				var at kadm.Offsets
				at.Add(kadm.Offset{Topic: "t", Partition: 0, At: 1, LeaderEpoch: 0})
				if err := w.adm.CommitAllOffsets(context.Background(), testGroup, at); err != nil {
					t.Fatal(err)
				}
				mend := spoil(w)
				c := w.config(func(context.Context, *Record) error { return nil })
				m := w.start(c)
				if ev := m.awaitName(EventStalled); ev.Err == nil {
					t.Errorf("%+v", ev)
				}
				if ok, _ := m.e.Healthy(); ok {
					t.Error("healthy")
				}
				mend()
				w.eventually("committed", func() bool { return w.committed("t", 0) == 2 })
				w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
				m.stop()
			})
		})
	}
}
