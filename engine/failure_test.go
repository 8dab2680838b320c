package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// dead reads what is in a dead-letter topic, by an independent client.
func (w *world) dead(topic string, want int) []*kgo.Record {
	w.Helper()
	cl := w.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	var got []*kgo.Record
	for len(got) < want {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		fs := cl.PollFetches(ctx)
		late := ctx.Err() != nil
		cancel()
		if late {
			w.Fatalf("%s holds %d records, not %d", topic, len(got), want)
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, r) })
	}
	if len(got) != want {
		w.Fatalf("%s holds %d records, not %d", topic, len(got), want)
	}
	return got
}

func header(r *kgo.Record, key string) string {
	v := "(none)"
	for _, h := range r.Headers { // the last one counts
		if h.Key == key {
			v = string(h.Value)
		}
	}
	return v
}

// C1: a record that fails is tried again with backoff, in its place; the offset waits for it.
func TestRetrySucceeds(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		var attempts []int
		begun := time.Now()
		var took time.Duration
		c := w.config(func(_ context.Context, r *Record) error {
			log.add(r)
			if string(r.Value) == "a=1" {
				attempts = append(attempts, r.Attempt)
				took = time.Since(begun)
				if r.Attempt < 3 {
					return errBoom
				}
			}
			return nil
		})
		c.Workers = 1
		c.Retry.Jitter = -1
		w.produce(0, "a=1", "b=1", "a=2")
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
		if !slices.Equal(attempts, []int{1, 2, 3}) {
			t.Errorf("attempts %v", attempts)
		}
		if took < 3*time.Second || took > 4*time.Second {
			t.Errorf("the third attempt came after %v, not after 1 s + 2 s", took)
		}
		// C6: b goes on, a=2 waits for a=1.
		if got := log.all(); !slices.Equal(got, []string{"a=1", "b=1", "a=1", "a=1", "a=2"}) {
			t.Errorf("order %v", got)
		}
		m.stop()
	})
}

// C1: what is given up goes to the dead-letter topic, byte for byte, with the headers that say why.
func TestDeadLetter(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		c := w.config(func(_ context.Context, r *Record) error {
			if string(r.Value) == "bad" {
				return fmt.Errorf("no such näme: %w", errBoom)
			}
			return nil
		})
		c.Retry = Retry{Attempts: 2, Base: time.Second}
		rec := &kgo.Record{Topic: "t", Partition: 2, Key: nil, Value: []byte("bad"), Headers: []kgo.RecordHeader{{Key: "attempts", Value: []byte("mine")}, {Key: "x", Value: nil}}}
		if err := w.cl.ProduceSync(context.Background(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
		w.produce(2, "good")
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 2) == 2 })
		m.stop()
		d := w.dead("t.dlq", 1)[0]
		if d.Key != nil || string(d.Value) != "bad" || d.Partition != 2 {
			t.Errorf("key %q value %q partition %d", d.Key, d.Value, d.Partition)
		}
		if d.Headers[0].Key != "attempts" || string(d.Headers[0].Value) != "mine" || d.Headers[1].Value != nil {
			t.Errorf("the record's own headers changed: %v", d.Headers[:2])
		}
		for k, want := range map[string]string{
			HeaderTopic: "t", HeaderPartition: "2", HeaderOffset: "0", HeaderTimestamp: rec.Timestamp.UTC().Format(rfc3339ms),
			HeaderErrorType: "errors.errorString", HeaderError: `no such n\u00e4me: boom`, HeaderAttempts: "2", HeaderGroup: testGroup,
		} {
			if got := header(d, k); got != want {
				t.Errorf("header %s = %q, want %q", k, got, want)
			}
		}
		if at, err := time.Parse(time.RFC3339, header(d, HeaderFailedAt)); err != nil || time.Since(at) > time.Minute {
			t.Errorf("failed_at %v %v", at, err)
		}
		if !d.Timestamp.After(rec.Timestamp) {
			t.Errorf("the dead letter has the timestamp of the record (%v): retention would delete it early", d.Timestamp)
		}
	})
}

