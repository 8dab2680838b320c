package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brisk shortens the group's times, so that a rebalance is over in a second. The session is longer than any drain here: kfake
// removes a member that waits in a join for longer than its session.
func brisk(c Config) Config {
	c.SessionTimeout, c.HeartbeatInterval = 30*time.Second, 200*time.Millisecond
	c.RebalanceTimeout, c.DrainTimeout, c.CommitTimeout = 30*time.Second, 5*time.Second, 2*time.Second
	return c
}

var protocols = []struct {
	name string
	set  func(*Config)
}{
	{"cooperative", func(*Config) {}},
	{"eager", func(c *Config) { c.Balancer = BalancerRange }},
	{"KIP-848", func(c *Config) { c.Protocol = ProtocolConsumer }},
}

// eachProtocol runs a scenario under every kind of group protocol.
func eachProtocol(t *testing.T, partitions int32, body func(w *world, config func(HandlerFunc) Config), opts ...kfake.Opt) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			inWorld(t, partitions, func(w *world) {
				body(w, func(h HandlerFunc) Config {
					c := brisk(w.config(h))
					p.set(&c)
					return c
				})
			}, opts...)
		})
	}
}

// C1, C3: members come and go, and every record is handled and committed by the one that has it. Nothing is handled twice in a
// clean rebalance, and nothing is lost.
// Seen at confluentinc/parallel-consumer#826, confluentinc/parallel-consumer#909.
func TestThreeMembersComeAndGo(t *testing.T) {
	eachProtocol(t, 6, func(w *world, config func(HandlerFunc) Config) {
		var log callLog
		h := func(_ context.Context, r *Record) error { log.add(r); return nil }
		round := 0
		produce := func() {
			for p := range int32(6) {
				w.produce(p, numbered(fmt.Sprintf("r%d p%d ", round, p), 20)...)
			}
			round++
			w.eventually("all handled and committed", func() bool {
				for p := range int32(6) {
					if w.committed("t", p) != int64(20*round) {
						return false
					}
				}
				return log.len() == 120*round
			})
		}
		a := w.start(config(h))
		produce()
		b := w.start(config(h))
		c := w.start(config(h))
		w.eventually("two each", func() bool { return len(a.owns()) == 2 && len(b.owns()) == 2 && len(c.owns()) == 2 })
		produce()
		b.stop()
		w.eventually("three each", func() bool { return len(a.owns()) == 3 && len(c.owns()) == 3 })
		produce()
		a.stop()
		w.eventually("all to the last", func() bool { return len(c.owns()) == 6 })
		produce()
		c.stop()
		handled := log.all()
		slices.Sort(handled)
		if once := slices.Compact(slices.Clone(handled)); len(once) != len(handled) {
			w.Errorf("%d records were handled twice", len(handled)-len(once))
		}
		for _, m := range w.members {
			if n := m.e.Status().Counts.StaleCompletions; n != 0 {
				w.Errorf("%d stale completions", n)
			}
		}
	})
}

// away makes m give at least one partition to a second member, and returns that member.
func (w *world) away(m *member, c Config) *member {
	w.Helper()
	lost := m.count(EventRevoked)
	other := w.start(c)
	w.eventually("something moved", func() bool { return len(other.owns()) > 0 && m.count(EventRevoked) > lost })
	return other
}

func (m *member) awaitRevoked(partition int32) Event {
	m.w.Helper()
	return m.await("revoked", func(ev Event) bool { return ev.Name == EventRevoked && ev.Partition == partition })
}

// C1, C3, C8: a revoke waits for what runs and gives up what does not: it commits what is settled, not what was
// delivered, and no handler starts for the old epoch once it has returned.
// Seen at confluentinc/parallel-consumer#826, smallrye/smallrye-reactive-messaging#1396, segmentio/kafka-go#1398, nuclio/nuclio#2988.
func TestRevokeGivesUpTheQueue(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		gates := w.shut("a0", "b0")
		var mu sync.Mutex
		calls := map[Owner]int64{}
		c := config(func(_ context.Context, r *Record) error {
			mu.Lock()
			calls[r.Owner()]++
			mu.Unlock()
			return gates.pass(context.Background(), r)
		})
		c.Order = OrderPartition
		w.produce(0, numbered("a", 100)...)
		w.produce(1, numbered("b", 100)...)
		a := w.start(c)
		w.eventually("the first of each runs", func() bool { return gates.isAt("a0") && gates.isAt("b0") })

		var log callLog
		b := w.launch(config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
		time.Sleep(2 * time.Second) // the revoke is under way, and waits
		if n := log.len(); n != 0 {
			w.Fatalf("the new owner handles while the old one drains: %d", n)
		}
		gates.open("a0", "b0")
		w.eventually("a partition moved", func() bool { return len(b.owns()) == 1 })
		p := b.owns()[0]
		ev := a.awaitRevoked(p)
		mu.Lock()
		if n := calls[ev.Owner]; n > 1 || ev.Offset != 1 || ev.Took > 5*time.Second {
			w.Errorf("%d calls, %d committed, in %v: only the record that ran was to be finished", n, ev.Offset, ev.Took)
		}
		mu.Unlock()
		w.eventually("all committed", func() bool { return w.committed("t", 0) == 100 && w.committed("t", 1) == 100 })
		mu.Lock()
		if n := calls[ev.Owner]; n != 1 || log.len() != 99 {
			w.Errorf("in the end %d calls of the old epoch, %d of the new one", n, log.len())
		}
		mu.Unlock()
		a.stop()
		b.stop()
	})
}

