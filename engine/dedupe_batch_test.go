package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C6, C5: under OrderPartition a record that does not run now ends the batch before it, so that nothing behind a failure starts
// before that is settled, though its key is free: neither a copy of it nor what follows.
func TestBatchWithCopiesKeepsItsOrder(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		var mu sync.Mutex
		var calls []string
		fails := map[string]int{"a": 2, "c": 1}
		c := m.once(byValue, func(ctx context.Context, r *Record) error {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprint(r.Offset))
			v := string(r.Value)
			if fails[v] > 0 {
				fails[v]--
				return errBoom
			}
			return m.effect(ctx, r)
		})
		c.Order, c.Retry.Base = OrderPartition, time.Second
		c = batched(c, 10)
		w.produce(0, "a", "a", "b", "a", "c", "b", "d", "c", "e")
		mb := m.start(c)
		w.eventually("all", func() bool { return w.committed("t", 0) == 9 })
		if got := fmt.Sprint(calls); got != "[0 0 0 2 4 4 6 8]" {
			t.Errorf("records %s were started", got)
		}
		if more := m.effects.more(); len(more) > 0 || len(m.effects.all()) != 5 {
			t.Errorf("%v", m.effects.all())
		}
		if n := mb.e.Status().Dedupe.Hits; n != 4 {
			t.Errorf("%d hits", n)
		}
		mb.stop()
	})
}

// C5: the copies in one batch are not handled together: the first of each is, the others wait for it without a worker.
func TestCopiesInOneBatch(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		var mu sync.Mutex
		var batches []string
		c := m.once(byValue, nil)
		hold := make(chan struct{})
		var once sync.Once
		open := func() { once.Do(func() { close(hold) }) }
		w.ends = append(w.ends, open)
		c.BatchSize, c.BatchLinger, c.Workers = 6, time.Second, 1
		c.BatchHandler = BatchHandlerFunc(func(_ context.Context, b *Batch) error {
			s := ""
			for i, r := range b.Records {
				s += string(r.Value)
				if string(r.Value) == "a" && len(batches) == 0 {
					b.Fail(i, errBoom)
				} else if err := m.did(string(r.Value)); err != nil {
					return err
				}
			}
			mu.Lock()
			batches = append(batches, s)
			mu.Unlock()
			<-hold
			return nil
		})
		w.produce(0, "a", "a", "b", "b", "a", "c")
		mb := m.start(c)
		w.eventually("a batch runs", func() bool { mu.Lock(); defer mu.Unlock(); return len(batches) == 1 })
		open()
		w.eventually("all", func() bool { return w.committed("t", 0) == 6 })
		mu.Lock()
		defer mu.Unlock()
		if batches[0] != "abc" || len(batches) != 2 || batches[1] != "a" || len(m.effects.more()) > 0 {
			t.Errorf("batches %q, %v", batches, m.effects.all())
		}
		mb.stop()
	})
}

// emitting is a handler that has an output of this size for each value.
func (m *machine) emitting(size func(r *Record) int) HandlerFunc {
	return func(ctx context.Context, r *Record) error {
		r.Emit(&kgo.Record{Topic: "out", Value: make([]byte, size(r))})
		return m.effect(ctx, r)
	}
}

// C5, C1: a record's mark comes after its outputs are acknowledged, and until then its copies wait. When the machine dies before,
// it is handled again.
func TestMarkAfterOutputs(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.createOut()
		out := w.cluster.TopicInfo("out").TopicID
		release := w.stall(func(req kmsg.Request) bool { return req.(*kmsg.ProduceRequest).Topics[0].TopicID == out }, kmsg.Produce)
		a := w.machine(nil)
		w.produce(0, "x", "x")
		mb := a.start(a.once(byValue, a.emitting(func(*Record) int { return 1 })))
		w.eventually("written, and the copy waits", func() bool { p := mb.part(0); return p != nil && p.Parked == 2 && a.effects.of("x") == 1 })
		time.Sleep(time.Second)
		if n := mb.e.Status().Dedupe.Marks; n != 0 {
			t.Errorf("%d marks before the acknowledgement", n)
		}
		b := a.dies()
		release()
		mb = b.start(b.once(byValue, b.emitting(func(*Record) int { return 1 })))
		w.eventually("again, once", func() bool { return w.committed("t", 0) == 2 })
		if n := b.effects.of("x"); n != 2 {
			t.Errorf("handled %d times", n)
		}
		mb.stop()
	})
}

