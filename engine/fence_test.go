package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C3: a member that was thrown out learns it from a refused commit; its client rejoins under
// another member id and then reports its old partitions as revoked. A commit there would carry the new id, be accepted, and
// rewind the new owner. Partition 0 has something to commit when the news comes; the others have only running handlers, which
// finish during that revoke.
// Seen at redpanda-data/connect#4477.
func TestStaleCommitDoesNotRewind(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		gates := w.shut("0-3", "1-3", "2-3")
		c := brisk(w.config(func(_ context.Context, r *Record) error { return gates.pass(context.Background(), r) }))
		c.HeartbeatInterval = 10 * time.Second // the commit is to bring the news
		c.Order = OrderPartition
		allAt := func(at int64) func() bool {
			return func() bool {
				return w.committed("t", 0) == at && w.committed("t", 1) == at && w.committed("t", 2) == at
			}
		}
		for p := range int32(3) {
			w.produce(p, numbered(fmt.Sprint(p, "-"), 10)...)
		}
		a := w.start(c)
		w.eventually("all at 3", allAt(3))
		first := a.id()
		w.kick(first)
		b := w.start(brisk(w.config(func(context.Context, *Record) error { return nil })))
		w.eventually("B has and commits all", allAt(10))
		if at := a.id(); at != first {
			w.Fatalf("A knows already: %s", at)
		}
		tr := w.trace()
		gates.open("0-3") // A settles and commits 0: refused
		w.eventually("A is back under another id", func() bool { return a.id() != first })
		time.Sleep(time.Second)
		gates.openAll()
		w.eventually("A has its share", func() bool { return len(a.owns()) > 0 && len(a.owns())+len(b.owns()) == 3 })
		time.Sleep(10 * time.Second)
		for p := range int32(3) {
			if at := w.committed("t", p); at != 10 {
				w.Errorf("partition %d: the commit went back to %d", p, at)
			}
		}
		for _, r := range tr.of(kmsg.OffsetCommit, a.id()) {
			for at, o := range r.offsets {
				if o < 10 {
					w.Errorf("sent under the new member id: %v %d", at, o)
				}
			}
		}
		for p := range int32(3) {
			w.produce(p, "x")
		}
		w.eventually("all go on", allAt(11))
		a.stop()
		b.stop()
	})
}

// C3, C9: a member that was thrown out and is alone comes back and goes on: nothing is silent for ever. It learns of
// it by a heartbeat, or by a commit.
// Seen at twmb/franz-go#1338.
func TestThrownOutAndAlone(t *testing.T) {
	for _, heartbeat := range []time.Duration{200 * time.Millisecond, 10 * time.Second} {
		for _, p := range protocols {
			t.Run(fmt.Sprint(p.name, heartbeat), func(t *testing.T) {
				inWorld(t, 2, func(w *world) {
					var log callLog
					c := brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
					p.set(&c)
					c.HeartbeatInterval = heartbeat
					a := w.start(c)
					w.produce(0, "x")
					w.produce(1, "x")
					w.eventually("committed", func() bool { return w.committed("t", 0) == 1 && w.committed("t", 1) == 1 })
					if p.name == "KIP-848" {
						w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, Err: errCode("UNKNOWN_MEMBER_ID"), TopLevel: true})
					} else {
						w.kick(a.id())
					}
					w.produce(0, numbered("a", 10)...)
					w.produce(1, numbered("b", 10)...)
					begun := time.Now()
					w.eventually("committed", func() bool { return w.committed("t", 0) == 11 && w.committed("t", 1) == 11 })
					if took := time.Since(begun); took > time.Minute {
						w.Errorf("it took %v", took)
					}
					w.produce(0, "y")
					w.produce(1, "y")
					w.eventually("committed", func() bool { return w.committed("t", 0) == 12 && w.committed("t", 1) == 12 })
					w.settled(a)
					a.stop()
				})
			})
		}
	}
}

