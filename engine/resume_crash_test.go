package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// die ends a member as a crash would: the group throws it out, nothing is committed, and its handlers never matter again.
func (w *world) die(m *member) {
	w.Helper()
	w.expel(m.id())
	m.awaitName(EventLost)
	m.cancel()
	_, _ = m.stopWithin(time.Millisecond)
	<-m.done
}

// lives runs a member again and again. It dies when a handler has come to "x", which never returns, and the rest is quiet; each
// life is looked at before its end. It returns the one that got through.
func (w *world) lives(c func(h HandlerFunc) Config, end int64, h HandlerFunc, look func(life int, m *member)) (survivor *member, deaths int) {
	w.Helper()
	never := w.shut("x")
	for life := 1; ; life++ {
		var came atomic.Bool
		m := w.start(c(func(ctx context.Context, r *Record) error {
			if string(r.Value) == "x" {
				came.Store(true)
				return never.pass(context.Background(), r)
			}
			return h(ctx, r)
		}))
		w.eventually("it comes to the one that kills, or passes it", func() bool { return came.Load() || w.committed("t", 0) == end })
		if !came.Load() {
			return m, life - 1
		}
		time.Sleep(500 * time.Millisecond)
		look(life, m)
		w.die(m)
		if life > 20 {
			w.Fatal("it goes on for ever")
		}
	}
}

// Design section 7, C1, C5: a record that ends the process each time does not do so for ever. After two unclean ends the unfinished
// records run one at a time, each announced; after Retry.Attempts announced starts it is dead-lettered. All else is handled, once;
// afterwards many run at once again, and a clean stop clears the count.
func TestCrashLoop(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		config := func(h HandlerFunc) Config {
			c := brisk(w.config(h))
			c.Retry = Retry{Attempts: 3}
			return c
		}
		w.produce(0, "0", "1", "2", "x", "4", "5", "6", "7")
		m, deaths := w.lives(config, 8, func(_ context.Context, r *Record) error { log.add(r); return nil }, func(life int, m *member) {
			win, p := w.window(0), m.part(0)
			tries := uint32(max(life-uncleanLimit, 0))
			trying := int64(-1)
			if tries > 0 {
				trying = 3
			}
			if win.Frontier != 3 || win.Unclean != uint32(life) || win.Tries != tries || win.Trying != trying || p.Suspected != (tries > 0) {
				t.Errorf("life %d: the commit says %v; suspected %v", life, &win, p.Suspected)
			}
			if ok, _ := m.e.Healthy(); ok != (tries == 0) || m.count(EventCrashLoop) != min(int(tries), 1) {
				t.Errorf("life %d: healthy %v, events %v", life, ok, m.names())
			}
		})
		if deaths != uncleanLimit+3 {
			t.Errorf("%d deaths", deaths)
		}
		d := w.dead("t.dlq", 1)[0]
		if string(d.Value) != "x" || header(d, HeaderErrorType) != "engine.CrashLoopError" || header(d, HeaderAttempts) != "3" || !strings.Contains(header(d, HeaderError), "3 times") {
			t.Errorf("dead letter %q: %v", d.Value, d.Headers)
		}
		handled := log.all()
		if slices.Sort(handled); !slices.Equal(handled, []string{"0", "1", "2", "4", "5", "6", "7"}) {
			t.Errorf("handled %v", handled)
		}
		if p := m.part(0); p.Suspected {
			t.Error("still suspected")
		}
		w.eventually("well", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
		if win := w.window(0); win.Unclean != 0 || win.Trying >= 0 {
			t.Errorf("after a clean stop the commit says %v", &win)
		}
	})
}

// Suspicion is lifted where everything suspected is settled: what comes then runs many at a time, and nothing is handled twice
// for that; no more is announced.
func TestSuspicionIsLifted(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		g := w.shut("a", "b", "c")
		var log callLog
		config := func(h HandlerFunc) Config {
			c := brisk(w.config(h))
			c.Retry = Retry{Attempts: 1}
			return c
		}
		w.produce(0, "x", "1")
		m, _ := w.lives(config, 2, func(ctx context.Context, r *Record) error { log.add(r); return g.pass(ctx, r) }, func(int, *member) {})
		w.produce(0, "a", "b", "c")
		w.eventually("all at once", func() bool { return g.isAt("a") && g.isAt("b") && g.isAt("c") })
		if m.count(EventRenewed) != 1 || w.window(0).Trying >= 0 || w.window(0).Unclean != 1 {
			win := w.window(0)
			t.Errorf("%v, %v", m.names(), &win)
		}
		g.openAll()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 5 })
		if got := log.all(); len(got) != 4 {
			t.Errorf("handled %v", got)
		}
		w.settled(m)
		m.stop()
	})
}

