package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// emits is a handler that emits one output a record, to "out".
func emits(calls *atomic.Int64) HandlerFunc {
	return func(_ context.Context, r *Record) error {
		calls.Add(1)
		r.Emit(&kgo.Record{Topic: "out", Value: slices.Clone(r.Value)})
		return nil
	}
}

func (w *world) createOut() {
	w.Helper()
	if err := w.cluster.CreateTopic("out", 1, nil); err != nil {
		w.Fatal(err)
	}
}

// C8: dead letters that are too large are cut while the producer's buffer is full. To produce from within a promise would wait
// for room that only the next promise makes.
func TestCutDeadLettersInAFullBuffer(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t.dlq", Err: kerr.MessageTooLarge, Count: 1})
		c := w.config(func(context.Context, *Record) error { return Permanent(errBoom) })
		c.DeadLetter.BreakerRatio = 1
		c.KgoOpts = append(c.KgoOpts, kgo.MaxBufferedRecords(2))
		w.produce(0, numbered("v", 40)...)
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 40 })
		m.awaitName(EventDeadLetterCut)
		if n := m.count(EventDeadLetterFailed); n > 0 {
			t.Errorf("%d waited for room in vain", n)
		}
		m.stop()
		w.dead("t.dlq", 40)
	})
}

// C8, C9: a stop gives up what waits for outputs or dead letters that can't be written, and Run says which and that they come
// again; it says so beside what was fatal.
func TestStopNamesWhatWaits(t *testing.T) {
	for _, fatal := range []bool{false, true} {
		t.Run(fmt.Sprint("fatal ", fatal), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t.dlq", Err: kerr.TopicAuthorizationFailed, Count: -1})
				m := w.start(w.config(func(_ context.Context, r *Record) error {
					switch string(r.Value) {
					case "bad":
						return Permanent(errBoom)
					case "end":
						return End(errBoom)
					}
					r.Emit(&kgo.Record{Topic: "out"}) // does not exist
					return nil
				}))
				w.produce(0, "bad", "out")
				m.awaitName(EventDeadLetterFailed)
				m.awaitName(EventOutputFailed)
				if fatal {
					m.e.fail(errBoom)
				}
				m.cancel()
				err := <-m.done
				var left *AbandonedError
				if !errors.As(err, &left) || len(left.Records) != 2 || errors.Is(err, errBoom) != fatal {
					t.Fatalf("Run: %v", err)
				}
				slices.SortFunc(left.Records, func(a, b Abandoned) int { return int(a.Offset - b.Offset) })
				if left.Records[0].For != WaitsForDeadLetter || left.Records[1].For != WaitsForOutputs || !strings.Contains(err.Error(), "not lost") {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// C9: the commit of a stop that fails is in Run's result, which says that nothing is lost.
func TestLastCommitFails(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.Commit.Interval = time.Hour
		m := w.start(c)
		w.eventually("the start is committed", func() bool { return w.committed("t", 0) == 0 })
		w.produce(0, "x")
		w.eventually("handled", func() bool { return m.part(0).Frontier == 1 })
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
		m.cancel()
		if err := <-m.done; !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "not lost") {
			t.Errorf("Run: %v", err)
		}
	})
}

// C9: what can't be written is a problem of the partitions that are here: it is gone when they are lost, and stays as long as
// one of their dead letters fails.
func TestDeadLetterHealth(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t.dlq", Err: kerr.TopicAuthorizationFailed, Count: -1})
		c := brisk(w.config(func(_ context.Context, r *Record) error { return Permanent(errBoom) }))
		w.produce(0, "a", "b")
		m := w.start(c)
		w.eventually("both fail", func() bool {
			ep := m.e.lookup("t", 0)
			if ep == nil {
				return false
			}
			ep.mu.Lock()
			defer ep.mu.Unlock()
			return ep.troubled().deadLetters.n == 2
		})
		ep := m.e.lookup("t", 0)
		failing := func() bool { _, ok := m.e.Status().Problems["dead letter t"]; return ok }
		if !failing() {
			t.Errorf("problems %v", m.e.Status().Problems)
		}
		one := ep.parkedAt(stageDeadLetter)[0]
		m.e.deadLettered(one) // as if its acknowledgement came
		if p := m.part(0); !failing() || !slices.Contains(p.Paused, "dead_letter_topic") {
			t.Errorf("one of two is written: %v, paused %v", m.e.Status().Problems, p.Paused)
		}
		m.e.lose([]*epoch{ep}, "the test says so")
		if failing() {
			t.Errorf("the partition is lost: %v", m.e.Status().Problems)
		}
		m.cancel()
		<-m.done
	})
}