// C3: past its session without an answer of the coordinator the engine suspends: handler contexts end, nothing starts and
// nothing is committed. If the group still counts on it then, it goes on; an attempt that the engine ended does not count.
func TestSuspendedAndResumed(t *testing.T) {
	eachProtocol(t, 1, func(w *world, config func(HandlerFunc) Config) {
		var mu sync.Mutex
		var calls []string
		var causes []error
		suspended := false
		gates := w.shut("k=1")
		c := config(func(ctx context.Context, r *Record) error {
			mu.Lock()
			calls = append(calls, fmt.Sprint(string(r.Value), " ", r.Attempt))
			if suspended {
				w.Errorf("%s starts while suspended", r.Value)
			}
			mu.Unlock()
			err := gates.pass(ctx, r)
			if err != nil {
				mu.Lock()
				causes = append(causes, err)
				mu.Unlock()
				return ctx.Err()
			}
			return nil
		})
		c.Retry.Attempts = 1
		w.produce(0, "k=0", "k=1", "k=2")
		a := w.start(c)
		w.eventually("k=1 runs", func() bool { return gates.isAt("k=1") && w.committed("t", 0) == 1 })
		a.e.clock.setLimit(2 * time.Second) // below the broker's, so that the group still counts on it
		release := w.stall(nil, kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat)
		begun := time.Now()
		ev := a.awaitName(EventSuspended)
		if took := time.Since(begun); took < time.Second || took > 3*time.Second || ev.Count != 1 {
			w.Errorf("suspended after %v, %d partitions", took, ev.Count)
		}
		mu.Lock()
		suspended = true
		mu.Unlock()
		w.eventually("the context ended", func() bool { mu.Lock(); defer mu.Unlock(); return len(causes) == 1 })
		if !errors.Is(causes[0], errSuspended) {
			w.Errorf("cause %v", causes[0])
		}
		if err := a.e.Commit(context.Background()); !errors.Is(err, errSuspended) {
			w.Errorf("commit: %v", err)
		}
		w.produce(0, "j=3")
		time.Sleep(time.Second)
		if st := a.e.Status(); !st.Suspended || st.Healthy {
			w.Errorf("suspended %v, healthy %v", st.Suspended, st.Healthy)
		}
		mu.Lock()
		suspended = false
		mu.Unlock()
		release()
		a.awaitName(EventResumed)
		gates.openAll()
		w.eventually("all committed", func() bool { return w.committed("t", 0) == 4 })
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(calls)
		if !slices.Equal(calls, []string{"j=3 1", "k=0 1", "k=1 1", "k=1 1", "k=2 1"}) {
			w.Errorf("calls %v", calls)
		}
		if n := a.e.Status().Counts.DeadLettered; n != 0 {
			w.Errorf("%d dead letters", n)
		}
		a.stop()
	})
}

// C3: an attempt that a suspension ended may return long after the engine has resumed. It was not the record's fault then
// either, and with one attempt in all it must not become a dead letter.
func TestSlowReturnAfterSuspension(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		gates := w.shut("slow")
		var attempts []int
		c := brisk(w.config(func(ctx context.Context, r *Record) error {
			attempts = append(attempts, r.Attempt)
			if err := gates.pass(context.Background(), r); err != nil {
				return err
			}
			return ctx.Err()
		}))
		c.Retry.Attempts = 1
		w.produce(0, "slow")
		a := w.start(c)
		w.eventually("it runs", func() bool { return gates.isAt("slow") })
		a.e.clock.judge(true)
		a.e.clock.judge(false)
		gates.openAll()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		if !slices.Equal(attempts, []int{1, 1}) || a.e.Status().Counts.DeadLettered != 0 {
			w.Errorf("attempts %v, %d dead letters", attempts, a.e.Status().Counts.DeadLettered)
		}
		a.stop()
	})
}

// C3: the coordinator is mute for one member until it has thrown it out, and then says so. From the suspension on no handler of
// the old epoch starts: by then another member owns the partition. An answered heartbeat alone is no proof of membership.
func TestSuspendedAndThrownOut(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		var mu sync.Mutex
		var lastSequence uint64
		suspended := false
		c := config(func(ctx context.Context, r *Record) error {
			mu.Lock()
			if suspended && r.Owner().Sequence <= lastSequence {
				w.Errorf("%s starts for an epoch that another member owns", r.Value)
			}
			if !suspended {
				lastSequence = max(lastSequence, r.Owner().Sequence)
			}
			mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			return ctx.Err()
		})
		c.SessionTimeout, c.HeartbeatInterval, c.Workers = 10*time.Second, 2*time.Second, 2
		w.produce(0, numbered("a", 100)...)
		w.produce(1, numbered("b", 100)...)
		a := w.start(c)
		w.eventually("it works", func() bool { return w.committed("t", 0) > 2 && w.committed("t", 1) > 2 })
		release := w.stall(ofMember(a.id()), kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat)
		a.await("suspended or lost", func(ev Event) bool { return ev.Name == EventSuspended || ev.Name == EventLost })
		mu.Lock()
		suspended = true
		mu.Unlock()
		b := w.start(config(func(context.Context, *Record) error { return nil }))
		w.eventually("B has its share", func() bool { return len(b.owns()) > 0 })
		release()
		w.eventually("A has its own again", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
		w.eventually("all committed", func() bool { return w.committed("t", 0) == 100 && w.committed("t", 1) == 100 })
		a.stop()
		b.stop()
	}, kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "2000", "group.consumer.session.timeout.ms": "10000"}))
}

