package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C8: Stop returns by its context's deadline in every state, Run returns not long after it, and the error
// names the records whose handlers were abandoned.
// Seen at confluentinc/parallel-consumer#597, IBM/sarama#1351, twmb/franz-go#1349, twmb/franz-go#1200.
func TestStopInEveryState(t *testing.T) {
	type scenario struct {
		name   string
		stuck  []int64 // offsets that the error must name; nil = a clean stop is possible, but not demanded
		clean  bool    // Stop must return nil
		break_ func(w *world, m *member, gates *gates)
		ignore bool // the handler ignores its context
	}
	runs := func(w *world, g *gates, v string) {
		w.eventually(v+" runs", func() bool { return g.isAt(v) })
	}
	for _, s := range []scenario{
		{name: "idle", clean: true, break_: func(w *world, m *member, g *gates) {
			w.eventually("assigned", func() bool { return len(m.owns()) == 2 })
		}},
		{name: "at once", clean: true, break_: func(*world, *member, *gates) {}},
		{name: "mid-batch", stuck: []int64{0}, ignore: true, break_: func(w *world, _ *member, g *gates) {
			w.produce(0, "stuck", "x", "y")
			runs(w, g, "stuck")
		}},
		{name: "full queue", break_: func(w *world, m *member, g *gates) {
			w.produce(0, append([]string{"k=stuck"}, numbered("k=", 1000)...)...)
			runs(w, g, "k=stuck")
			w.eventually("full", func() bool { return len(m.part(0).Paused) > 0 })
		}},
		{name: "mid-rebalance", break_: func(w *world, m *member, g *gates) {
			w.produce(0, "stuck")
			w.produce(1, "stuck")
			runs(w, g, "stuck")
			w.launch(brisk(w.config(func(context.Context, *Record) error { return nil })))
			w.eventually("it drains", func() bool {
				return slices.ContainsFunc(m.e.Status().Partitions, func(p PartitionStatus) bool { return p.Phase == "draining" })
			})
		}},
		{name: "broker dead", break_: func(w *world, m *member, g *gates) {
			w.produce(0, "x", "stuck")
			runs(w, g, "stuck")
			w.cluster.Close()
		}},
		{name: "broker mute", break_: func(w *world, m *member, g *gates) {
			w.produce(0, "x", "stuck")
			runs(w, g, "stuck")
			w.mute()
		}},
		{name: "evicted", clean: true, break_: func(w *world, m *member, g *gates) {
			w.eventually("assigned", func() bool { return len(m.owns()) == 2 })
			w.kick(m.id())
		}},
		{name: "commit blocked", break_: func(w *world, m *member, g *gates) {
			w.eventually("assigned", func() bool { return len(m.owns()) == 2 })
			w.stall(nil, kmsg.OffsetCommit)
			w.produce(0, "x")
			time.Sleep(time.Second)
		}},
		{name: "log ends unknown", break_: func(w *world, m *member, g *gates) {
			w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.UnknownServerError, Count: -1})
			c := brisk(w.config(func(context.Context, *Record) error { return nil }))
			c.Group = "of its own" // in the other's, it may begin where that has committed
			w.launch(c).awaitName(EventStartFailed)
		}},
		{name: "two handlers ignore their context", stuck: []int64{0, 1}, ignore: true, break_: func(w *world, m *member, g *gates) {
			w.produce(0, "a=stuck", "b=stuck")
			runs(w, g, "a=stuck")
			runs(w, g, "b=stuck")
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				gates := w.shut("stuck", "k=stuck", "a=stuck", "b=stuck")
				c := brisk(w.config(func(ctx context.Context, r *Record) error {
					if s.ignore {
						ctx = context.Background()
					}
					return gates.pass(ctx, r)
				}))
				c.PartitionRecords = 64
				m := w.start(c)
				s.break_(w, m, gates)
				for _, m := range w.members {
					took, err := m.stopWithin(time.Second)
					if took > time.Second {
						t.Errorf("Stop took %v", took)
					}
					var left *AbandonedError
					if errors.As(err, &left) {
						var offsets []int64
						for _, r := range left.Records {
							offsets = append(offsets, r.Offset)
						}
						slices.Sort(offsets)
						if s.stuck != nil && !slices.Equal(offsets, s.stuck) {
							t.Errorf("abandoned %v", left)
						}
					} else if s.stuck != nil {
						t.Errorf("Stop returned %v, not the abandoned records", err)
					}
					if s.clean && err != nil {
						t.Errorf("Stop returned %v", err)
					}
					select {
					case <-m.e.Done():
					case <-time.After(25 * time.Second):
						t.Error("Run did not return for another 25 s")
					}
				}
			})
		})
	}
}

// mute makes the broker answer nothing at all from now on.
func (w *world) mute() {
	w.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		return nil, nil, true
	})
}