// The envelope is JSON; what is not UTF-8 survives as base64, and null stays null.
func TestDeadLetterEnvelope(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return Permanent(errBoom) })
		c.DeadLetter.Format = DeadLetterEnvelope
		c.DeadLetter.BreakerRatio = 1
		for _, r := range []*kgo.Record{{Value: []byte{0xff, 0x00}, Key: []byte("k")}, {Value: nil, Key: []byte{}}} {
			r.Topic = "t"
			if err := w.cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 2 })
		m.stop()
		ds := w.dead("t.dlq", 2)
		slices.SortFunc(ds, func(a, b *kgo.Record) int { return int(a.Offset - b.Offset) })
		seen := map[int64]Envelope{}
		for _, d := range ds {
			var env Envelope
			if err := json.Unmarshal(d.Value, &env); err != nil {
				t.Fatal(err)
			}
			seen[env.Offset] = env
		}
		if e := seen[0]; *e.Value != "/wA=" || e.ValueEncoding != "base64" || *e.Key != "k" || e.KeyEncoding != "" || e.Attempts != 1 || e.Topic != "t" {
			t.Errorf("%+v", e)
		}
		if e := seen[1]; e.Value != nil || e.Key == nil || *e.Key != "" {
			t.Errorf("%+v", e)
		}
	})
}

// C1: the offset does not pass a dead letter that is not acknowledged, and passes it once it is.
// Seen at getsentry/arroyo#482, gmbyapa/kstream#23.
func TestDeadLetterOutage(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		h := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t.dlq", Err: kerr.TopicAuthorizationFailed, Count: 3})
		c := w.config(func(_ context.Context, r *Record) error {
			if string(r.Value) == "k=bad" {
				return Permanent(errBoom)
			}
			return nil
		})
		w.produce(0, "k=1", "k=bad", "k=3", "j=4")
		m := w.start(c)
		m.awaitName(EventDeadLetterFailed)
		time.Sleep(500 * time.Millisecond) // several commits
		if at := w.committed("t", 0); at != 1 {
			t.Errorf("committed %d while the dead letter of 1 is not written", at)
		}
		if ok, problems := m.e.Healthy(); ok {
			t.Errorf("healthy: %v", problems)
		}
		w.eventually("committed", func() bool { return w.committed("t", 0) == 4 })
		if h.Hits() != 3 {
			t.Errorf("%d faults", h.Hits())
		}
		w.dead("t.dlq", 1)
		if ok, problems := m.e.Healthy(); !ok {
			t.Errorf("unhealthy after it healed: %v", problems)
		}
		m.stop()
	})
}

// C1, C9: a dead letter that is too large falls back to the origin's address, visibly.
// Seen at getsentry/arroyo#482.
func TestDeadLetterTooLarge(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t.dlq", Err: kerr.MessageTooLarge, Count: 1})
		w.produce(0, "k=big")
		m := w.start(w.config(func(context.Context, *Record) error { return Permanent(errBoom) }))
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		m.awaitName(EventDeadLetterCut)
		m.stop()
		d := w.dead("t.dlq", 1)[0]
		if d.Value != nil || header(d, HeaderOmitted) != "value" || header(d, HeaderOffset) != "0" {
			t.Errorf("%q %v", d.Value, d.Headers)
		}
	})
}

// Errors steer: skip settles, hold stops the partition until Unhold, end stops the engine.
func TestSteering(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var holds atomic.Int32
		c := w.config(func(_ context.Context, r *Record) error {
			switch string(r.Value) {
			case "skip":
				return Skip("not for us")
			case "hold":
				if holds.Add(1) == 1 {
					return Hold(errBoom)
				}
			case "end":
				return End(errBoom)
			case "later":
				if r.Attempt == 1 {
					return RetryAfter(7*time.Second, errBoom)
				}
			}
			return nil
		})
		c.Order = OrderPartition
		w.produce(0, "skip", "later", "hold", "x", "end", "never")
		m := w.start(c)
		ev := m.awaitName(EventHeld)
		if ev.Offset != 2 {
			t.Errorf("held at %d", ev.Offset)
		}
		if got := m.e.Status().Partitions[0].Paused; !slices.Contains(got, "hold") {
			t.Errorf("paused %v", got)
		}
		w.eventually("committed up to the hold", func() bool { return w.committed("t", 0) == 2 })
		if !m.e.Unhold("t", 0) {
			t.Error("nothing to unhold")
		}
		if err := <-m.done; err == nil || !errors.Is(err, errBoom) {
			t.Errorf("Run returned %v", err)
		}
		if at := w.committed("t", 0); at != 4 {
			t.Errorf("committed %d", at)
		}
	})
}

// A panic is an error with a stack.
func TestPanicIsAnError(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.produce(0, "v")
		c := w.config(func(context.Context, *Record) error { panic("ouch") })
		c.Retry.Attempts = 1
		m := w.start(c)
		ev := m.awaitName(EventDeadLettered)
		var p *PanicError
		if !errors.As(ev.Err, &p) || p.Value != "ouch" || len(p.Stack) == 0 {
			t.Errorf("%#v", ev.Err)
		}
		m.stop()
		if got := header(w.dead("t.dlq", 1)[0], HeaderErrorType); got != "panic" {
			t.Errorf("error type %q", got)
		}
	})
}

