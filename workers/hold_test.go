package workers

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeldItemKeepsItsKeyAndNoWorker (C6, parking): with a single worker a held item stops the later ones of its key and
// nobody else, and when it is resumed it comes before them.
func TestHeldItemKeepsItsKeyAndNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 1})
		l := s.Open(1, ByKey, nil, 0, 0)
		warmUp(l) // what follows is claimed in one chunk, the followers too
		synctest.Wait()
		s.begun, s.released = nil, nil
		s.holdOnce("a/1")
		l.Push(0, things("a/1", "a/2", "b/1", "a/3", "b/2", "none"))
		s.wantBegun("a/1", "b/1", "b/2", "none")
		if n := s.Stats().Goroutines; n != 0 {
			t.Errorf("%d goroutines for a held item", n)
		}
		if waiting, running, held := l.Len(); waiting != 2 || running != 0 || held != 1 {
			t.Errorf("%d wait, %d run, %d are held", waiting, running, held)
		}
		l.Push(0, things("a/4", "c/1"))
		s.wantBegun("a/1", "b/1", "b/2", "none", "c/1")
		if !s.Resume(s.holds["a/1"]) {
			t.Error("not resumed")
		}
		s.wantBegun("a/1", "b/1", "b/2", "none", "c/1", "a/1", "a/2", "a/3", "a/4")
		s.wantReleased("a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "c/1", "none")
		l.Close()
		s.Wait()
	})
}

// TestHeldItemHoldsThePartition (C6): under ByPartition everything waits, also what was claimed with the held item.
func TestHeldItemHoldsThePartition(t *testing.T) {
	for _, finish := range []bool{false, true} {
		bubble(t, fmt.Sprintf("finish=%v", finish), func(t *testing.T) {
			s := newStage(t, Options[thing]{Total: 4})
			l := s.Open(1, ByPartition, nil, 0, 0)
			warmUp(l)
			synctest.Wait()
			s.begun = nil
			s.holdOnce("2")
			l.Push(0, things("1", "2", "3", "4"))
			s.wantBegun("1", "2")
			l.Push(0, things("5"))
			s.wantBegun("1", "2")
			if finish {
				s.Finish(s.holds["2"])
				s.wantBegun("1", "2", "3", "4", "5")
			} else {
				s.Resume(s.holds["2"])
				s.wantBegun("1", "2", "2", "3", "4", "5")
			}
			l.Close()
			s.Wait()
		})
	}
}

// TestDecidedBeforeReturn (C6): Resume and Finish may come while the handler that held the item still runs; they take
// effect when it returns.
func TestDecidedBeforeReturn(t *testing.T) {
	for _, finish := range []bool{false, true} {
		bubble(t, fmt.Sprintf("finish=%v", finish), func(t *testing.T) {
			s := newStage(t, Options[thing]{Total: 4})
			l := s.Open(1, ByKey, nil, 0, 0)
			gate := make(chan struct{})
			s.onTask = func(task *Task[thing]) {
				if task.Item(0).name != "a/1" || task.Resumed(0) {
					return
				}
				ticket := task.Hold(0, thing{key: "a", name: "a/1"}, nil)
				decide := s.Resume
				if finish {
					decide = s.Finish
				}
				if !decide(ticket) || decide(ticket) {
					t.Error("a ticket is good once")
				}
				<-gate
			}
			l.Push(0, things("a/1", "a/2"))
			s.wantBegun("a/1")
			s.wantReleased()
			close(gate)
			if finish {
				s.wantBegun("a/1", "a/2")
			} else {
				s.wantBegun("a/1", "a/1", "a/2")
			}
			s.wantReleased("a/1", "a/2")
			l.Close()
			s.Wait()
		})
	}
}

// TestHoldReplacesTheItem (C7): the copy takes the place of the original, which is the caller's at once: not read and not
// released. Each item is released once, as what it was last.
func TestHoldReplacesTheItem(t *testing.T) {
	for _, order := range []Order{Unordered, ByKey, ByPartition} {
		bubble(t, order.String(), func(t *testing.T) { holdReplacesTheItem(t, order) })
	}
}