// C3: an answered heartbeat may say that the member is unknown, which the engine does not see. So the first one after a
// suspension does not resume it; one that was sent after that does.
func TestOneAnswerProvesNothing(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.HeartbeatInterval = 10 * time.Second
		m := w.start(c)
		w.eventually("here", func() bool { return len(m.owns()) == 1 })
		time.Sleep(2 * time.Second) // the client's own first heartbeat is over
		m.e.clock.judge(true)
		for i, want := range []bool{true, false} {
			m.e.clock.OnBrokerE2E(kgo.BrokerMetadata{}, int16(kmsg.Heartbeat), kgo.BrokerE2E{})
			time.Sleep(time.Second)
			if got := m.e.Status().Suspended; got != want {
				t.Errorf("suspended %v after answer %d", got, i+1)
			}
		}
		w.produce(0, "x")
		w.eventually("it goes on", func() bool { return w.committed("t", 0) == 1 })
		m.stop()
	})
}

// C3: whatever a handler returns once its partition is lost - success with outputs, a permanent failure, a hold - it is up to the
// next owner: nothing is written, settled or stopped for it.
// Seen at spring-projects/spring-kafka#4687.
func TestOutcomeAfterLoss(t *testing.T) {
	for _, outcome := range []string{"output", "permanent", "hold", "skip"} {
		t.Run(outcome, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				if err := w.cluster.CreateTopic("out", 1, nil); err != nil {
					t.Fatal(err)
				}
				gates := w.shut("k=0")
				calls := 0
				m := w.start(brisk(w.config(func(_ context.Context, r *Record) error {
					calls++
					if calls > 1 {
						return nil
					}
					_ = gates.pass(context.Background(), r)
					r.Emit(&kgo.Record{Topic: "out", Value: []byte("v")})
					return map[string]error{"permanent": Permanent(errBoom), "hold": Hold(errBoom), "skip": Skip("no")}[outcome]
				})))
				w.produce(0, "k=0")
				w.eventually("it runs", func() bool { return gates.isAt("k=0") })
				w.kick(m.id())
				m.awaitName(EventLost)
				gates.openAll()
				w.eventually("handled by the next epoch", func() bool { return w.committed("t", 0) == 1 })
				c := m.e.Status().Counts
				if c.StaleCompletions != 1 || c.DeadLettered != 0 || c.Skipped != 0 || m.count(EventHeld) != 0 {
					t.Errorf("%d stale, %d dead letters, %d skipped, %d held", c.StaleCompletions, c.DeadLettered, c.Skipped, m.count(EventHeld))
				}
				m.stop()
				for _, topic := range []string{"out", "t.dlq"} {
					if end := w.cluster.PartitionInfo(topic, 0).HighWatermark; end != 0 {
						t.Errorf("%s holds %d records", topic, end)
					}
				}
			})
		})
	}
}

// C3: a JoinGroup waits for the slowest member, longer than a session if need be. Its answer is no reason to suspend.
func TestSlowJoinDoesNotSuspend(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.start(brisk(w.config(func(context.Context, *Record) error { return nil })))
		w.eventually("here", func() bool { return len(m.owns()) == 1 })
		c := &sessionClock{}
		c.init(m.e) // its own clock: the client's heartbeats do not wind it
		begun := time.Now()
		c.OnBrokerE2E(kgo.BrokerMetadata{}, keyHeartbeat, kgo.BrokerE2E{})
		c.OnBrokerWrite(kgo.BrokerMetadata{}, keyJoinGroup, 0, 0, 0, nil)
		time.Sleep(40 * time.Second) // session 30 s, rebalance 30 s
		if d := c.deadline().Sub(begun); d != time.Minute {
			t.Errorf("while the join is out the deadline is %v away", d)
		}
		c.OnBrokerE2E(kgo.BrokerMetadata{}, keyJoinGroup, kgo.BrokerE2E{ReadWait: 40 * time.Second})
		if left := time.Until(c.deadline()); left <= 0 {
			t.Errorf("the join was answered, and the deadline has passed %v ago", -left)
		}
		c.OnBrokerE2E(kgo.BrokerMetadata{}, keySyncGroup, kgo.BrokerE2E{})
		if left := time.Until(c.deadline()); left != 30*time.Second {
			t.Errorf("after the sync the deadline is %v away", left)
		}
		m.stop()
	})
}
