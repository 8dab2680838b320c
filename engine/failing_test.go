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

// C9: a partition that is assigned and does not begin, because the client asks for the group's offset in it again and again and says nothing,
// is ill health; the others go on.
func TestPartitionThatDoesNotBegin(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		pending := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Topic: "t", Partitions: []int32{0}, Err: kerr.UnstableOffsetCommit, Count: -1})
		c := config(func(context.Context, *Record) error { return nil })
		c.StalledAfter = 20 * time.Second
		m := w.start(c)
		ev := m.awaitName(EventStalled)
		if ok, why := m.e.Healthy(); ok || why["start t[0]"] == "" || ev.Took < c.StalledAfter {
			w.Errorf("healthy %v %v after %v", ok, why, ev.Took)
		}
		pending.Remove()
		w.produce(0, "a")
		w.produce(1, "a")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 && w.committed("t", 1) == 1 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}

// C9: a group that throws its member out for each commit, and lets it in again, is ill health all the time: each assignment is new, and none
// of them gets anywhere.
func TestCommitsThatFailAcrossAssignments(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.StalledAfter = 20 * time.Second
		m := w.start(c)
		w.eventually("assigned", func() bool { return len(m.owns()) == 1 })
		refused := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: "t", Err: kerr.UnknownMemberID, Count: -1})
		w.produce(0, "a")
		w.eventually("ill", func() bool { _, why := m.e.Healthy(); return why["commit"] != "" })
		for range 120 {
			time.Sleep(time.Second)
			if _, why := m.e.Healthy(); why["commit"] == "" {
				w.Fatalf("it passes for healthy: %v", m.names())
			}
		}
		refused.Remove()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}

// C6: when a partition is lost its handlers hear of it at once, and what they leave unsettled holds its order: nothing behind it starts, however
// long the rest of the loss takes.
func TestNothingStartsBehindWhatALossLeaves(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var behind atomic.Int64
		c := brisk(w.config(func(ctx context.Context, r *Record) error {
			if r.Offset > 0 {
				behind.Add(1)
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		c.Order = OrderPartition
		w.produce(0, "0", "1", "2")
		m := w.start(c)
		w.eventually("it runs", func() bool { p := m.part(0); return p != nil && p.InFlight == 1 })
		for _, ep := range m.e.allEpochs() {
			ep.business = &business{noStarts: func() { time.Sleep(time.Second) }}
		}
		m.e.lose(m.e.allEpochs(), "a test")
		if n := behind.Load(); n > 0 {
			w.Errorf("%d records started behind one that a loss had left unsettled", n)
		}
		m.stop()
	})
}

// C9: a partition that can't begin although the group's offset in it is known (its metadata is in error) stays ill, and its topic is asked for anew
// ever more rarely: each time is a rebalance for the whole group.
func TestPartitionThatIsAskedForInVain(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		broken := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Partitions: []int32{0}, Err: kerr.OffsetOutOfRange, Count: -1})
		m := w.launch(brisk(w.config(func(context.Context, *Record) error { return nil })))
		time.Sleep(5 * time.Minute)
		if n := m.count(EventRebalanced); n > 40 {
			w.Errorf("%d rebalances", n)
		}
		if ok, _ := m.e.Healthy(); ok {
			w.Errorf("it passes for healthy: %v", m.names())
		}
		broken.Remove()
		w.produce(0, "a")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}
