package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batchLog is the batches that a handler was called with, each as its values in one string.
type batchLog struct {
	mu  sync.Mutex
	all []string
}

func (l *batchLog) add(b *Batch) string {
	var vs []string
	for _, r := range b.Records {
		vs = append(vs, string(r.Value))
	}
	s := strings.Join(vs, " ")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
	return s
}

func (l *batchLog) batches() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func (w *world) batchConfig(order Order, size int, h BatchHandlerFunc) Config {
	c := brisk(w.config(nil))
	c.BatchHandler, c.Order, c.BatchSize, c.Retry.Jitter = h, order, size, -1
	c.DeadLetter.BreakerRatio = 1
	return c
}

// A batch is full, or as old as BatchLinger; it is of one partition.
func TestBatchSizeAndLinger(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		var log batchLog
		var at []time.Time
		c := w.batchConfig(OrderUnordered, 4, func(_ context.Context, b *Batch) error {
			at = append(at, time.Now())
			log.add(b)
			for _, r := range b.Records {
				if r.Partition != b.Partition || r.Topic != b.Topic {
					w.Errorf("%s[%d] in a batch of %s[%d]", r.Topic, r.Partition, b.Topic, b.Partition)
				}
			}
			return nil
		})
		c.BatchLinger, c.Workers = 2*time.Second, 1
		m := w.start(c)
		w.eventually("both here", func() bool { return len(m.owns()) == 2 })
		begun := time.Now()
		w.produce(0, "a", "b", "c", "d", "e", "f")
		w.produce(1, "x")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 6 && w.committed("t", 1) == 1 })
		got := log.batches()
		if len(got) != 3 || got[0] != "a b c d" || !slices.Contains(got, "e f") || !slices.Contains(got, "x") {
			t.Errorf("batches %q", got)
		}
		if full, rest := at[0].Sub(begun), at[1].Sub(begun); full > time.Second || rest < 2*time.Second || rest > 3*time.Second {
			t.Errorf("the full batch came after %v, the rest after %v", full, rest)
		}
		m.stop()
	})
}

// C6: under OrderKey a batch holds at most one record of a key, and one record of a batch may fail alone: it is tried again with
// its key waiting; the others are done.
func TestBatchByKey(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log batchLog
		c := w.batchConfig(OrderKey, 10, func(_ context.Context, b *Batch) error {
			log.add(b)
			seen := map[string]bool{}
			for i, r := range b.Records {
				if r.Key != nil && seen[string(r.Key)] {
					w.Errorf("two of key %s in a batch", r.Key)
				}
				seen[string(r.Key)] = true
				if string(r.Value) == "a=1" && r.Attempt == 1 {
					b.Fail(i, errBoom)
				}
			}
			return nil
		})
		c.BatchLinger, c.Workers = 50*time.Millisecond, 1
		w.produce(0, "a=1", "b=1", "a=2", "b=2", "c=1", "n1", "n2")
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 7 })
		got := log.batches()
		if want := []string{"a=1 b=1 c=1 n1 n2", "b=2", "a=1", "a=2"}; !slices.Equal(got, want) {
			t.Errorf("batches %q, not %q", got, want)
		}
		w.settled(m)
		m.stop()
	})
}

// C6: under OrderPartition the first failure ends the batch: what follows it is handled again, after it.
func TestBatchByPartition(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log batchLog
		c := w.batchConfig(OrderPartition, 10, func(_ context.Context, b *Batch) error {
			log.add(b)
			for i, r := range b.Records {
				if string(r.Value) == "c" && r.Attempt == 1 {
					b.Fail(i, errBoom)
				}
			}
			return nil
		})
		c.BatchLinger = 50 * time.Millisecond
		w.produce(0, "a", "b", "c", "d", "e")
		m := w.start(c)
		w.eventually("c is parked", func() bool { return w.committed("t", 0) == 2 })
		w.eventually("committed", func() bool { return w.committed("t", 0) == 5 })
		if got := log.batches(); !slices.Equal(got, []string{"a b c d e", "c d e"}) {
			t.Errorf("batches %q", got)
		}
		w.settled(m)
		m.stop()
	})
}