// C5: outputs that can't ever be written are a failure of the record, and its key is free for a copy.
func TestFailedOutputsFreeTheKey(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		w.createOut()
		m := w.machine(nil)
		var good atomic.Bool
		c := m.once(byValue, m.emitting(func(*Record) int {
			if good.Load() {
				return 1
			}
			return 4 << 20
		}))
		c.Dedupe.Scope, c.Retry.Base, c.Retry.Max = "all", 10*time.Minute, 10*time.Minute
		mb := m.start(c)
		w.produce(0, "x")
		w.eventually("failed", func() bool { return mb.e.Status().Counts.Failures == 1 })
		good.Store(true)
		w.produce(1, "x")
		w.eventually("its copy runs", func() bool { return w.committed("t", 1) == 1 })
		mb.stop()
	})
}

// C5: a record whose outputs have failed holds its key no more, also when its partition goes away before it is tried again.
func TestClaimEndsWithTheTenure(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.createOut()
		m := w.machine(nil)
		var mb *member
		var good atomic.Bool
		h := m.emitting(func(*Record) int {
			if good.Swap(true) {
				return 1
			}
			mb.e.stop(mb.e.lookup("t", 0), stopHold, errBoom) // what may run again waits
			return 4 << 20
		})
		mb = m.start(m.once(byValue, h))
		w.produce(0, "x")
		w.eventually("it waits to be tried again", func() bool { p := mb.part(0); return p != nil && m.effects.of("x") == 1 && p.Waiting == 1 })
		w.kick(mb.id())
		w.eventually("in the next tenure it runs", func() bool { return w.committed("t", 0) == 1 })
		mb.stop()
	})
}

// C7: a record that waits for its key and is given up is forgotten, however long the key stays held.
func TestWaitersAreForgotten(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		g := w.shut("x")
		mb := m.start(m.once(byValue, func(_ context.Context, r *Record) error { return g.pass(context.Background(), r) }))
		w.produce(0, "x", "x", "x")
		for _, want := range []int{2, 3} { // in the second tenure, the first one's handler has the key
			w.eventually("they wait", func() bool { p := mb.part(0); return p != nil && p.Parked == want && g.isAt("x") })
			if n := mb.waiting(); n != want {
				t.Errorf("%d wait, want %d", n, want)
			}
			if want == 2 {
				w.kick(mb.id())
			}
		}
		g.openAll()
		w.eventually("all", func() bool { return w.committed("t", 0) == 3 })
		if came, _ := g.calls("x"); came != 1 {
			t.Errorf("%d calls", came)
		}
		if n := mb.waiting(); n != 0 {
			t.Errorf("%d wait", n)
		}
		mb.stop()
	})
}

// waiting is how many records wait for a key.
func (m *member) waiting() int {
	m.e.marks.mu.Lock()
	defer m.e.marks.mu.Unlock()
	return len(m.e.marks.waiting)
}

// C1, C5: where the first failure ends a batch, what follows it was not handled, and gets no mark; also when the partition was lost
// before the batch came to its end. It would be lost with it.
func TestEndOfALostBatch(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		g := w.shut("b")
		var failed atomic.Bool
		c := m.once(byValue, func(ctx context.Context, r *Record) error {
			if string(r.Value) == "b" && !failed.Load() {
				_ = g.pass(context.Background(), r)
				failed.Store(true)
				return errBoom
			}
			return m.effect(ctx, r)
		})
		c.Order = OrderPartition
		w.produce(0, "a", "b", "c", "d")
		mb := m.start(batched(c, 4))
		w.eventually("in the middle of the batch", func() bool { return g.isAt("b") })
		w.kick(mb.id())
		mb.awaitName(EventLost)
		g.openAll()
		w.eventually("all", func() bool { return w.committed("t", 0) == 4 })
		if once := m.effects.times(1); len(once) != 4 {
			t.Errorf("handled once: %v of %v", once, m.effects.all())
		}
		mb.stop()
	})
}
