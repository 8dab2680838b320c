package workers

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// warmLane opens a lane ByKey whose next chunk is one of up to 16 items, in a pool with so many workers from now on.
func (s *stage) warmLane(workers int) *Lane[thing] {
	l := s.Open(1, ByKey, nil, 0, 0)
	s.SetLimit(1, 0)
	s.warm(l)
	s.SetLimit(workers, 0)
	return l
}

// warm has the only worker that is free run 15 quick items.
func (s *stage) warm(l *Lane[thing]) {
	l.Push(0, things(slices.Repeat([]string{"warm"}, 15)...))
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun, s.released = nil, nil; l.chunk != 16 {
		s.t.Errorf("the next chunk is of %d, want 16", l.chunk)
	}
}

// TestKeyRun (C6): quick items of a lane ByKey are handled where they lie, those of one key in order.
func TestKeyRun(t *testing.T) {
	bubble(t, "in place", func(t *testing.T) {
		s := newStage(t, Options[thing]{})
		l := s.warmLane(1)
		items := things("a/1", "b/1", "none", "a/2", "a/3", "b/2", "c/1")
		at := 0
		s.onTask = func(t *Task[thing]) {
			if t.Item(0) != &items[at] {
				s.t.Errorf("item %d is not where it was pushed", at)
			}
			at++
		}
		l.Push(0, items)
		s.wantBegun("a/1", "b/1", "none", "a/2", "a/3", "b/2", "c/1")
		s.wantReleased("a/1", "b/1", "none", "a/2", "a/3", "b/2", "c/1")
		if p := l.part; p.store != nil {
			t.Errorf("the partition still has a store: %d slots, %d keys", p.store.slab.used, p.store.keys.n)
		}
		l.Close()
		s.Wait()
	})
	// A run ends where an item waits for another worker's key, and that item and those behind it lose no time.
	bubble(t, "behind another worker", func(t *testing.T) {
		s := newStage(t, Options[thing]{})
		l := s.warmLane(2)
		s.gate("hot/1")
		l.Push(0, things("hot/1"))
		s.wantBegun("hot/1")
		l.Push(1, things("a/1", "hot/2", "a/2", "hot/3", "b/1"))
		s.wantBegun("hot/1", "a/1", "a/2", "b/1")
		busiest := ""
		l.BusyKeys(1, func(key []byte, waiting int) { busiest = fmt.Sprint(string(key), " ", waiting) })
		if busiest != "hot 2" {
			t.Errorf("the busiest key is %q, want hot with 2", busiest)
		}
		s.open("hot/1")
		s.wantBegun("hot/1", "a/1", "a/2", "b/1", "hot/2", "hot/3")
		l.Push(6, things("hot/4"))
		s.wantBegun("hot/1", "a/1", "a/2", "b/1", "hot/2", "hot/3", "hot/4")
		l.Close()
		s.Wait()
	})
	// What was claimed behind an item that is stuck goes back, in order, and those of its key wait for it.
	bubble(t, "recalled", func(t *testing.T) {
		s := newStage(t, Options[thing]{})
		l := s.warmLane(2)
		s.gate("a/2")
		l.Push(0, things("a/1", "b/1", "a/2", "b/2", "a/3", "b/3", "a/4", "none"))
		s.wantBegun("a/1", "b/1", "a/2")
		time.Sleep(3 * tick)
		s.wantBegun("a/1", "b/1", "a/2", "b/2", "none", "b/3")
		s.wantReleased("a/1", "b/1", "b/2", "b/3", "none")
		s.open("a/2")
		s.wantBegun("a/1", "b/1", "a/2", "b/2", "none", "b/3", "a/3", "a/4")
		l.Close()
		s.Wait()
	})
	bubble(t, "held", func(t *testing.T) {
		s := newStage(t, Options[thing]{})
		l := s.warmLane(1)
		s.holdOnce("a/2")
		l.Push(0, things("a/1", "b/1", "a/2", "b/2", "a/3", "a/4", "none"))
		s.wantBegun("a/1", "b/1", "a/2", "b/2", "none")
		s.Resume(s.holds["a/2"])
		s.wantBegun("a/1", "b/1", "a/2", "b/2", "none", "a/2", "a/3", "a/4")
		s.wantReleased("a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "none")
		l.Close()
		s.Wait()
	})
}

// TestKeyRunOutlivesItsLane (C6, C8): what runs in a run, or was held in one, keeps its key against a later lane.
func TestKeyRunOutlivesItsLane(t *testing.T) {
	for _, held := range []bool{false, true} {
		bubble(t, fmt.Sprintf("held %v", held), func(t *testing.T) {
			s := newStage(t, Options[thing]{})
			var l *Lane[thing]
			if held {
				l = s.warmLane(1)
				s.holdOnce("a/2")
			} else {
				l = s.warmLane(2)
				s.gate("a/2")
			}
			l.Push(0, things("a/1", "b/1", "a/2", "b/2", "a/3"))
			s.wantBegun(slices.Concat([]string{"a/1", "b/1", "a/2"}, map[bool][]string{true: {"b/2"}}[held])...)
			l.Close()
			s.want("released", s.sortedReleases(), "a/1", "a/3", "b/1", "b/2")

			next := s.Open(1, ByKey, nil, 0, 0)
			s.onTask = nil
			s.warm(next)
			next.Push(20, things("b/3", "a/4", "c/1", "a/5"))
			s.wantBegun("b/3", "c/1")
			if held {
				s.Finish(s.holds["a/2"])
			} else {
				s.open("a/2")
			}
			s.wantBegun("b/3", "c/1", "a/4", "a/5")
			next.Close()
			s.Wait()
		})
	}
}

// TestRunKeepsNothing (C7): a handler that is stuck in a run keeps nothing of its push alive but its own item.
func TestRunKeepsNothing(t *testing.T) {
	for _, order := range []Order{Unordered, ByKey} {
		bubble(t, order.String(), func(t *testing.T) {
			gate := make(chan struct{})
			p := New(Options[*thing]{
				Total: 1,
				Key:   func(it **thing) []byte { return []byte((*it).key) },
				Handle: func(t *Task[*thing]) {
					if (*t.Item(0)).name == "stuck" {
						<-gate
					}
				},
			})
			l := p.Open(1, order, nil, 0, 0)
			var seen []weak.Pointer[thing]
			push := func(n int, name string) {
				items := make([]*thing, n)
				for i := range items {
					items[i] = &thing{key: fmt.Sprint(i % 50), name: name}
					if i == 0 {
						items[i].name += "stuck"
					}
					seen = append(seen, weak.Make(items[i]))
				}
				l.Push(0, items)
			}
			push(15, "quick ")
			synctest.Wait()
			p.SetLimit(2, 0)
			push(200, "")
			time.Sleep(3 * tick)
			synctest.Wait()
			runtime.GC()
			runtime.GC()
			kept := 0
			for _, w := range seen {
				if w.Value() != nil {
					kept++
				}
			}
			want := 1 // the one that is stuck, and by key the three that wait for it
			if order == ByKey {
				want = 4
			}
			if kept != want {
				t.Errorf("%d items are kept, want %d", kept, want)
			}
			close(gate)
			synctest.Wait()
			l.Close()
			p.Wait()
		})
	}
}

func (s *stage) sortedReleases() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.released))
}