// C9: suspicion is lifted once what was suspected is settled, also where a single fetch has brought far more: that is not handled one at a
// time to its end. Nothing is handled twice for it, and nothing that runs is cut short.
func TestSuspicionIsLiftedAmidAFetch(t *testing.T) {
	for _, batches := range []bool{false, true} {
		t.Run(fmt.Sprint("batches ", batches), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				const n, held = 2000, 50
				var log callLog
				var life, running, alone atomic.Int32
				config := func(h HandlerFunc) Config {
					life.Add(1)
					c := brisk(w.config(h))
					if batches {
						c.Handler = nil
						c.BatchHandler = BatchHandlerFunc(func(ctx context.Context, b *Batch) error {
							var all sync.WaitGroup
							for _, r := range b.Records {
								all.Go(func() { _ = h(ctx, r) })
							}
							all.Wait()
							return nil
						})
						c.BatchSize, c.BatchLinger = 3, 10*time.Millisecond
					}
					c.PartitionRecords, c.Retry = held, Retry{Attempts: 1}
					return c
				}
				w.produce(0, append([]string{"x"}, numbered("", n)...)...)
				m, _ := w.lives(config, n+1, func(ctx context.Context, r *Record) error {
					if life.Load() <= uncleanLimit+1 { // each ends
						<-ctx.Done()
						return ctx.Err()
					}
					running.Add(1)
					defer running.Add(-1)
					select {
					case <-time.After(20 * time.Millisecond):
					case <-ctx.Done():
						t.Errorf("%d was cut short: %v", r.Offset, context.Cause(ctx))
					}
					if running.Load() == 1 {
						alone.Add(1)
					}
					log.add(r)
					return nil
				}, func(int, *member) {})
				if suspects := held + 2; int(alone.Load()) > 2*suspects {
					t.Errorf("%d records ran alone, and no more than %d were suspected", alone.Load(), suspects)
				}
				if got := log.all(); len(got) != n {
					t.Errorf("%d calls of %d records", len(got), n)
				}
				m.stop()
			})
		})
	}
}

// Under suspicion a record, or a batch, runs alone, and the commit that announces it is acknowledged before its handler starts. It says
// that all before it is settled: what came again would be announced again, in the place of the record that ends the process.
func TestSuspectsAreAnnounced(t *testing.T) {
	for _, batches := range []bool{false, true} {
		t.Run(fmt.Sprint("batches ", batches), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				const n = 6
				g := w.shut(numbers(n)...)
				var running, calls atomic.Int32
				var last atomic.Bool
				suspected := func(ctx context.Context, r *Record) error {
					if k := running.Add(1); k > 1 {
						t.Errorf("%d at once", k)
					}
					defer running.Add(-1)
					if win := w.window(0); win.Trying != r.Offset || win.Tries != 1 || win.Frontier != r.Offset {
						t.Errorf("%d runs, and the commit says %v", r.Offset, &win)
					}
					calls.Add(1)
					if r.Offset >= n/2 { // quick ones are claimed many at a time
						time.Sleep(10 * time.Millisecond)
					}
					return nil
				}
				config := func(h HandlerFunc) Config {
					c := brisk(w.config(h))
					if batches {
						c.Handler = nil
						c.BatchHandler = BatchHandlerFunc(func(ctx context.Context, b *Batch) error {
							if last.Load() && len(b.Records) != 1 {
								t.Errorf("a batch of %d", len(b.Records))
							}
							return h(ctx, b.Records[0])
						})
						c.BatchSize, c.BatchLinger = 3, 10*time.Millisecond
					}
					return c
				}
				w.produce(0, numbers(n)...)
				for range uncleanLimit {
					m := w.start(config(func(_ context.Context, r *Record) error { return g.pass(context.Background(), r) }))
					w.eventually("they run", func() bool { return m.part(0) != nil && m.part(0).InFlight == n })
					w.die(m)
				}
				last.Store(true)
				m := w.start(config(suspected))
				w.eventually("all of them", func() bool { return w.committed("t", 0) == n })
				if calls.Load() != n {
					t.Errorf("%d calls", calls.Load())
				}
				m.stop()
			})
		})
	}
}