// C8, C3: a handler that outlives the drain deadline gets its context ended, the revoke returns by the drain deadline
// and a commit's, and the record is handled by the next owner. The late return counts as stale and moves nothing.
// Seen at twmb/franz-go, where a drain outlasts the rebalance timeout.
func TestDrainDeadline(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		gates := w.shut("k=a", "k=b")
		var ends sync.Map
		c := config(func(ctx context.Context, r *Record) error {
			stop := context.AfterFunc(ctx, func() { ends.Store(r.Partition, time.Now()) })
			defer stop()
			return gates.pass(context.Background(), r) // ignores its context
		})
		w.produce(0, "first", "k=a")
		w.produce(1, "first", "k=b")
		a := w.start(c)
		w.eventually("both run", func() bool { return gates.isAt("k=a") && gates.isAt("k=b") })
		var log callLog
		begun := time.Now()
		b := w.away(a, config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
		ev := a.awaitRevoked(b.owns()[0])
		if ev.Took < 5*time.Second || ev.Took > 7*time.Second || ev.Offset != 1 {
			w.Errorf("the revoke took %v and committed %d", ev.Took, ev.Offset)
		}
		if at, ok := ends.Load(ev.Partition); !ok || at.(time.Time).Sub(begun) > 7*time.Second {
			w.Errorf("the handler's context ended: %v", ok)
		}
		w.eventually("handled there", func() bool { return w.committed("t", ev.Partition) == 2 })
		gates.openAll()
		w.eventually("stale", func() bool { return a.e.Status().Counts.StaleCompletions >= 1 })
		if at := w.committed("t", ev.Partition); at != 2 {
			w.Errorf("committed %d", at)
		}
		a.stop()
		b.stop()
	})
}

// C3, C6: A's handler holds a record while its partition goes to B and comes back. The second call of its key
// does not start before the first has returned; the first one's completion is stale: it moves no frontier and no commit.
// Seen at confluentinc/parallel-consumer#843, spring-projects/spring-kafka#4687, redpanda-data/connect#4477.
func TestBackToTheSameMember(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		gates := w.shut("k=0")
		var log callLog
		h := func(_ context.Context, r *Record) error {
			log.add(r)
			return gates.pass(context.Background(), r)
		}
		a := w.start(config(h))
		w.eventually("both here", func() bool { return len(a.owns()) == 2 })
		// A second member that cannot handle anything takes a partition and gives it back; which one shows then.
		nothing := config(func(ctx context.Context, _ *Record) error { <-ctx.Done(); return ctx.Err() })
		b := w.away(a, nothing)
		p := b.owns()[0]
		b.stop()
		w.eventually("back", func() bool { return len(a.owns()) == 2 })
		w.produce(p, "k=0", "k=1", "j=2")
		w.eventually("held", func() bool { return gates.isAt("k=0") && log.len() == 2 })

		b = w.start(nothing)
		w.eventually("it went away", func() bool { return slices.Contains(b.owns(), p) || slices.Contains(b.owns(), 1-p) })
		if !slices.Contains(b.owns(), p) {
			w.Skipf("the group moved the other partition")
		}
		b.stop()
		w.eventually("it came back", func() bool { s := a.part(p); return s != nil && s.Phase == "active" && s.Position == 3 })
		time.Sleep(5 * time.Second)
		if came, _ := gates.calls("k=0"); came != 1 || slices.Contains(log.all(), "k=1") {
			w.Errorf("with the first call under way: %v", log.all())
		}
		if at := w.committed("t", p); at > 0 {
			w.Errorf("committed %d", at)
		}
		gates.openAll()
		w.eventually("stale", func() bool { return a.e.Status().Counts.StaleCompletions == 1 })
		w.eventually("all committed", func() bool { return w.committed("t", p) == 3 })
		if got := log.all(); !slices.Equal(got[len(got)-2:], []string{"k=0", "k=1"}) {
			w.Errorf("calls %v", got)
		}
		if n := a.e.Status().Counts.StaleCompletions; n != 1 {
			w.Errorf("%d stale completions", n)
		}
		a.stop()
	})
}