// An error or a panic of a batch handler fails the whole batch; each record goes its own way from there.
func TestBatchFailsAsAWhole(t *testing.T) {
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprint(panics), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				var log batchLog
				c := w.batchConfig(OrderUnordered, 10, func(_ context.Context, b *Batch) error {
					log.add(b)
					if panics {
						panic("ouch")
					}
					return errBoom
				})
				c.Retry = Retry{Attempts: 2, Base: time.Second, Jitter: -1}
				w.produce(0, "a", "b", "c")
				m := w.start(c)
				w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
				m.stop()
				w.dead("t.dlq", 3)
				if got := log.batches(); len(got) != 2 || got[0] != "a b c" {
					t.Errorf("batches %q", got)
				}
			})
		})
	}
}

// C1: a record with outputs is settled when they are acknowledged, and no sooner; an output that can't be written is a failed
// attempt. Later records of its key wait, others do not.
func TestOutputs(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		if err := w.cluster.CreateTopic("out", 1, nil); err != nil {
			t.Fatal(err)
		}
		refuse := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "out", Err: kerr.InvalidRecord, Count: 2})
		var log callLog
		c := brisk(w.config(func(_ context.Context, r *Record) error {
			log.add(r)
			if strings.HasPrefix(string(r.Value), "k=") {
				r.Emit(&kgo.Record{Topic: "out", Value: slices.Clone(r.Value)})
			}
			return nil
		}))
		c.Retry.Jitter = -1
		w.produce(0, "k=1", "k=2", "j=1")
		m := w.start(c)
		w.eventually("j is done, k waits", func() bool { return slices.Contains(log.all(), "j=1") && refuse.Hits() == 1 })
		time.Sleep(500 * time.Millisecond)
		if at := w.committed("t", 0); at != 0 {
			t.Errorf("committed %d before the output was written", at)
		}
		w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
		got := log.all()
		slices.Sort(got)
		if !slices.Equal(got, []string{"j=1", "k=1", "k=1", "k=1", "k=2"}) {
			t.Errorf("calls %v", got)
		}
		out := w.dead("out", 2)
		if string(out[0].Value) != "k=1" || string(out[1].Value) != "k=2" {
			t.Errorf("outputs %s %s", out[0].Value, out[1].Value)
		}
		w.settled(m)
		m.stop()
	})
}

// C8, C1: a drain waits for outputs that are on their way, and commits behind them.
func TestDrainWaitsForOutputs(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		if err := w.cluster.CreateTopic("out", 1, nil); err != nil {
			t.Fatal(err)
		}
		c := brisk(w.config(func(_ context.Context, r *Record) error {
			r.Emit(&kgo.Record{Topic: "out", Value: []byte("v")})
			return nil
		}))
		m := w.start(c)
		w.eventually("here", func() bool { return len(m.owns()) == 1 })
		out := w.cluster.TopicInfo("out").TopicID
		release := w.stall(func(req kmsg.Request) bool { return req.(*kmsg.ProduceRequest).Topics[0].TopicID == out }, kmsg.Produce)
		w.produce(0, "x")
		w.eventually("parked for its output", func() bool { return m.part(0).Parked == 1 })
		m.cancel()
		time.Sleep(2 * time.Second)
		release()
		if err := <-m.done; err != nil {
			t.Error(err)
		}
		if at := w.committed("t", 0); at != 1 {
			t.Errorf("committed %d", at)
		}
		w.dead("out", 1)
	})
}

