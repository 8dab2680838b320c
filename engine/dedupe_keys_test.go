package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kgo"
)

// byValue is a Dedupe.Key: what is the same is a duplicate.
func byValue(dst []byte, r *kgo.Record) []byte { return append(dst, r.Value...) }

// beforeColon is a Dedupe.Key: what comes before a colon.
func beforeColon(dst []byte, r *kgo.Record) []byte {
	name, _, _ := strings.Cut(string(r.Value), ":")
	return append(dst, name...)
}

// once is a configuration of a member whose handler is called at most once a business key.
func (m *machine) once(key func([]byte, *kgo.Record) []byte, h HandlerFunc) Config {
	c := m.config(h)
	c.Dedupe.Key, c.Order, c.DeadLetter.BreakerRatio = key, OrderUnordered, 1
	c.Retry = Retry{Attempts: 3, Base: 20 * time.Millisecond, Jitter: -1}
	return c
}

func (m *machine) effect(_ context.Context, r *Record) error { return m.did(string(r.Value)) }

// batched makes a batch handler of the handler.
func batched(c Config, size int) Config {
	h := c.Handler
	c.Handler, c.BatchSize, c.BatchLinger = nil, size, 20*time.Millisecond
	c.BatchHandler = BatchHandlerFunc(func(ctx context.Context, b *Batch) error {
		for i, r := range b.Records {
			if err := h.Handle(ctx, r); err != nil {
				b.Fail(i, err)
				if c.Order == OrderPartition {
					break
				}
			}
		}
		return nil
	})
	return c
}

// C5, C1: with handlers that fail now and then, in every order, one record or many at a time, each business key is handled once,
// its copies in the same batch, in the same partition and in others notwithstanding, and all of them are committed.
func TestCopiesAreHandledOnce(t *testing.T) {
	for _, order := range []Order{OrderUnordered, OrderKey, OrderPartition} {
		for _, size := range []int{1, 7} {
			t.Run(fmt.Sprintf("%s, batches of %d", order, size), func(t *testing.T) {
				rnd := seeded(t)
				inWorld(t, 3, func(w *world) {
					m := w.machine(nil)
					var calls atomic.Int64
					c := m.once(byValue, func(ctx context.Context, r *Record) error {
						if calls.Add(1)%5 == 0 {
							return errBoom
						}
						return m.effect(ctx, r)
					})
					c.Order, c.Dedupe.Scope, c.Retry.Attempts = order, "all", 100
					if size > 1 {
						c = batched(c, size)
					}
					mb := m.start(c)
					produced := [3]int64{}
					for range 20 {
						p := int32(rnd.IntN(3))
						for range 1 + rnd.IntN(20) {
							k := rnd.IntN(60)
							w.produce(p, fmt.Sprintf("%d=%d", k%9, k))
							produced[p]++
						}
						time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
					}
					for p, n := range produced {
						w.eventually("committed", func() bool { return n == 0 || w.committed("t", int32(p)) == n })
					}
					if more := m.effects.more(); len(more) > 0 {
						t.Errorf("handled more than once: %v", more)
					}
					s := mb.e.Status()
					if d := s.Dedupe; int(s.Counts.Handled) != len(m.effects.all()) || d.Hits+s.Counts.Handled != produced[0]+produced[1]+produced[2] || d.WriteError != "" {
						t.Errorf("%d handled, %d hits of %v; %d effects", s.Counts.Handled, d.Hits, produced, len(m.effects.all()))
					}
					w.settled(mb)
					if n := len(mb.e.marks.waiting); n > 0 {
						t.Errorf("%d still wait", n)
					}
					mb.stop()
				})
			})
		}
	}
}

// C5: what was not handled leaves no mark: a dead letter that is sent again runs, and so does what was skipped.
// Seen at ThreeDotsLabs/watermill (deduplicator).
func TestNoMarkWithoutSuccess(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		var good atomic.Bool
		c := m.once(byValue, func(ctx context.Context, r *Record) error {
			switch {
			case good.Load():
				return m.effect(ctx, r)
			case string(r.Value) == "skipped":
				return Skip("for now")
			case string(r.Value) == "panics":
				panic("boom")
			}
			return errBoom
		})
		mb := m.start(c)
		values := []string{"dead", "skipped", "panics"}
		w.produce(0, values...)
		w.eventually("given up", func() bool { return w.committed("t", 0) == 3 })
		w.dead("t.dlq", 2)
		if n := mb.e.Status().Dedupe.Marks; n != 0 {
			t.Errorf("%d marks", n)
		}
		good.Store(true)
		w.produce(0, append(values, values...)...)
		w.eventually("sent again", func() bool { return w.committed("t", 0) == 9 })
		if once := m.effects.times(1); len(once) != 3 {
			t.Errorf("handled once: %v of %v", once, m.effects.all())
		}
		mb.stop()
	})
}

// C5: the copy of a record that fails runs while that waits for its retry, and the retry finds that it has been done.
// Seen at ThreeDotsLabs/watermill (deduplicator).
func TestRetryFindsItDone(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		var calls atomic.Int64
		c := m.once(byValue, func(ctx context.Context, r *Record) error {
			if calls.Add(1) == 1 {
				return errBoom
			}
			return m.effect(ctx, r)
		})
		c.Retry.Base, c.Retry.Max = time.Minute, time.Minute
		mb := m.start(c)
		w.produce(0, "x", "x")
		w.eventually("the copy has done it", func() bool { return m.effects.of("x") == 1 })
		time.Sleep(2 * time.Minute)
		w.eventually("both", func() bool { return w.committed("t", 0) == 2 })
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls", n)
		}
		mb.stop()
	})
}