// C7: a partition that was full, and so paused at the client, when it went away flows again when it is back; one
// that was kept over the rebalance resumes as well.
// Seen at twmb/franz-go#1272, twmb/franz-go#507.
func TestPausedPartitionsResume(t *testing.T) {
	eachProtocol(t, 3, func(w *world, config func(HandlerFunc) Config) {
		gates := w.shut("0-0", "1-0", "2-0")
		c := config(func(_ context.Context, r *Record) error { return gates.pass(context.Background(), r) })
		c.Order, c.PartitionRecords, c.FetchMaxPartitionBytes, c.FetchMaxBytes = OrderPartition, 4, 512, 1024
		for p := range int32(3) {
			for i := range 50 { // a batch each, so that a fetch is small
				w.produce(p, fmt.Sprintf("%d-%d", p, i))
			}
		}
		a := w.start(c)
		full := func(p int32) bool {
			s := a.part(p)
			return s != nil && slices.Contains(s.Paused, "records")
		}
		w.eventually("all full", func() bool { return full(0) && full(1) && full(2) })
		b := w.away(a, config(func(ctx context.Context, _ *Record) error { <-ctx.Done(); return ctx.Err() }))
		gone := b.owns()
		w.eventually("the rest stays with A", func() bool { return len(a.owns()) == 3-len(gone) })
		gates.openAll()
		for _, p := range a.owns() {
			w.eventually("what was kept flows", func() bool { return w.committed("t", p) == 50 })
		}
		b.stop()
		for p := range int32(3) {
			w.eventually("what came back flows", func() bool { return w.committed("t", p) == 50 })
		}
		a.stop()
	})
}

// C8: commits that the coordinator sits on do not hold a rebalance: the revoke ends by its deadlines, and
// consumption goes on.
// Seen at confluentinc/parallel-consumer#857, twmb/franz-go#1200.
func TestRevokeWithBlockedCommits(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		var log callLog
		h := func(_ context.Context, r *Record) error { log.add(r); return nil }
		a := w.start(config(h))
		w.eventually("both here", func() bool { return len(a.owns()) == 2 })
		release := w.stall(ofMember(a.id()), kmsg.OffsetCommit)
		w.produce(0, numbered("a", 10)...)
		w.produce(1, numbered("b", 10)...)
		w.eventually("handled", func() bool { return log.len() == 20 })
		b := w.launch(config(h))
		w.eventually("the new member has its share", func() bool { return len(b.owns()) > 0 })
		for _, ev := range a.all(EventRevoked) {
			if ev.Took > 8*time.Second {
				w.Errorf("a revoke took %v", ev.Took)
			}
		}
		release()
		w.eventually("all committed", func() bool { return w.committed("t", 0) == 10 && w.committed("t", 1) == 10 })
		w.eventually("and acknowledged", func() bool {
			return !a.e.Status().Suspended && !slices.ContainsFunc(a.e.Status().Partitions, func(p PartitionStatus) bool { return p.Lag > 0 })
		})
		a.stop()
		b.stop()
	})
}

// C3, C8: empty and unknown partitions in a callback are nothing to it, and 100 rebalances in a row leave nothing behind.
// Seen at open-telemetry/opentelemetry-collector-contrib#40920.
func TestRebalanceChurn(t *testing.T) {
	eachProtocol(t, 4, func(w *world, config func(HandlerFunc) Config) {
		var log callLog
		h := func(_ context.Context, r *Record) error { log.add(r); return nil }
		a := w.start(config(h))
		for _, m := range []map[string][]int32{nil, {}, {"t": nil}, {"t": {99}}, {"nowhere": {0}}} {
			a.e.onLost(context.Background(), a.e.cl, m)
			a.e.onRevoked(context.Background(), a.e.cl, m)
		}
		a.e.onAssigned(context.Background(), a.e.cl, nil)
		for i := range 33 {
			b := w.start(config(h))
			w.produce(int32(i)%4, "x", "y")
			w.eventually("its share", func() bool { return len(b.owns()) == 2 })
			b.stop()
		}
		w.eventually("all back", func() bool { return len(a.owns()) == 4 })
		w.eventually("all committed", func() bool {
			return w.committed("t", 0) == 18 && w.committed("t", 1) == 16 && w.committed("t", 2) == 16 && w.committed("t", 3) == 16
		})
		if n := log.len(); n != 66 {
			w.Errorf("%d calls", n)
		}
		w.settled(a)
		a.stop()
	})
}

// C1: the client may assign a partition a second time without a revoke in between, and go on where it was. The epoch goes on,
// too: another one would wait for ever for records that this one was given, or pass over them.
func TestAssignedTwice(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		gates := w.shut("k=0")
		var log callLog
		c := brisk(w.config(func(_ context.Context, r *Record) error {
			log.add(r)
			return gates.pass(context.Background(), r)
		}))
		c.Order, c.PartitionRecords = OrderPartition, 4
		w.produce(0, numbered("k=", 10)...)
		a := w.start(c)
		w.eventually("the first runs, and the partition is full", func() bool { return gates.isAt("k=0") && len(a.part(0).Paused) > 0 })
		a.e.onAssigned(context.Background(), a.e.cl, map[string][]int32{"t": {0}})
		w.eventually("paused at the client again", func() bool { a.e.flow(lookBrief); return len(a.e.cl.PauseFetchPartitions(nil)) == 1 })
		gates.openAll()
		w.produce(0, "k=10")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 11 })
		if got := log.all(); !slices.Equal(got, numbered("k=", 11)) {
			t.Errorf("calls %v", got)
		}
		w.settled(a)
		a.stop()
	})
}
