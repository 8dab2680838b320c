package engine

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"
)

// database is what handlers call: with room for so many at once, each of which takes a while. What is too much waits, and holds up what
// is there.
type database struct {
	mu      sync.Mutex
	took    time.Duration
	room    int
	running int
	most    int // since the last look
	done    int
}

func (d *database) call(ctx context.Context) error {
	d.mu.Lock()
	took := d.took
	d.running++
	d.most = max(d.most, d.running)
	if over := d.running - d.room; d.room > 0 && over > 0 {
		took += took * time.Duration(over) / time.Duration(d.room) * 3 / 2
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.running--
		d.done++
		d.mu.Unlock()
	}()
	select {
	case <-time.After(took):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// look returns how many calls there are, the most there were since the last look, and how many are done.
func (d *database) look() (running, most, done int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	most, d.most = d.most, d.running
	return d.running, most, d.done
}

func (m *member) workers() WorkersStatus { return m.e.Status().Workers }

// autoWorld is a scenario with Auto and a backlog of n records.
func autoWorld(t *testing.T, n int, body func(w *world, c Config, d *database)) {
	inWorld(t, 2, func(w *world) {
		d := &database{took: 20 * time.Millisecond}
		c := w.config(func(ctx context.Context, _ *Record) error { return d.call(ctx) })
		c.Workers, c.MaxWorkers, c.Order = Auto, 64, OrderUnordered
		w.produce(0, numbered("a", n/2)...)
		w.produce(1, numbered("b", n-n/2)...)
		body(w, c, d)
	})
}

// The limit is the tuner's, and as many handlers run: where handlers only wait, as many as may. Each change is an event that says
// why (C9), and every record is handled and committed as ever (C1).
func TestAutoFindsTheLimit(t *testing.T) {
	autoWorld(t, 60_000, func(w *world, c Config, d *database) {
		m := w.start(c)
		if s := m.workers(); s.Limit != firstWorkers || s.Reason != sizeAuto || s.Auto == nil || s.Auto.Max != 64 || s.Auto.Min != 1 {
			t.Errorf("at the start: %+v", s)
		}
		time.Sleep(10 * time.Second)
		s := m.workers()
		if s.Auto.Settled != 64 || s.Reason != "more" || !strings.Contains(s.Why, "to 64 workers: throughput went from ") {
			t.Errorf("after 10 s: %+v %+v", s, s.Auto)
		}
		if _, most, _ := d.look(); most != 64 {
			t.Errorf("%d handlers at once", most)
		}
		evs := m.all(EventWorkers)
		if len(evs) != 3 || evs[0].Count != 16 || evs[1].Count != 32 || evs[2].Count != 64 || evs[2].Reason != "more" || evs[2].Hint != s.Why {
			t.Errorf("events: %+v", evs)
		}
		w.eventually("all is committed", func() bool { return w.committed("t", 0) == 30_000 && w.committed("t", 1) == 30_000 })
		w.settled(m)
		m.stop()
	})
}

// What handlers call has room for 24: the limit ends near that, and most of the time no more than that run.
func TestAutoDoesNotOverdrive(t *testing.T) {
	autoWorld(t, 60_000, func(w *world, c Config, d *database) {
		d.room = 24
		c.MaxWorkers = 200
		m := w.start(c)
		time.Sleep(20 * time.Second)
		s := m.workers()
		if s.Auto.Settled < 20 || s.Auto.Settled > 31 {
			t.Errorf("settled on %d: %s", s.Auto.Settled, s.Auto.State)
		}
		d.look()
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			if _, most, _ := d.look(); most > 40 {
				t.Fatalf("%d calls where there is room for 24: %+v", most, m.workers().Auto)
			}
		}
		m.stop()
	})
}

// Idle times, and work that comes by ones, change nothing, whatever the limit is.
func TestAutoLearnsNothingFromIdleTimes(t *testing.T) {
	autoWorld(t, 30_000, func(w *world, c Config, d *database) {
		d.room = 24
		m := w.start(c)
		w.eventually("the backlog is through", func() bool { _, _, done := d.look(); return done == 30_000 })
		time.Sleep(5 * time.Second) // what is being tried ends
		was := m.workers()
		changes := m.count(EventWorkers)
		if was.Limit != was.Auto.Settled || was.Auto.Settled < 20 {
			t.Fatalf("%+v %+v", was, was.Auto)
		}
		for range 30 { // a few records a second, then none for a while
			w.produce(0, numbered("c", 5)...)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		if now := m.workers(); now.Limit != was.Limit || now.Auto.Settled != was.Auto.Settled || m.count(EventWorkers) != changes {
			t.Errorf("%+v %+v, and it was %+v", now, now.Auto, was)
		}
		if state := m.workers().Auto.State; !strings.HasPrefix(state, "idle") {
			t.Errorf("state: %q", state)
		}
		m.stop()
	})
}

// A number ends Auto, Auto takes it up from there, and its bounds can be changed, all while it runs.
func TestAutoLiveChanges(t *testing.T) {
	autoWorld(t, 40_000, func(w *world, c Config, d *database) {
		d.took = 100 * time.Millisecond
		m := w.start(c)
		time.Sleep(10 * time.Second)
		if err := m.e.SetWorkers(10, 4); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		d.look()
		time.Sleep(20 * time.Second)
		if _, most, _ := d.look(); most != 8 { // four of each partition
			t.Errorf("%d handlers under a fixed limit of 4 a partition", most)
		}
		if s := m.workers(); s.Limit != 10 || s.LimitPerPartition != 4 || s.Auto != nil || s.Reason != sizeSet {
			t.Errorf("fixed: %+v", s)
		}
		if err := m.e.SetWorkers(Auto, 0); err != nil {
			t.Fatal(err)
		}
		if s := m.workers(); s.Limit != 10 || s.LimitPerPartition != 10 || s.Auto == nil || s.Reason != sizeAuto {
			t.Errorf("Auto begins elsewhere: %+v", s)
		}
		time.Sleep(10 * time.Second)
		if s := m.workers(); s.Auto.Settled != 64 {
			t.Errorf("Auto again: %+v %+v", s, s.Auto)
		}
		if err := m.e.SetWorkerBounds(0, 12); err != nil {
			t.Fatal(err)
		}
		if s := m.workers(); s.Limit != 12 || s.Reason != "bounds" || s.Auto.Max != 12 || s.Auto.Min != 1 {
			t.Errorf("bounds: %+v %+v", s, s.Auto)
		}
		time.Sleep(time.Second)
		d.look()
		time.Sleep(20 * time.Second)
		if _, most, _ := d.look(); most != 12 {
			t.Errorf("%d handlers, and 12 are allowed", most)
		}
		if err := m.e.SetWorkers(Auto, 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, most, _ := d.look(); most > 12 {
			t.Errorf("%d handlers", most)
		}
		time.Sleep(time.Second)
		if running, most, _ := d.look(); most != 6 {
			t.Errorf("%d handlers, now %d, with 3 a partition", most, running)
		}
		for _, bad := range []error{m.e.SetWorkers(Auto, -1), m.e.SetWorkers(-2, 0), m.e.SetWorkerBounds(5, 4), m.e.SetWorkerBounds(-1, 4)} {
			if bad == nil {
				t.Error("nonsense was taken")
			}
		}
		m.stop()
	})
}

// A rebalance and a stop in the middle of a trial are what they always are: handed over in time (C8), committed (C1), nothing left behind.
func TestAutoRebalanceAndStop(t *testing.T) {
	autoWorld(t, 40_000, func(w *world, c Config, d *database) {
		a := w.start(brisk(c))
		time.Sleep(2 * time.Second) // it is on its way up
		b := w.start(brisk(c))
		w.eventually("shared", func() bool { return len(a.owns()) == 1 && len(b.owns()) == 1 })
		time.Sleep(3 * time.Second)
		took, err := b.stopWithin(10 * time.Second)
		if err != nil || took > 2*time.Second {
			t.Errorf("the stop took %v: %v", took, err)
		}
		w.eventually("all is committed", func() bool { return w.committed("t", 0) == 20_000 && w.committed("t", 1) == 20_000 })
		if _, _, done := d.look(); done != 40_000 {
			t.Errorf("%d records were handled", done)
		}
		w.settled(a)
		a.stop()
	})
}
