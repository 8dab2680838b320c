package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gaplesshq/gapless/dedupe"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C5: in the middle of full speed at most what was in flight and what was not durable yet is done again, however old the last commit
// is; also on a disk whose syncs take their time, where commits go out while rows are being written.
func TestRowsAtFullSpeed(t *testing.T) {
	for _, sync := range []time.Duration{0, 20 * time.Millisecond} {
		for _, interval := range []time.Duration{time.Hour, 210 * time.Millisecond} {
			t.Run(fmt.Sprintf("sync %v, commit %v", sync, interval), func(t *testing.T) {
				rnd := seeded(t)
				after := 300*time.Millisecond + time.Duration(rnd.IntN(500_000))*time.Microsecond
				inWorld(t, 1, func(w *world) { atFullSpeed(w, sync, interval, after) })
			})
		}
	}
}

func atFullSpeed(w *world, slow, interval, after time.Duration) {
	const n = 2000
	a := w.machine(nil)
	var mu sync.Mutex
	ended := map[string]time.Time{}
	handler := func(m *machine) HandlerFunc {
		return func(_ context.Context, r *Record) error {
			time.Sleep(time.Duration(1+r.Offset%17) * time.Millisecond)
			if err := m.did(string(r.Value)); err != nil {
				return err
			}
			mu.Lock()
			ended[string(r.Value)] = time.Now()
			mu.Unlock()
			return nil
		}
	}
	if slow > 0 {
		a.breaks(func(op errorfs.Op) error {
			if isLogSync(op) {
				time.Sleep(slow)
			}
			return nil
		})
	}
	w.produce(0, numbered("", n)...)
	c := a.config(handler(a))
	c.Order, c.Commit.Interval = OrderUnordered, interval
	a.start(c)
	time.Sleep(after)
	b := a.crash(0)
	at := time.Now()
	done := len(a.effects.all())
	a.bury()
	if done == 0 || done == n {
		w.Fatalf("not in the middle: %d done", done)
	}
	c = b.config(handler(b))
	mu.Lock()
	recent := map[string]bool{} // what may not have been durable: it waits for company, and for two syncs at most
	for v, t := range ended {
		recent[v] = at.Sub(t) <= 2*slow+5*time.Millisecond
	}
	mu.Unlock()
	m := b.start(c)
	w.eventually("to the end", func() bool { return w.committed("t", 0) == n })
	m.stop()
	if all := b.effects.all(); len(all) != n {
		w.Errorf("%d of %d were handled", len(all), n)
	}
	for _, v := range b.effects.more() {
		if !recent[v] {
			w.Errorf("%s was durable when the machine died, and was handled again", v)
		}
	}
}

// behind starts a member whose first record hangs and whose other n-1 get done, and waits until all that is known is quiet.
func (m *machine) behind(n int, set func(*Config)) *member {
	m.w.Helper()
	w := m.w
	c := m.config(m.hangs("0"))
	if set != nil {
		set(&c)
	}
	mb := m.start(c)
	w.eventually("done behind the stuck one", func() bool { return len(m.effects.all()) >= n-1 })
	time.Sleep(time.Second) // a quiet commit interval
	return mb
}

// hangs is a handler that does everything but one value.
func (m *machine) hangs(value string) HandlerFunc {
	g := m.w.shut(value)
	return func(ctx context.Context, r *Record) error {
		if err := g.pass(ctx, r); err != nil {
			return err
		}
		return m.did(string(r.Value))
	}
}

// C5: after a quiet moment nothing is done again but the one that was in flight, be the last commit as old as the assignment.
func TestRowsWhenQuiet(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		const n = 300
		a := w.machine(nil)
		w.produce(0, numbered("", n)...)
		a.behind(n, func(c *Config) { c.Commit.Interval = time.Hour })
		_, _, win := w.saved()
		if settled, _ := win.Counts(); settled != 0 {
			t.Errorf("the commit says that %d are settled: it is to be older than the row", settled)
		}
		b := a.dies()
		m := b.start(b.config(b.hangs("none")))
		if ev := m.assigned(); ev.Count != n-1 {
			t.Errorf("assigned with %d settled", ev.Count)
		}
		w.eventually("to the end", func() bool { return w.committed("t", 0) == n })
		if more := b.effects.more(); len(more) > 0 || len(b.effects.all()) != n {
			t.Errorf("again: %v; %d in all", more, len(b.effects.all()))
		}
	})
}