// C6: a release that comes while the next record of the key is being parked is not lost.
func TestReleaseWhileParking(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		c := w.config(func(_ context.Context, r *Record) error {
			log.add(r)
			if string(r.Value) == "a=bad" {
				return Permanent(errBoom)
			}
			return nil
		})
		c.DeadLetter.AfterKey = KeyHolds
		c.DeadLetter.BreakerRatio = 1
		released := 0
		m := w.listen(c, func(m *member, ev Event) { // as long as this lasts, the worker has the record in hand
			if ev.Name == EventKeyHeld {
				done := make(chan bool)
				go func() { done <- m.e.ReleaseKey("t", 0, []byte("a")) }()
				if <-done {
					released++
				}
			}
		})
		w.produce(0, "a=bad", "a=2", "a=3")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
		if got := log.all(); !slices.Equal(got, []string{"a=bad", "a=2", "a=3"}) {
			t.Errorf("calls %v", got)
		}
		if released != 1 {
			t.Errorf("released %d times", released)
		}
		m.stop()
	})
}

// listen starts a member whose events go to f.
func (w *world) listen(c Config, f func(*member, Event)) *member {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{w: w, cancel: cancel, done: make(chan error, 1)}
	c.OnEvent = func(ev Event) { f(m, ev) }
	e, err := New(c)
	if err != nil {
		w.Fatal(err)
	}
	m.e = e
	w.members = append(w.members, m)
	go func() { m.done <- e.Run(ctx) }()
	return m
}

// C7: AfterKeyMax bounds what is remembered: nothing starts beyond it, which is said once, until a key is released.
func TestAfterKeyMax(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		c := w.config(func(_ context.Context, r *Record) error { log.add(r); return Permanent(errBoom) })
		c.Workers = 1
		c.DeadLetter.AfterKey = KeyHolds
		c.DeadLetter.AfterKeyMax = 3
		c.DeadLetter.BreakerRatio = 1
		w.produce(0, "a=1", "b=1", "c=1", "d=1", "e=1", "f=1")
		m := w.start(c)
		w.eventually("three are written", func() bool { return w.committed("t", 0) == 3 })
		time.Sleep(time.Minute)
		if n := log.len(); n != 3 || m.count(EventPaused) != 1 {
			t.Errorf("%d handled, said %d times", n, m.count(EventPaused))
		}
		for i, key := range []string{"a", "b", "c"} {
			if !m.e.ReleaseKey("t", 0, []byte(key)) {
				t.Errorf("%s is not remembered", key)
			}
			w.eventually("one more is written", func() bool { return w.committed("t", 0) == int64(4+i) })
			if n := m.count(EventPaused); n > 2+i { // less where the next key comes before anybody looks
				t.Errorf("said %d times", n)
			}
		}
		m.stop()
	})
}

// C9: resets of the breaker that race with its trips leave nothing stopped, unhealthy or parked behind.
func TestResetRacesTrip(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return Permanent(errBoom) })
		c.DeadLetter.BreakerMin = 1
		w.produce(0, numbered("v", 300)...)
		w.produce(1, numbered("v", 300)...)
		m := w.launch(c)
		stop := make(chan struct{})
		var resetters sync.WaitGroup
		for range 2 {
			resetters.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						m.e.ResetBreaker("t")
					}
				}
			})
		}
		w.eventually("committed", func() bool { return w.committed("t", 0) == 300 && w.committed("t", 1) == 300 })
		close(stop)
		resetters.Wait()
		m.e.ResetBreaker("t")
		if st := m.e.Status(); !st.Healthy || len(st.Partitions[0].Paused)+len(st.Partitions[1].Paused) > 0 {
			t.Errorf("%v %+v", st.Problems, st.Partitions)
		}
		if m.count(EventBreakerOpen) == 0 {
			t.Error("it never opened")
		}
		m.stop()
		w.dead("t.dlq", 600)
	})
}

// C9: a reset that comes between a trip's decision and the record's parking finds it: no record waits for a reset that was.
func TestResetFindsEveryRecord(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return Permanent(errBoom) })
		c.DeadLetter.BreakerMin = 1
		w.produce(0, "a", "b")
		resets := 0
		m := w.listen(c, func(m *member, ev Event) { // as long as this lasts, the record that tripped it is not free to be found
			if ev.Name == EventBreakerOpen {
				waiting, _ := m.e.breakers.reset(m.e, "t") // ResetBreaker, less its event
				for _, st := range waiting {
					m.e.writeDeadLetter(st)
				}
				resets++
			}
		})
		w.eventually("committed", func() bool { return w.committed("t", 0) == 2 })
		if resets == 0 {
			t.Error("it never opened")
		}
		m.stop()
	})
}

