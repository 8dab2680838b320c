package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// crashPoint is a place between two steps of the life of a record at which its machine dies, and what is promised of it then. The record is
// "x"; the ones before it are settled and committed, and a copy of it comes after the crash.
type crashPoint struct {
	name string
	// arm makes the machine die there; die may be called anywhere, and where it returns false the machine was dead before.
	arm func(w *world, m *machine, c *Config, die func(percent int) bool)
	// times is how often "x" is handled in all, effects only: with a key, and with the row of the store alone.
	keyed, row int
}

var crashPoints = []crashPoint{
	{"fetched, not claimed", func(_ *world, _ *machine, c *Config, die func(int) bool) {
		c.Dedupe.Key = func(dst []byte, r *kgo.Record) []byte {
			if string(r.Value) == "x" {
				die(0)
			}
			return byValue(dst, r)
		}
	}, 1, -1},
	{"claimed, handler not begun", func(_ *world, _ *machine, c *Config, die func(int) bool) {
		c.Handler = before(c.Handler, func(r *Record) { die(0) })
	}, 1, 1},
	{"handler begun, no effect", func(_ *world, _ *machine, c *Config, die func(int) bool) {
		c.Handler = before(c.Handler, func(r *Record) { time.Sleep(time.Second); die(100) })
	}, 1, 1},
	{"handler done, mark not queued", func(_ *world, _ *machine, c *Config, die func(int) bool) {
		c.Handler = afterwards(c.Handler, func(r *Record) { die(100) })
	}, 2, 2},
	{"mark queued, not written", func(_ *world, _ *machine, c *Config, die func(int) bool) {
		c.Dedupe.MaxDelay = time.Second
		c.Handler = afterwards(c.Handler, func(*Record) { time.AfterFunc(time.Second/2, func() { die(0) }) })
	}, 2, 2},
	{"mark written, not synced, and gone", func(_ *world, m *machine, c *Config, die func(int) bool) {
		c.Handler = afterwards(c.Handler, func(*Record) { m.atSync(func() { die(0) }) })
	}, 2, 2},
	{"mark durable, not known to be", func(_ *world, m *machine, c *Config, die func(int) bool) {
		c.Handler = afterwards(c.Handler, func(*Record) { m.atSync(func() { die(100) }) })
	}, 1, 1},
	{"settled, not committed", func(_ *world, _ *machine, c *Config, die func(int) bool) {
		c.Handler = afterwards(c.Handler, func(*Record) { time.AfterFunc(time.Second, func() { die(0) }) })
	}, 1, 1},
	{"commit sent, not arrived", func(w *world, _ *machine, c *Config, die func(int) bool) {
		c.Handler = afterwards(c.Handler, func(*Record) { w.atCommit(false, func() { die(0) }) })
		c.Commit.Interval = 100 * time.Millisecond
	}, 1, 1},
	{"commit arrived, not acknowledged", func(w *world, _ *machine, c *Config, die func(int) bool) {
		c.Handler = afterwards(c.Handler, func(*Record) { w.atCommit(true, func() { die(0) }) })
		c.Commit.Interval = 100 * time.Millisecond
	}, 1, 1},
	{"commit acknowledged", func(_ *world, _ *machine, c *Config, die func(int) bool) {
		c.Handler = afterwards(c.Handler, func(*Record) { time.AfterFunc(time.Second, func() { die(0) }) })
		c.Commit.Interval = 100 * time.Millisecond
	}, 1, 1},
}

// before and afterwards do something at the record "x", before and after its handler.
func before(h Handler, do func(r *Record)) Handler {
	return HandlerFunc(func(ctx context.Context, r *Record) error {
		if string(r.Value) == "x" {
			do(r)
		}
		return h.Handle(ctx, r)
	})
}

func afterwards(h Handler, do func(r *Record)) Handler {
	return HandlerFunc(func(ctx context.Context, r *Record) error {
		x := string(r.Value) == "x"
		err := h.Handle(ctx, r)
		if x && err == nil {
			do(r)
		}
		return err
	})
}

// atSync does something when the log is synced next.
func (m *machine) atSync(do func()) {
	var once sync.Once
	m.breaks(func(op errorfs.Op) error {
		if isLogSync(op) {
			once.Do(do)
		}
		return nil
	})
}

