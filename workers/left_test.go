package workers

import (
	"sync"
	"testing"
	"testing/synctest"
)

// TestLeft (C8): a worker that leaves says so once, when nothing runs under its number any more and before another one may have it.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		var mu sync.Mutex
		running, kept := map[int]bool{}, map[int]int{} // by worker number: kept is what it has handled since it came
		gate := make(chan struct{})
		p := New(Options[int]{Total: most,
			Handle: func(task *Task[int]) {
				mu.Lock()
				running[task.Worker()] = true
				kept[task.Worker()]++
				mu.Unlock()
				<-gate
				mu.Lock()
				delete(running, task.Worker())
				mu.Unlock()
			},
			Left: func(worker int) {
				mu.Lock()
				defer mu.Unlock()
				if running[worker] {
					t.Errorf("worker %d left, and runs", worker)
				}
				delete(kept, worker)
			}})
		l := p.Open(1, Unordered, nil, 0, 0)
		for range 20 {
			l.Push(0, make([]int, most))
			synctest.Wait()
			if len(kept) == 0 {
				t.Fatal("nobody is there")
			}
			for range most {
				gate <- struct{}{}
			}
			synctest.Wait()
			if len(kept) > 0 {
				t.Fatalf("nothing runs, and these have not left: %v", kept)
			}
		}
		l.Close()
		p.Wait()
	})
}

// C7: a worker that leaves forgets the slots that it has had. A slot that is used again still names its worker, so that one would keep
// the other, and the lane's memory, and through that another worker, and so on.
func TestLeaversKeepNoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options[uint64]{Total: 3, Key: number8, Handle: func(*Task[uint64]) {}})
		var made []*worker[uint64]
		p.idle.New = func() any {
			w := newWorker(p)
			made = append(made, w) // under the pool's lock
			return w
		}
		l := p.Open(1, ByKey, nil, 0, 0)
		l.Push(0, make([]uint64, 500))
		synctest.Wait()
		l.Close()
		p.Wait()
		if len(made) == 0 {
			t.Fatal("there was no worker")
		}
		for _, w := range made {
			for i, s := range append(w.slots[:cap(w.slots):cap(w.slots)], w.room.slots[:]...) {
				if s != nil {
					t.Fatalf("a worker that left keeps slot %d of its chunk", i)
				}
			}
		}
	})
}

// C7: what a worker had in a chunk of one item is not kept by the room that it had for it, once its chunks are larger; and where two runs
// are released in one turn, the first is not.
func TestRoomKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, order := range []Order{Unordered, ByKey} {
			var l *Lane[*uint64]
			handle := func(k *Task[*uint64]) {
				if order == Unordered { // two runs: what was handled, and what a lane that is closed gives up
					k.Return(2)
					l.Close()
				}
			}
			p := New(Options[*uint64]{Total: 1, BatchSize: 4, Handle: handle, Release: func([]*uint64) {}, Key: func(n **uint64) []byte { return []byte{byte(**n)} }})
			var made []*worker[*uint64]
			p.idle.New = func() any {
				w := newWorker(p)
				made = append(made, w) // under the pool's lock
				return w
			}
			l = p.Open(1, order, nil, 0, 0)
			items := make([]*uint64, 4)
			for i := range items {
				items[i] = new(uint64)
				*items[i] = uint64(i)
			}
			l.Push(0, items)
			synctest.Wait()
			for _, w := range made {
				if cap(w.errands.runs) == 1 && cap(w.errands.released) == 1 {
					t.Errorf("%v: it has outgrown nothing", order)
				}
				if r := w.room; r.runs[0] != nil && cap(w.errands.runs) > 1 || r.released[0] != nil || r.slots[0] != nil {
					t.Errorf("%v: the room keeps %v, %v, %v", order, r.slots, r.runs, r.released)
				}
			}
			l.Close()
			p.Wait()
		}
	})
}