// The counters only grow, whatever ends: failures, batches that give records back, records that follow a dead letter, and
// partitions that are lost.
func TestCountersGrow(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		c := brisk(w.config(func(_ context.Context, r *Record) error {
			time.Sleep(time.Millisecond)
			if strings.HasSuffix(string(r.Value), "7") {
				return errBoom
			}
			return nil
		}))
		c.Retry.Base, c.Retry.Attempts = time.Millisecond, 2
		c.DeadLetter.AfterKey = KeyFollows
		c.DeadLetter.BreakerRatio = 1
		m := w.start(c)
		w.produce(0, numbered("k=", 200)...)
		w.produce(1, numbered("", 200)...)
		var was Counts
		watch := func() bool {
			now := m.e.Status().Counts
			if now.Handled < was.Handled || now.Failures < was.Failures || now.DeadLettered < was.DeadLettered || now.StaleCompletions < was.StaleCompletions {
				t.Errorf("from %+v to %+v", was, now)
			}
			was = now
			return w.committed("t", 0) == 200 && w.committed("t", 1) == 200
		}
		w.eventually("committed", watch)
		// k=0 to k=6 succeed, k=7 and all behind it follow; of the other partition every tenth fails.
		if was.Handled != 7+180 || was.Failures != 2+2*20 || was.DeadLettered != 193+20 {
			t.Errorf("%+v", was)
		}
		m.e.lose(m.e.allEpochs(), "the test says so")
		watch()
		if was.Handled != 7+180 {
			t.Errorf("%d handled after a loss", was.Handled)
		}
		m.cancel()
		<-m.done
	})
}

// C6: what a batch gives back because an earlier record failed counts as handled once, when it is.
func TestReturnedRecordsCountOnce(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		fails := true
		c := w.batchConfig(OrderPartition, 10, func(_ context.Context, b *Batch) error {
			for i, r := range b.Records {
				if string(r.Value) == "v1" && fails {
					fails = false
					b.Fail(i, errBoom)
				}
			}
			return nil
		})
		w.produce(0, numbered("v", 5)...)
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 5 })
		if n := m.e.Status().Counts; n.Handled != 5 || n.Failures != 1 {
			t.Errorf("%+v", n)
		}
		m.stop()
	})
}

// Commit.Records counts settled records: one whose outputs are not acknowledged is none, one that is dead-lettered is one.
func TestCommitRecordsCountsSettled(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.config(func(_ context.Context, r *Record) error {
			if strings.HasPrefix(string(r.Value), "bad") {
				return Permanent(errBoom)
			}
			if r.Attempt == 1 {
				return errBoom // a handler call that settles nothing
			}
			return nil
		})
		c.DeadLetter.BreakerRatio = 1
		c.Commit = Commit{Interval: time.Hour, Records: 4}
		m := w.start(c)
		w.eventually("the start is committed", func() bool { return w.committed("t", 0) == 0 })
		m.e.counts.sinceCommit.Store(0)
		w.produce(0, "a", "b", "bad1")
		w.eventually("three are settled", func() bool { return m.part(0).Frontier == 3 })
		time.Sleep(time.Second)
		if at := w.committed("t", 0); at != 0 {
			t.Errorf("committed %d after three settled records", at)
		}
		w.produce(0, "bad2")
		w.eventually("the fourth", func() bool { return w.committed("t", 0) == 4 })
		m.stop()
	})
}

// C9: the status says which key and how many failed attempts the record at the frontier has, in every state.
func TestOldestHasItsKey(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		gates := w.shut("k=1")
		c := brisk(w.config(func(ctx context.Context, r *Record) error {
			if r.Attempt == 1 {
				return errBoom
			}
			return gates.pass(ctx, r)
		}))
		w.produce(0, "k=1")
		m := w.start(c)
		w.eventually("it runs again", func() bool { return gates.isAt("k=1") })
		if o := m.part(0).Oldest; o == nil || o.State != "running" || o.Key != "k" || o.Attempts != 1 {
			t.Errorf("%+v", o)
		}
		gates.openAll()
		w.eventually("done", func() bool { return m.part(0).Frontier == 1 })
		m.e.lookup("t", 0).lane.Pause()
		w.produce(0, "j=2", "l=3")
		w.eventually("they wait", func() bool { return m.part(0).Waiting == 2 })
		if o := m.part(0).Oldest; o == nil || o.State != "waiting" || o.Key != "j" || o.Attempts != 0 {
			t.Errorf("%+v", o)
		}
		m.e.lookup("t", 0).lane.Unpause()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
		m.stop()
	})
}