// atCommit does something when the first commit of more than ten records comes in, which arrives or does not.
func (w *world) atCommit(arrives bool, do func()) {
	w.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if req.(*kmsg.OffsetCommitRequest).Topics[0].Partitions[0].Offset <= 10 {
			w.cluster.KeepControl()
			return nil, nil, false
		}
		do()
		if arrives {
			return nil, nil, false
		}
		return nil, errDead, true
	})
}

// C1, C5: at whatever step the machine dies, a record is handled again or not exactly as promised for that step, and it is never lost. A
// copy of it, sent afterwards, is handled only where keys are not looked at.
// Seen at ThreeDotsLabs/watermill (deduplicator).
func TestCrashPoints(t *testing.T) {
	for _, x := range crashPoints {
		for _, keyed := range []bool{true, false} {
			want := x.keyed
			if !keyed {
				want = x.row
			}
			if want < 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s, keyed %v", x.name, keyed), func(t *testing.T) {
				inWorld(t, 1, func(w *world) {
					m := w.machine(nil)
					w.produce(0, numbered("v", 10)...)
					c := m.once(byValue, m.effect)
					c.Commit.Interval = time.Hour
					var next *machine
					died := make(chan struct{})
					var once sync.Once
					die := func(percent int) bool {
						once.Do(func() {
							next = m.crash(percent)
							close(died)
						})
						return true
					}
					x.arm(w, m, &c, die)
					if !keyed {
						c.Dedupe.Key = nil
					}
					mb := m.start(c)
					w.eventually("the first ones are durable", func() bool { return len(m.effects.all()) == 10 })
					time.Sleep(2500 * time.Millisecond) // nothing is due at the instant at which "x" comes: marks after a MaxDelay, their row after another
					if err := mb.e.Commit(context.Background()); err != nil {
						t.Fatal(err)
					}
					w.produce(0, "x")
					select {
					case <-died:
					case <-time.After(time.Minute):
						t.Fatal("it did not come to that point")
					}
					m.breaks(nil)
					m.bury()
					c = next.once(byValue, next.effect)
					if !keyed {
						c.Dedupe.Key = nil
					}
					mb = next.start(c)
					w.produce(0, "after")
					w.eventually("to the end", func() bool { return w.committed("t", 0) == 12 })
					if n := next.effects.of("x"); n != want {
						t.Errorf("handled %d times, want %d", n, want)
					}
					if again := next.effects.more(); len(again) > 0 && again[0] != "x" || len(next.effects.all()) != 12 {
						t.Errorf("%v", next.effects.all())
					}
					w.produce(0, "x")
					w.eventually("the copy", func() bool { return w.committed("t", 0) == 13 })
					if n := next.effects.of("x"); keyed && n != want || !keyed && n != want+1 {
						t.Errorf("with the copy handled %d times, want %d", n, want)
					}
					mb.stop()
				})
			})
		}
	}
}

// A record that ends its process at once is given up as soon with a store as without one: what ended right before it is made durable
// before it is announced, or each process would handle that again, and count the record that ends it as new. C8; found by a torture seed.
func TestCrashLoopWithAStore(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.produce(0, "a", "x", "b")
		m := w.machine(nil)
		lives := 0
		for ; w.committed("t", 0) < 3; lives++ {
			if lives == 2*uncleanLimit+6 {
				w.Fatalf("%d processes have ended, and %d are committed", lives, w.committed("t", 0))
			}
			died := make(chan *machine, 1)
			c := m.once(byValue, func(_ context.Context, r *Record) error {
				if string(r.Value) == "x" {
					died <- m.crash(0)
					return errDead
				}
				return m.did(string(r.Value))
			})
			c.Order, c.Dedupe.MaxDelay = OrderPartition, 50*time.Millisecond
			m.start(c)
			select {
			case next := <-died:
				m.bury()
				m = next
			case <-time.After(20 * time.Second): // nothing has ended it
			}
		}
		if n := len(m.member.all(EventDeadLettered)); n != 1 {
			w.Errorf("%d dead letters after %d processes", n, lives)
		}
		m.member.stop()
	})
}