// C5: the row counts only where the group's commit names this store. Whatever else was committed since is believed.
func TestRowsAreIgnoredWhere(t *testing.T) {
	const n = 100
	cases := map[string]struct {
		commit func(w *world)
		again  int // how many are done again
	}{
		"another store": {func(w *world) {
			at, _, win := w.saved()
			win.Store[0] ^= 1
			w.save(at, string(win.Append(nil, 0)))
		}, n - 1},
		"no store": {func(w *world) {
			at, _, win := w.saved()
			win.Store, win.StoreSeq = [16]byte{}, 0
			w.save(at, string(win.Append(nil, 0)))
		}, n - 1},
		"an operator went back": {func(w *world) { w.save(0, "") }, n - 1},
		"another library":       {func(w *world) { w.save(50, "consumer-7") }, n - 50},
		"damaged metadata": {func(w *world) {
			at, s, _ := w.saved()
			w.save(at, s[:len(s)-3])
		}, n - 1},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				a := w.machine(nil)
				w.produce(0, numbered("", n)...)
				a.behind(n, func(c *Config) { c.Commit.Interval = time.Hour })
				b := a.dies()
				x.commit(w)
				m := b.start(b.config(b.hangs("none")))
				w.eventually("to the end", func() bool { return w.committed("t", 0) == n })
				if more := b.effects.more(); len(more) != x.again {
					t.Errorf("%d again, want %d", len(more), x.again)
				}
				m.stop()
			})
		})
	}
}

// C5: a store that has lost what it had is noticed, and its row does not count; what the commit itself says does.
func TestStoreIsRolledBack(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		const n = 100
		a := w.machine(nil)
		w.produce(0, numbered("", n)...)
		a.behind(n, nil)
		old := a.mem.AfterPowerLoss(0, 1)
		at := a.member.e.marks.store.Seq()
		w.produce(0, numbered("later", n)...)
		w.eventually("they are done and committed", func() bool {
			_, _, win := w.saved()
			settled, _ := win.Counts()
			return settled == 2*n-1
		})
		w.produce(0, "later still") // that commit may have come before the row
		w.eventually("a commit names what the store has by now", func() bool {
			_, _, win := w.saved()
			settled, _ := win.Counts()
			return settled == 2*n && win.StoreSeq > at
		})
		w.produce(0, numbered("last", n)...) // not committed, and in the row only
		b := a.dies()
		b.mem = old
		b.mount()
		m := b.start(b.config(b.hangs("none")))
		m.awaitName(EventStoreRolledBack)
		if ok, problems := m.e.Healthy(); ok || problems["dedupe store rolled back"] == "" {
			t.Errorf("healthy: %v", problems)
		}
		if ev := m.assigned(); ev.Count != 2*n {
			t.Errorf("assigned with %d settled", ev.Count)
		}
		w.eventually("to the end", func() bool { return w.committed("t", 0) == 3*n+1 })
		for _, v := range b.effects.more() {
			if v[:2] != "la" || v[:4] != "last" {
				t.Errorf("%s again", v)
			}
		}
	})
}

// C5, C3: a partition that moves to a member with a store of its own takes the metadata's window along and nothing else. When it
// comes back, the row of the first tenure does not count.
func TestRowsStayBehind(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		const n = 100
		a := w.machine(nil)
		other := w.machine(a)
		w.produce(0, numbered("", n)...)
		never := func(c *Config) { c.Commit.Interval = time.Hour }
		a.behind(n, never)
		back := a.dies()
		// The other member has the claim's window, which says nothing, and does all again; its own row is as fresh.
		m := other.start(func() Config { c := other.config(other.hangs("0")); never(&c); return c }())
		if ev := m.assigned(); ev.Count != 0 {
			t.Errorf("the other member has %d settled", ev.Count)
		}
		w.eventually("done again", func() bool { return len(other.effects.times(2)) == n-1 })
		other.dies()
		m = back.start(back.config(back.hangs("none")))
		if ev := m.assigned(); ev.Count != 0 {
			t.Errorf("back home %d are settled", ev.Count)
		}
		w.eventually("to the end", func() bool { return w.committed("t", 0) == n })
		if thrice := back.effects.times(3); len(thrice) != n-1 {
			t.Errorf("%d were done thrice: the row of the first tenure was used", len(thrice))
		}
	})
}