// C5: a record whose key was handled with another payload is never passed over silently.
func TestPayloadDiffers(t *testing.T) {
	for _, differ := range []Differ{DifferRun, DifferDeadLetter, DifferHold} {
		t.Run(string(differ), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				m := w.machine(nil)
				c := m.once(beforeColon, m.effect)
				c.Order, c.Dedupe.OnDiffer = OrderPartition, differ
				mb := m.start(c)
				w.produce(0, "x:1", "x:1", "x:2", "y:1")
				effects := func() string { return fmt.Sprint(m.effects.times(1)) }
				switch differ {
				case DifferRun:
					w.eventually("all", func() bool { return w.committed("t", 0) == 4 })
					if got := effects(); got != "[x:1 x:2 y:1]" {
						t.Error(got)
					}
				case DifferDeadLetter:
					w.eventually("all", func() bool { return w.committed("t", 0) == 4 })
					if got := effects(); got != "[x:1 y:1]" {
						t.Error(got)
					}
					if r := w.dead("t.dlq", 1)[0]; string(r.Value) != "x:2" || !strings.Contains(header(r, HeaderErrorType), "PayloadError") {
						t.Errorf("%s: %v", r.Value, r.Headers)
					}
				case DifferHold:
					ev := mb.awaitName(EventHeld)
					var p *PayloadError
					if ev.Offset != 2 || !errors.As(ev.Err, &p) || string(p.Key) != "x" {
						t.Errorf("%+v", ev)
					}
					w.eventually("committed up to it", func() bool { return w.committed("t", 0) == 2 })
					if ok, _ := mb.e.Healthy(); ok || effects() != "[x:1]" {
						t.Errorf("healthy %v, effects %s", ok, effects())
					}
				}
				if n := mb.e.Status().Dedupe.Differing; n != 1 {
					t.Errorf("%d differ", n)
				}
				mb.stop()
			})
		})
	}
}

// C5: a key function that panics is a failure of the record, and the keys nil and empty are none: each such record runs.
func TestKeysThatAreNone(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		c := m.once(func(dst []byte, r *kgo.Record) []byte {
			switch string(r.Value) {
			case "nil":
				return nil
			case "empty":
				return []byte{}
			case "appended": // to what the last record has left
				return dst
			case "panics":
				panic("no key for you")
			}
			return append(dst, r.Value...)
		}, m.effect)
		c.Workers = 1
		mb := m.start(c)
		w.produce(0, "a", "nil", "nil", "empty", "empty", "appended", "appended", "panics", "a")
		w.eventually("all", func() bool { return w.committed("t", 0) == 9 })
		if got := fmt.Sprint(m.effects.all()); got != "map[a:1 appended:2 empty:2 nil:2]" {
			t.Error(got)
		}
		if r := w.dead("t.dlq", 1)[0]; string(r.Value) != "panics" || header(r, HeaderAttempts) != "3" {
			t.Errorf("%s %v", r.Value, r.Headers)
		}
		mb.stop()
	})
	var buf []byte
	if k := RecordKey(buf, &kgo.Record{Key: []byte{}}); len(k) != 0 {
		t.Errorf("%q", k)
	}
}

// C5: below the offset that an operator's rewind names, business marks do not count, on any host; above it they do. What was handled
// since the rewind is not handled again.
func TestBypassedMarks(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		a := w.machine(nil)
		c := a.once(byValue, a.effect)
		mb := a.start(c)
		w.produce(0, numbered("v", 10)...)
		w.eventually("done", func() bool { return w.committed("t", 0) == 10 })
		mb.stop()
		_, _, win := w.saved()
		rewound := window.Window{TopicID: win.TopicID, Partitions: win.Partitions, Frontier: 0, Highest: -1, Trying: -1, BypassBelow: 6}
		w.save(0, string(rewound.Append(nil, 0)))
		g := w.shut("v3")
		c = a.once(byValue, func(ctx context.Context, r *Record) error {
			if err := g.pass(ctx, r); err != nil {
				return err
			}
			return a.effect(ctx, r)
		})
		c.DeadLetter.GiveUp = GiveUpHold
		a.start(c)
		w.eventually("again", func() bool { return len(a.effects.times(2)) == 5 })
		time.Sleep(time.Second)
		b := a.dies() // with one of those below the offset unfinished
		c = b.once(byValue, b.effect)
		mb = b.start(c)
		w.eventually("done again", func() bool { return w.committed("t", 0) == 10 })
		if twice := b.effects.times(2); !slices.Equal(twice, numbered("v", 6)) {
			t.Errorf("again: %v", twice)
		}
		w.eventually("the order to bypass is over", func() bool { _, _, win := w.saved(); return win.BypassBelow == 0 })
		w.produce(0, "v0", "v9")
		w.eventually("marks count", func() bool { return w.committed("t", 0) == 12 })
		if twice := b.effects.times(2); len(twice) != 6 || len(b.effects.times(3)) > 0 {
			t.Errorf("%v", b.effects.all())
		}
		mb.stop()
	})
}

// C5: a mark counts for as long as it is retained, from when it was made: a duplicate does not extend it.
func TestMarksExpire(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		c := m.once(byValue, m.effect)
		c.Dedupe.Retention = time.Minute
		mb := m.start(c)
		n := int64(0)
		again := func(wait time.Duration, want int) {
			t.Helper()
			time.Sleep(wait)
			w.produce(0, "x")
			n++
			w.eventually("settled", func() bool { return w.committed("t", 0) == n })
			if got := m.effects.of("x"); got != want {
				t.Errorf("handled %d times, want %d", got, want)
			}
		}
		again(0, 1)
		again(30*time.Second, 1)
		again(25*time.Second, 1)
		again(10*time.Second, 2)
		mb.stop()
		mb = m.start(c)
		again(30*time.Second, 2)
		again(35*time.Second, 3)
		mb.stop()
	})
}