// C3: a handler may overwrite the whole of its record. The next one that the worker claimed with it has its owner all the same.
func TestOverwrittenRecord(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		const n = 100
		var orphans atomic.Int32
		c := w.config(func(_ context.Context, r *Record) error {
			if r.Owner().MemberID == "" || r.Attempt != 1 {
				orphans.Add(1)
			}
			*r = Record{Record: &kgo.Record{Value: []byte("other")}, Attempt: 7}
			return nil
		})
		w.produce(0, numbered("v", n)...)
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == n })
		m.stop()
		if got := orphans.Load(); got > 0 {
			t.Errorf("%d records had no owner", got)
		}
	})
}

// C1: a worker handles what it has claimed behind a record whose handler panicked, each once.
func TestPanicAmidAChunk(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		const n = 500
		var calls [n]atomic.Int32
		c := w.config(func(_ context.Context, r *Record) error {
			if calls[r.Offset].Add(1); r.Offset%7 == 3 {
				panic("ouch")
			}
			return nil
		})
		c.Workers, c.Retry.Attempts = 1, 1
		c.DeadLetter = DeadLetter{GiveUp: GiveUpSkip, BreakerRatio: 1}
		w.produce(0, numbered("v", n)...)
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == n })
		m.stop()
		for offset := range calls {
			if got := calls[offset].Load(); got != 1 {
				t.Errorf("offset %d was handled %d times", offset, got)
			}
		}
		if got := m.e.Status().Counts.Skipped; got != n/7+1 && got != n/7 {
			t.Errorf("%d were skipped", got)
		}
	})
}

// The breaker: when most of what settles is dead-lettered, the topic's work is held instead of drained.
func TestBreaker(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var broken atomic.Bool
		broken.Store(true)
		c := w.config(func(context.Context, *Record) error {
			if broken.Load() {
				return Permanent(errBoom)
			}
			return nil
		})
		w.produce(0, numbered("v", 1000)...)
		m := w.start(c)
		m.awaitName(EventBreakerOpen)
		time.Sleep(10 * time.Second)
		st := m.e.Status()
		if st.Counts.DeadLettered < 100 || st.Counts.DeadLettered > 200 {
			t.Errorf("dead-lettered %d before the breaker held the rest", st.Counts.DeadLettered)
		}
		if st.Healthy {
			t.Error("healthy with an open breaker")
		}
		broken.Store(false)
		if !m.e.ResetBreaker("t") {
			t.Error("it was not open")
		}
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1000 })
		if !m.e.Status().Healthy {
			t.Errorf("unhealthy: %v", m.e.Status().Problems)
		}
		m.stop()
	})
}

// Later records of a dead-lettered key: hold waits for ReleaseKey; follow dead-letters them, too.
func TestAfterDeadLetter(t *testing.T) {
	for _, mode := range []AfterDeadLetter{KeyContinues, KeyHolds, KeyFollows} {
		t.Run(string(mode), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				var log callLog
				c := w.config(func(_ context.Context, r *Record) error {
					log.add(r)
					if string(r.Value) == "a=bad" {
						return Permanent(errBoom)
					}
					return nil
				})
				c.DeadLetter.AfterKey = mode
				c.DeadLetter.BreakerRatio = 1
				w.produce(0, "a=bad", "a=2", "b=1", "a=3")
				m := w.start(c)
				switch mode {
				case KeyContinues:
					w.eventually("committed", func() bool { return w.committed("t", 0) == 4 })
					w.dead("t.dlq", 1)
				case KeyHolds:
					w.eventually("held behind the dead letter", func() bool { return w.committed("t", 0) == 1 && m.count(EventKeyHeld) == 1 })
					if got := log.all(); slices.Contains(got, "a=2") || !slices.Contains(got, "b=1") {
						t.Errorf("handled %v", got)
					}
					if !m.e.ReleaseKey("t", 0, []byte("a")) {
						t.Error("the key is not remembered")
					}
					w.eventually("committed", func() bool { return w.committed("t", 0) == 4 })
				case KeyFollows:
					w.eventually("committed", func() bool { return w.committed("t", 0) == 4 })
					if n := log.len(); n != 2 {
						t.Errorf("handled %v", log.all())
					}
					w.dead("t.dlq", 3)
				}
				m.stop()
			})
		})
	}
}