// C5: the row of a new tenure is durable before the claim names its store. Until then the store has the row of the tenure
// before, which an operator's rewind has made void: it would come back to life with the next crash.
func TestRowBeforeClaim(t *testing.T) {
	faults := map[string]func(m *machine){
		"as usual":            func(*machine) {},
		"syncs hang":          func(m *machine) { m.stuckSyncs() },
		"a sync fails":        func(m *machine) { m.failSyncs(1) },
		"several syncs fail":  func(m *machine) { m.failSyncs(5) },
		"the disk is full":    func(m *machine) { m.full() },
		"full for some while": func(m *machine) { time.AfterFunc(9*time.Second, m.full()) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				const n = 50
				a := w.machine(nil)
				w.produce(0, numbered("", n)...)
				a.behind(n, nil)
				b := a.dies()
				w.save(0, "")
				g := w.shut(numbered("", n)...) // nothing gets done in the second tenure
				c := b.config(func(ctx context.Context, r *Record) error { return g.pass(ctx, r) })
				c.Log = whenOpened(func() { fault(b) })
				b.start(c)
				time.Sleep(20 * time.Second)
				last := b.dies()
				last.start(last.config(last.hangs("none")))
				w.eventually("to the end", func() bool { return w.committed("t", 0) == n })
				if again := last.effects.times(2); len(again) != n-1 {
					t.Errorf("%d of %d are done again after the rewind", len(again), n-1)
				}
			})
		})
	}
}

// C5: rows whose group failed are written with the next attempt: the file system may have dropped what it could not write.
func TestRowsOfAFailedGroup(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		a := w.machine(nil)
		e, err := New(a.config(a.hangs("none")))
		if err != nil {
			t.Fatal(err)
		}
		var puts atomic.Int64
		s, err := dedupe.Open("/dedupe", dedupe.Options{FS: a.disk, Rows: func(put func(key, value []byte)) {
			e.writeRows(func(key, value []byte) { puts.Add(1); put(key, value) })
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		e.marks.store = s
		e.marks.shown.Store(s)
		ep := e.assign(tp{"t", 0}, Owner{})
		ep.topicID = [16]byte{1}
		a.failSyncs(1)
		e.activate(ep, 0, -1)
		if err := s.Flush(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := puts.Load(); n != 2 || !e.rowSaid(ep) {
			t.Errorf("the row was given %d times for two attempts", n)
		}
		if err := s.Flush(context.Background()); err != nil || puts.Load() != 2 {
			t.Errorf("given again when nothing has changed: %d, %v", puts.Load(), err)
		}
		e.end(ep, errLost)
	})
}

// C5: a row may lie above the committed offset, and what a next tenure writes before anything is fetched says no less than it: else a
// process that dies twice there would do the committed record once more.
func TestRowKeepsTheFrontier(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		const n = 20
		a := w.machine(nil)
		w.produce(0, numbered("", n)...)
		never := func(m *machine) Config { c := m.config(m.hangs("none")); c.Commit.Interval = time.Hour; return c }
		a.start(never(a))
		w.eventually("all done", func() bool { return len(a.effects.all()) == n })
		time.Sleep(time.Second) // and durable
		b := a.dies()
		release := w.stall(nil, kmsg.Fetch)
		for range 3 {
			_, before, _ := w.saved()
			m := b.start(never(b))
			if ev := m.assigned(); ev.Offset != 0 {
				t.Errorf("assigned at %d, want the committed offset", ev.Offset)
			}
			w.eventually("claimed", func() bool { _, now, win := w.saved(); return now != before && win.Store == m.e.marks.store.ID() })
			time.Sleep(time.Second) // and the row is durable
			b = b.dies()
		}
		release()
		m := b.start(b.config(b.hangs("none")))
		w.eventually("to the end", func() bool { return w.committed("t", 0) == n })
		if more := b.effects.more(); len(more) > 0 {
			t.Errorf("done again: %v", more)
		}
		m.stop()
	})
}