// C8: a stop before the broker was ever there, and a Stop before Run.
func TestStopWhileStarting(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		e, err := New(w.config(func(context.Context, *Record) error { return nil }))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Stop(context.Background()); !errors.Is(err, ErrNotRunning) {
			t.Errorf("Stop before Run: %v", err)
		}
		w.mute()
		m := w.launch(w.config(func(context.Context, *Record) error { return nil }))
		time.Sleep(100 * time.Millisecond)
		if took, err := m.stopWithin(time.Second); err != nil || took > time.Second {
			t.Errorf("Stop: %v after %v", err, took)
		}
		if err := <-m.done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// C3, C8: a stop drains while a new member joins. The join is answered with the drain, not by its own timeout;
// nothing starts meanwhile; and what the stop commits in the end does not rewind the new owner.
// Seen at confluentinc/parallel-consumer#552, twmb/franz-go#1349.
func TestStopWhileAnotherJoins(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		gates := w.shut("0-0", "1-0")
		var calls atomic.Int32
		c := config(func(_ context.Context, r *Record) error {
			calls.Add(1)
			return gates.pass(context.Background(), r)
		})
		c.Order = OrderPartition
		w.produce(0, numbered("0-", 10)...)
		w.produce(1, numbered("1-", 10)...)
		a := w.start(c)
		w.eventually("both run", func() bool { return gates.isAt("0-0") && gates.isAt("1-0") })
		a.cancel()
		a.awaitName(EventStopping)
		var log callLog
		b := w.start(config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
		time.Sleep(3 * time.Second)
		if n := log.len(); n > 0 {
			w.Errorf("the new member handled %d while the old one drained", n)
		}
		gates.openAll()
		if err := <-a.done; err != nil {
			w.Errorf("Run: %v", err)
		}
		w.eventually("B has both and commits all", func() bool { return w.committed("t", 0) == 10 && w.committed("t", 1) == 10 })
		time.Sleep(10 * time.Second)
		for p := range int32(2) {
			if at := w.committed("t", p); at != 10 {
				w.Errorf("partition %d: the commit went back to %d", p, at)
			}
		}
		if n := calls.Load(); n != 2 {
			w.Errorf("%d calls at the stopping member", n)
		}
		if n := log.len(); n != 18 {
			w.Errorf("%d calls at the new one: %v", n, log.all())
		}
		b.stop()
	})
}

// C1, C8: the order of a revoke and of a stop is drain, commit, fence, release: the last commit precedes the join or leave.
// Seen at mailgun/kafka-pixy#62.
func TestCommitPrecedesLeave(t *testing.T) {
	eachProtocol(t, 2, func(w *world, config func(HandlerFunc) Config) {
		c := config(func(context.Context, *Record) error { return nil })
		c.Commit.Interval = time.Hour // only revoke and stop commit
		a := w.start(c)
		w.eventually("both", func() bool { return len(a.owns()) == 2 })
		w.produce(0, numbered("a", 10)...)
		w.produce(1, numbered("b", 10)...)
		w.eventually("handled", func() bool { return a.part(0).Frontier == 10 && a.part(1).Frontier == 10 })
		tr := w.trace()
		b := w.start(c)
		w.eventually("moved", func() bool { return len(b.owns()) == 1 })
		member := a.id()
		a.stop()
		w.eventually("all moved", func() bool { return len(b.owns()) == 2 })
		commits := tr.of(kmsg.OffsetCommit, member)
		if len(commits) == 0 {
			w.Fatal("no commit")
		}
		last := commits[len(commits)-1]
		for _, r := range append(tr.of(kmsg.LeaveGroup, member), tr.of(kmsg.ConsumerGroupHeartbeat, member)...) {
			if (r.key == kmsg.LeaveGroup || r.epoch < 0) && r.at.Before(last.at) {
				w.Errorf("left at %v, committed at %v", r.at, last.at)
			}
		}
		if w.committed("t", 0) != 10 || w.committed("t", 1) != 10 {
			w.Errorf("committed %d and %d", w.committed("t", 0), w.committed("t", 1))
		}
		b.stop()
	})
}

// C1: committed is the next offset to read: after a restart nothing comes again and the lag is 0, an empty partition included.
// Seen at grafana/tempo#4756.
func TestRestartRedeliversNothing(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.produce(0, numbered("v", 50)...)
		var log callLog
		h := func(_ context.Context, r *Record) error { log.add(r); return nil }
		for range 3 {
			m := w.start(brisk(w.config(h)))
			w.eventually("committed", func() bool { return w.committed("t", 0) == 50 && w.committed("t", 1) == 0 })
			m.stop()
		}
		if n := log.len(); n != 50 {
			t.Errorf("%d calls in three lives", n)
		}
		lags, err := w.adm.Lag(context.Background(), testGroup)
		if err != nil || lags[testGroup].Lag.Total() != 0 {
			t.Errorf("lag %v %v", lags, err)
		}
	})
}

