package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// hung are the ways in which a store does not write and returns no error either, until it is released.
var hung = []struct {
	name string
	hang func(m *machine) (release func())
}{
	{"syncs hang", (*machine).stuckSyncs},
	{"the disk is full", (*machine).full},
}

// stuck starts a member with the store hanging: of 40 records in two partitions, half is done and durable, a quarter is done and not
// durable, and the rest waits.
func (m *machine) stuck(hang func(m *machine) func()) (mb *member, release func()) {
	m.w.Helper()
	w := m.w
	c := m.once(byValue, m.effect)
	c.Dedupe.MaxPending, c.Dedupe.Scope = 10, "all"
	mb = m.start(c)
	for p := range int32(2) {
		w.produce(p, numbered(fmt.Sprint("first", p, "-"), 10)...)
	}
	w.eventually("durable and committed", func() bool { return w.committed("t", 0) == 10 && w.committed("t", 1) == 10 })
	release = hang(m)
	for p := range int32(2) {
		w.produce(p, numbered(fmt.Sprint("then", p, "-"), 10)...)
	}
	time.Sleep(3 * time.Second)
	if n := len(m.effects.all()); n < 21 {
		w.Errorf("%d done: none since the store hangs", n)
	}
	return mb, release
}

// C8: however the store hangs, Stop returns in time, a drain is bounded, and Run says that there are records whose handlers are done but
// that will be handled again. What was not durable was not committed.
func TestStopWhileTheStoreHangs(t *testing.T) {
	for _, x := range hung {
		t.Run(x.name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				m := w.machine(nil)
				mb, release := m.stuck(x.hang)
				begun := time.Now()
				time.AfterFunc(8*time.Second, release) // within the time that closing the store may take
				mb.cancel()
				if mb.awaitName(EventStopped); time.Since(begun) > 4*time.Second { // what the last commit may take, and the rest
					t.Errorf("drained and left after %v", time.Since(begun))
				}
				err := <-mb.done
				if took := time.Since(begun); took > 15*time.Second {
					t.Errorf("Run returned after %v", took)
				}
				if !errors.Is(err, ErrLastCommit) || !strings.Contains(err.Error(), "records") {
					t.Errorf("Run: %v", err)
				}
				for p := range int32(2) {
					if at := w.committed("t", p); at != 10 {
						t.Errorf("committed %d", at)
					}
				}
				next := m.crash(0)
				mb = next.start(next.once(byValue, next.effect))
				w.eventually("all", func() bool { return w.committed("t", 0) == 20 && w.committed("t", 1) == 20 })
				if n := len(next.effects.all()); n != 40 {
					t.Errorf("%d of 40 were handled", n)
				}
				mb.stop()
			})
		})
	}
}

// C8: Stop with a deadline returns by it.
func TestStopInTimeWhileTheStoreHangs(t *testing.T) {
	for _, x := range hung {
		t.Run(x.name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				m := w.machine(nil)
				mb, release := m.stuck(x.hang)
				time.AfterFunc(8*time.Second, release)
				took, err := mb.stopWithin(2 * time.Second)
				if took > 2*time.Second || err == nil {
					t.Errorf("Stop took %v: %v", took, err)
				}
				select {
				case <-mb.e.Done():
				case <-time.After(15 * time.Second):
					t.Error("Run goes on")
				}
			})
		})
	}
}

// C8, C3: a revoke while the store hangs ends within the time that the group gives, and the next owner does what was not durable
// again. What becomes durable afterwards changes nothing but a counter.
func TestRevokeWhileTheStoreHangs(t *testing.T) {
	for _, x := range hung {
		t.Run(x.name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				m := w.machine(nil)
				mb, release := m.stuck(x.hang)
				other := w.machine(m)
				begun := time.Now()
				next := other.start(other.once(byValue, other.effect))
				w.eventually("handed over", func() bool { return len(next.owns()) == 1 })
				if took, most := time.Since(begun), 8*time.Second; took > most { // no handler runs: but for the last commit, there is nothing to wait for
					t.Errorf("handed over after %v", took)
				}
				ev := mb.awaitName(EventRevoked)
				if ev.Took > 3*time.Second {
					t.Errorf("the revoke took %v", ev.Took)
				}
				p := next.owns()[0]
				w.eventually("done by the next owner", func() bool { return w.committed("t", p) == 20 })
				release()
				w.eventually("and the rest", func() bool { return w.committed("t", 1-p) == 20 })
				if n := len(m.effects.all()); n != 40 {
					t.Errorf("%d of 40 were handled", n)
				}
				for _, v := range m.effects.times(2) {
					if !strings.HasPrefix(v, fmt.Sprint("then", p, "-")) {
						t.Errorf("%s again", v)
					}
				}
				mb.stop()
				next.stop()
			})
		})
	}
}

// C8: a record that waits for room is given up at once by a revoke or a stop, and does not start when its partition was held meanwhile.
func TestNothingStartsAfterWaitingForRoom(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		c := m.once(byValue, m.effect)
		c.Dedupe.MaxPending, c.Workers, c.Order = 1, 1, OrderPartition
		mb := m.start(c)
		w.produce(0, "a")
		w.eventually("durable", func() bool { return w.committed("t", 0) == 1 })
		release := m.stuckSyncs()
		w.produce(0, "b", "c", "d")
		w.eventually("waits for room", func() bool { return m.effects.of("b") == 1 && mb.part(0).InFlight == 1 })
		mb.e.stop(mb.e.lookup("t", 0), stopHold, errBoom)
		release()
		time.Sleep(time.Second)
		if n := m.effects.of("c"); n != 0 {
			t.Error("it started although the partition holds")
		}
		mb.e.resume(mb.e.lookup("t", 0), stopHold)
		w.eventually("all", func() bool { return w.committed("t", 0) == 4 })
		mb.stop()
	})
}

// C5: what is asked for before the store is open is answered, and what is asked after it is closed as well.
func TestStatusAtAnyTime(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		m.breaks(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpMkdirAll {
				time.Sleep(time.Second)
			}
			return nil
		})
		mb := w.launch(m.once(byValue, m.effect))
		ctx, cancel := context.WithCancel(context.Background())
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			for ctx.Err() == nil {
				_ = mb.e.Status()
				_ = mb.e.Store()
				time.Sleep(time.Millisecond)
			}
		}()
		w.produce(0, "a")
		<-mb.e.Ready()
		w.eventually("done", func() bool { return m.effects.of("a") == 1 })
		mb.stop()
		time.Sleep(time.Second)
		cancel()
		<-asked
		if s := mb.e.Status(); s.Dedupe == nil || s.Dedupe.Marks != 1 {
			t.Errorf("%+v", s.Dedupe)
		}
	})
}