// C6: under OrderPartition a record whose output could not be written goes back to failed: nothing that comes after it may be
// handled in the same batch.
func TestBatchOutputFails(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		if err := w.cluster.CreateTopic("out", 1, nil); err != nil {
			t.Fatal(err)
		}
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "out", Err: kerr.InvalidRecord})
		var log batchLog
		c := w.batchConfig(OrderPartition, 10, func(_ context.Context, b *Batch) error {
			log.add(b)
			for _, r := range b.Records {
				if string(r.Value) == "a" {
					r.Emit(&kgo.Record{Topic: "out", Value: []byte("a")})
				}
			}
			return nil
		})
		c.BatchLinger = 10 * time.Millisecond
		w.produce(0, "a")
		m := w.start(c)
		w.eventually("a is parked", func() bool { return m.part(0) != nil && m.part(0).Parked == 1 })
		w.produce(0, "b", "c")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
		got := log.batches()
		if !slices.Equal(got, []string{"a", "a b c"}) && !slices.Equal(got, []string{"a", "a", "b c"}) {
			t.Errorf("batches %q", got)
		}
		m.stop()
	})
}

// A handler that runs longer than HandlerTimeout has its context ended; that is a failed attempt like any other.
func TestHandlerTimeout(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var took []time.Duration
		c := brisk(w.config(func(ctx context.Context, r *Record) error {
			begun := time.Now()
			if r.Attempt < 3 {
				<-ctx.Done()
			}
			took = append(took, time.Since(begun))
			return ctx.Err()
		}))
		c.HandlerTimeout = 700 * time.Millisecond
		w.produce(0, "v")
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		if !slices.Equal(took, []time.Duration{700 * time.Millisecond, 700 * time.Millisecond, 0}) {
			t.Errorf("attempts took %v", took)
		}
		if n := m.e.Status().Counts.Failures; n != 2 {
			t.Errorf("%d failures", n)
		}
		m.stop()
	})
}

// C8: a worker keeps nothing of what it has handled: neither behind a shorter batch that is slow, nor while it is idle.
func TestWorkersPinNothing(t *testing.T) {
	kept := func(w *workerState, from int) (n int) {
		for i := from; i < len(w.owns); i++ {
			if w.owns[i].Value != nil || w.owns[i].Context != nil {
				n++
			}
		}
		if w.own.Value != nil || w.own.Context != nil {
			n++
		}
		return n
	}
	for _, size := range []int{0, 4} {
		inWorld(t, 1, func(w *world) {
			var m *member
			shorter := 0
			c := w.batchConfig(OrderUnordered, size, func(_ context.Context, b *Batch) error {
				if len(b.Records) == size {
					time.Sleep(time.Second) // so that the rest is due, and follows at once
				} else {
					shorter++
					if n := kept(m.e.local(0), len(b.Records)); n > 0 {
						w.Errorf("a batch of %d keeps %d others", len(b.Records), n)
					}
				}
				return nil
			})
			if size == 0 {
				c.BatchHandler, c.Handler = nil, HandlerFunc(func(context.Context, *Record) error { return nil })
			}
			c.Workers = 1
			m = w.start(c)
			w.eventually("here", func() bool { return len(m.owns()) == 1 })
			w.produce(0, "a", "b", "c", "d", "e", "f")
			w.eventually("committed", func() bool { return w.committed("t", 0) == 6 })
			synctest.Wait()
			if n := kept(m.e.local(0), 0); n > 0 {
				w.Errorf("batches of %d: an idle worker keeps %d records", size, n)
			}
			if size > 0 && shorter != 1 {
				w.Errorf("%d shorter batches", shorter)
			}
			m.stop()
		})
	}
}

// C1: what a handler does to its batch's slice is its own affair: the next batch is whole.
func TestHandlersMayCutTheirBatch(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log batchLog
		c := w.batchConfig(OrderUnordered, 4, func(_ context.Context, b *Batch) error {
			log.add(b)
			b.Records[0] = nil
			b.Records = b.Records[3:]
			return nil
		})
		c.Workers = 1
		m := w.start(c)
		w.produce(0, "a", "b", "c", "d", "e", "f", "g", "h")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 8 })
		if got := log.batches(); !slices.Equal(got, []string{"a b c d", "e f g h"}) {
			w.Errorf("batches %q", got)
		}
		m.stop()
	})
}