// A clean end clears the count, and so does progress: two unclean ends in a row at one frontier make a suspicion, not two in all.
// A member with nothing to do that is killed again and again makes none.
func TestUncleanEndsInARow(t *testing.T) {
	for _, tc := range []struct {
		name    string
		between func(w *world, config func() Config, g *gates)
		unclean uint32
	}{
		{"in a row", func(*world, func() Config, *gates) {}, 3},
		{"a clean stop between", func(w *world, config func() Config, _ *gates) {
			m := w.start(config())
			w.eventually("it runs", func() bool { return m.part(0) != nil && m.part(0).InFlight > 0 })
			m.stop()
		}, 1},
		{"a clean revoke between", func(w *world, config func() Config, _ *gates) {
			c := config()
			c.Protocol, c.InstanceID = ProtocolClassic, ""
			m := w.start(c)
			w.eventually("it runs", func() bool { return m.part(0) != nil && m.part(0).InFlight > 0 })
			m.e.onRevoked(context.Background(), m.e.cl, map[string][]int32{"t": {0}})
			m.stop()
		}, 1},
		{"progress between", func(w *world, config func() Config, g *gates) {
			m := w.start(config())
			w.eventually("it runs", func() bool { return m.part(0) != nil && m.part(0).InFlight > 0 })
			g.open("0")
			w.eventually("it moves", func() bool { return w.committed("t", 0) == 1 })
			w.die(m)
		}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				g := w.shut("0", "1")
				config := func() Config {
					return brisk(w.config(func(ctx context.Context, r *Record) error { return g.pass(ctx, r) }))
				}
				w.produce(0, "0", "1")
				for range uncleanLimit {
					m := w.start(config())
					w.eventually("it runs", func() bool { return m.part(0) != nil && m.part(0).InFlight == 2 })
					w.die(m)
				}
				tc.between(w, config, g)
				m := w.start(config())
				w.eventually("it runs", func() bool { return m.part(0) != nil && m.part(0).InFlight > 0 })
				if win := w.window(0); win.Unclean != tc.unclean || m.part(0).Suspected != (tc.unclean > uncleanLimit) {
					t.Errorf("the commit says %v; suspected %v", &win, m.part(0).Suspected)
				}
				g.openAll()
				w.eventually("to the end", func() bool { return w.committed("t", 0) == 2 })
				m.stop()
			})
		})
	}
	for name, values := range map[string][]string{"idle": nil, "idle behind records": {"0"}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				c := brisk(w.config(func(context.Context, *Record) error { return nil }))
				w.produce(0, values...)
				for range 5 {
					m := w.start(c)
					w.eventually("claimed", func() bool { return w.window(0).Unclean > 0 && m.part(0) != nil && m.part(0).Phase == "active" })
					if m.count(EventCrashLoop) > 0 {
						t.Error("suspected")
					}
					time.Sleep(time.Minute)
					w.die(m)
				}
			})
		})
	}
}

// C1: while the announcement can't be committed the record does not start, and that it was not started is no reason to give it up.
func TestAnnouncementFails(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		g := w.shut("x")
		c := brisk(w.config(func(_ context.Context, r *Record) error { return g.pass(context.Background(), r) }))
		w.produce(0, "x")
		for range uncleanLimit {
			m := w.start(c)
			w.eventually("it runs", func() bool { return g.isAt("x") && m.part(0) != nil && m.part(0).InFlight == 1 })
			w.die(m)
		}
		before, _ := g.calls("x")
		var refuse atomic.Bool
		var mu sync.Mutex
		var announced []uint32
		w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			req := kreq.(*kmsg.OffsetCommitRequest)
			p := req.Topics[0].Partitions[0]
			win, _ := window.Decode(*p.Metadata)
			if win.Trying < 0 {
				return nil, nil, false
			}
			mu.Lock()
			announced = append(announced, win.Tries)
			mu.Unlock()
			if !refuse.Load() {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		refuse.Store(true)
		m := w.start(c)
		time.Sleep(time.Minute)
		if n, _ := g.calls("x"); n != before || m.count(EventRetryExhausted) > 0 {
			t.Errorf("it started %d times, %v", n-before, m.names())
		}
		refuse.Store(false)
		w.eventually("it starts", func() bool { n, _ := g.calls("x"); return n == before+1 })
		if win := w.window(0); win.Trying != 0 || win.Tries != 1 {
			t.Errorf("the commit says %v", &win)
		}
		mu.Lock()
		if len(announced) < 10 || slices.Max(announced) != 1 {
			t.Errorf("announced as number %v", announced)
		}
		mu.Unlock()
		g.openAll()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		m.stop()
	})
}

// An end is clean once the drain is over: a process that dies in it, with its handlers still at work, has not stopped cleanly.
func TestDeathInADrainIsUnclean(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		g := w.shut("0", "1")
		c := brisk(w.config(func(_ context.Context, r *Record) error { return g.pass(context.Background(), r) }))
		w.produce(0, "0", "1")
		m := w.start(c)
		w.eventually("it runs", func() bool { return m.part(0) != nil && m.part(0).InFlight == 2 })
		m.cancel()
		m.awaitName(EventStopping)
		g.open("1")
		w.eventually("said", func() bool { return w.window(0).Highest == 1 })
		if win := w.window(0); win.Unclean != 1 {
			t.Errorf("in the drain the commit says %v", &win)
		}
		g.openAll()
		if err := <-m.done; err != nil {
			t.Error(err)
		}
		if win := w.window(0); win.Unclean != 0 || win.Frontier != 2 {
			t.Errorf("after it the commit says %v", &win)
		}
	})
}

// An operator who lets a held record go on gets it tried again, though it was given up for ending the process.
func TestUnholdAfterCrashes(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		g := w.shut("x")
		c := brisk(w.config(func(_ context.Context, r *Record) error { return g.pass(context.Background(), r) }))
		c.Retry, c.DeadLetter.GiveUp = Retry{Attempts: 1}, GiveUpHold
		w.produce(0, "x")
		for range uncleanLimit + 1 {
			m := w.start(c)
			w.eventually("it runs", func() bool { return g.isAt("x") && m.part(0) != nil && m.part(0).InFlight == 1 })
			w.die(m)
		}
		m := w.start(c)
		m.awaitName(EventHeld)
		g.openAll()
		m.e.Unhold("t", 0)
		w.eventually("it is tried", func() bool { return w.committed("t", 0) == 1 })
		m.stop()
	})
}