// C8: no goroutine outlives Run: the scenario could not end, and the leak check would tell.
// Seen at Trendyol/kafka-cronsumer#20.
func TestHundredLives(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		for i := range 100 {
			m := w.start(brisk(w.config(func(context.Context, *Record) error { return nil })))
			w.produce(0, fmt.Sprint(i))
			if i%2 == 0 {
				w.eventually("handled", func() bool { return w.committed("t", 0) == int64(i)+1 })
			}
			m.stop()
			w.members = nil
		}
	})
}

// C8: a drain gives up what is parked for a later attempt; it comes again in the next life.
func TestDrainGivesUpRetries(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		h := func(_ context.Context, r *Record) error {
			log.add(r)
			if log.len() == 1 {
				return RetryAfter(time.Hour, errBoom)
			}
			return nil
		}
		c := brisk(w.config(h))
		c.Retry.MaxRetryAfter = time.Hour
		m := w.start(c)
		w.produce(0, "later")
		w.eventually("parked", func() bool { return m.part(0) != nil && m.part(0).Parked == 1 })
		if took, err := m.stopWithin(time.Minute); err != nil || took > time.Second {
			t.Errorf("Stop: %v after %v", err, took)
		}
		if at := w.committed("t", 0); at > 0 {
			t.Errorf("%d is committed, and 0 was not handled", at)
		}
		m = w.start(c)
		w.eventually("handled again", func() bool { return w.committed("t", 0) == 1 })
		if n := log.len(); n != 2 {
			t.Errorf("%d calls", n)
		}
		m.stop()
	})
}

// C8: at its deadline Stop ends the handlers' contexts and cuts the drain short, whether they listen or not.
func TestHardStop(t *testing.T) {
	for _, listens := range []bool{true, false} {
		t.Run(fmt.Sprint("listens ", listens), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				gates := w.shut("v")
				var ended atomic.Bool
				m := w.start(brisk(w.config(func(ctx context.Context, r *Record) error {
					defer context.AfterFunc(ctx, func() { ended.Store(true) })()
					if !listens {
						ctx = context.WithoutCancel(ctx)
					}
					return gates.pass(ctx, r)
				})))
				w.produce(0, "v")
				w.eventually("it runs", func() bool { return gates.isAt("v") })
				_, err := m.stopWithin(time.Second)
				var left *AbandonedError
				if !errors.As(err, &left) || len(left.Records) != 1 || left.Records[0].Offset != 0 {
					t.Errorf("Stop: %v", err)
				}
				begun := time.Now()
				err = <-m.done
				if took := time.Since(begun); took > time.Second || errors.As(err, &left) == listens {
					t.Errorf("Run: %v, %v after Stop", err, took)
				}
				if !ended.Load() || w.committed("t", 0) > 0 {
					t.Errorf("its context ended: %v; committed %d", ended.Load(), w.committed("t", 0))
				}
			})
		})
	}
}

// C8: a stop whose deadline comes before its drain has begun starts nothing more. What fails because its context has ended is not tried
// again and again, as fast as it can fail, until the drain comes to it.
func TestHardStopBeforeTheDrain(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		begin := make(chan struct{})
		var calls atomic.Int32
		c := brisk(w.config(func(ctx context.Context, _ *Record) error {
			if calls.Add(1) > 5 {
				<-begin // it has been shown
			}
			<-ctx.Done()
			return ctx.Err()
		}))
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		m := &member{w: w, e: e, done: make(chan error, 1), cancel: e.beginStop}
		e.cfg.OnEvent = func(ev Event) {
			m.note(ev)
			if ev.Name == EventStopping {
				<-begin
			}
		}
		go func() { m.done <- e.Run(context.Background()) }()
		w.members = append(w.members, m)
		w.produce(0, "a", "b", "c")
		w.eventually("they run", func() bool { return calls.Load() == 3 })
		now, cancel := context.WithCancel(context.Background())
		cancel()
		if err := e.Stop(now); err == nil {
			t.Error("nothing was abandoned")
		}
		synctest.Wait()
		if n := calls.Load(); n != 3 {
			t.Errorf("%d calls of 3 records", n)
		}
		close(begin)
		if err := <-m.done; err != nil {
			t.Logf("Run: %v", err)
		}
	})
}

// C8: a stop while the broker owes the answer to a join ends when a leave may take no longer. The client itself would wait for that
// answer, for as long as a rebalance may take, and be closed only then.
func TestStopWhileItsJoinIsOut(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return nil })
		joins := make(chan struct{}, 1)
		w.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
			joins <- struct{}{}
			return nil, nil, true
		})
		m := w.start(c)
		<-joins
		if took, err := m.stopWithin(time.Minute); err != nil || took > c.WithDefaults().CommitTimeout+time.Second {
			t.Errorf("Stop: %v after %v", err, took)
		}
		if m.count(EventLeaveFailed) != 1 {
			t.Errorf("nothing is said of the leave: %v", m.names())
		}
	})
}