func holdReplacesTheItem(t *testing.T, order Order) {
	s := newStage(t, Options[thing]{})
	l := s.Open(1, order, nil, 0, 0)
	var ticket Ticket
	s.onTask = func(task *Task[thing]) {
		if task.Resumed(0) {
			if in := task.Look(0); in.Number != 7 || in.Memo != "remember" {
				t.Errorf("it runs again as number %d with memo %v", in.Number, in.Memo)
			}
			return
		}
		ticket = task.Hold(0, thing{key: "a", name: "copy"}, "remember")
		s.EachRunning(func(_ *Lane[thing], in Look[thing], _ time.Duration) {
			if in.Item.name != "copy" || in.Item != task.Item(0) || in.Number != 7 || in.Memo != "remember" {
				t.Errorf("held and running: %+v", in)
			}
		})
		defer func() {
			if recover() == nil {
				t.Error("an item was held twice")
			}
		}()
		task.Hold(0, thing{}, nil)
	}
	l.Push(7, things("a/1"))
	s.wantBegun("a/1")
	l.EachWaiting(func(in Look[thing]) {
		if in.Item.name != "copy" || in.Number != 7 || in.Memo != "remember" {
			t.Errorf("held: %+v", in)
		}
		in.Item.name = "copy of the copy"
	})
	s.Resume(ticket)
	s.wantBegun("a/1", "copy of the copy")
	s.wantReleased("copy of the copy")
	if s.Resume(ticket) || s.Finish(ticket) || s.Finish(Ticket{}) || s.Resume(Ticket{}) {
		t.Error("a stale ticket is good")
	}
	l.Close()
	s.Wait()
}

// TestManyFailures (C7): an item that is held a hundred times is held once at a time; tickets leave nothing behind.
// Seen at confluentinc/parallel-consumer#832.
func TestManyFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items, fails = 50, 100
		tickets := make(chan Ticket, items)
		type item struct{ n, fails int }
		p := New(Options[*item]{Total: 4, Handle: func(t *Task[*item]) {
			if it := *t.Item(0); it.fails < fails {
				it.fails++
				tickets <- t.Hold(0, &item{it.n, it.fails}, nil)
			}
		}})
		l := p.Open(1, Unordered, nil, 0, 0)
		for i := range items {
			l.Push(0, []*item{{n: i}})
		}
		for range fails {
			synctest.Wait()
			if _, _, held := l.Len(); held != items || len(l.part.held) != items || len(tickets) != items {
				t.Fatalf("%d held, %d tickets known, %d given", held, len(l.part.held), len(tickets))
			}
			for range items {
				p.Resume(<-tickets)
			}
		}
		synctest.Wait()
		if l.part.held != nil || l.part.store != nil {
			t.Error("an idle lane keeps memory")
		}
		l.Close()
		p.Wait()
	})
}

// TestReturnOne: a single item that is returned runs again, before later ones of its key.
func TestReturnOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 1})
		l := s.Open(1, ByKey, nil, 0, 0)
		warmUp(l)
		synctest.Wait()
		s.begun = nil
		once := true
		s.onTask = func(task *Task[thing]) {
			if once && task.Item(0).name == "a/1" {
				once = false
				task.Return(0)
			}
		}
		l.Push(0, things("a/1", "a/2", "b/1"))
		s.wantBegun("a/1", "a/1", "a/2", "b/1")
		l.Close()
		s.Wait()
	})
}

// TestGoexitInHandler (C8): a handler that ends its goroutine, as a failing test does, counts as returned.
func TestGoexitInHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{1, 4} {
			s := newStage(t, Options[thing]{Total: 1, BatchSize: size})
			l := s.Open(1, ByKey, nil, 0, 0)
			warmUp(l)
			synctest.Wait()
			s.begun, s.released = nil, nil
			s.onTask = func(task *Task[thing]) {
				if task.Item(0).name == "a/1" {
					runtime.Goexit()
				}
			}
			l.Push(0, things("a/1", "b/2", "c/3"))
			s.wantBegun("a/1", "b/2", "c/3")
			s.wantReleased("a/1", "b/2", "c/3")
			time.Sleep(time.Second)
			l.Close()
			s.Wait()
		}
	})
}
