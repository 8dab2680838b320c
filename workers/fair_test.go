package workers

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeepLaneDoesNotStarveOthers (C7, fairness): one lane is a million deep. An item that arrives on a shallow lane starts
// before each worker has started so many more of the deep one: what is left of its chunk and its visit, and one more
// visit if the deep lane stood before the other in the ring.
func TestDeepLaneDoesNotStarveOthers(t *testing.T) {
	for _, workers := range []int64{1, 4} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			most := workers * 2 * turnsPerVisit * maxChunk
			depth, arrivals := 1_000_000, int64(10_000)
			var mu sync.Mutex
			var more []int64
			var deep atomic.Int64
			var shallow *Lane[int64]
			p := New(Options[int64]{Total: int(workers), Handle: func(t *Task[int64]) {
				if t.Lane() == shallow {
					mu.Lock()
					more = append(more, deep.Load()-*t.Item(0))
					mu.Unlock()
				} else if n := deep.Add(1); n%arrivals == 0 {
					shallow.Push(0, []int64{n})
				}
			}})
			shallow = p.Open(1, Unordered, nil, 0, 0)
			l := p.Open(2, Unordered, nil, 0, 0)
			l.Push(0, make([]int64, depth))
			p.Wait()
			slices.Sort(more)
			worst, median := more[len(more)-1], more[len(more)/2]
			t.Logf("%d more of the deep lane in the median, %d at most; the bound is %d", median, worst, most)
			// Where workers outnumber processors, the very one that has taken the shallow lane's item may be without a
			// processor for some milliseconds, while others go on; a single worker is exact.
			if median > most || workers == 1 && worst > most {
				t.Errorf("%d and %d items of the deep lane came before, the bound is %d", median, worst, most)
			}
			l.Close()
			shallow.Close()
		})
	}
}

// TestManyLanesShareOneWorker: with one worker, slow items of twelve lanes take turns.
func TestManyLanesShareOneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lanes = 12
		var order []uint64
		p := New(Options[int]{Total: 1, Handle: func(t *Task[int]) {
			order = append(order, t.Lane().ID())
			time.Sleep(time.Millisecond)
		}})
		var all []*Lane[int]
		for i := range lanes {
			l := p.Open(uint64(i), Order(i%2)*ByPartition, nil, 0, 0)
			l.Pause()
			l.Push(0, make([]int, 20))
			all = append(all, l)
		}
		for _, l := range all {
			l.Unpause()
		}
		p.Wait()
		last := map[uint64]int{}
		for i, id := range order[:lanes*16] {
			if gap := i - last[id]; gap > lanes*turnsPerVisit {
				t.Errorf("lane %d waited for %d items of others", id, gap)
			}
			last[id] = i
		}
		for _, l := range all {
			l.Close()
		}
	})
}

// TestMarks (C7): Push says when the lane is full, counting everything unfinished, and Low says once when it has room.
func TestMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 1})
		l := s.Open(7, Unordered, "owner", 4, 2)
		if l.Owner() != "owner" || l.ID() != 7 {
			t.Error("the lane does not know whose it is")
		}
		s.gate("1", "2", "3", "4", "5")
		if l.Push(0, things("1", "2", "3")) {
			t.Error("full with 3 of 4")
		}
		if !l.Push(0, things("4", "5")) || !l.Push(0, nil) {
			t.Error("not full with 5 of 4")
		}
		synctest.Wait()
		s.open("1", "2")
		if s.lows != 0 {
			t.Error("low with 3 of 2")
		}
		s.open("3")
		if s.lows != 1 {
			t.Errorf("low was called %d times", s.lows)
		}
		s.open("4", "5")
		if s.lows != 1 {
			t.Errorf("low was called %d times", s.lows)
		}
		l.Close()
		s.Wait()
	})
}

// TestEachRunning (C9): the watchdog sees what runs, of open and of closed lanes, and since when at the latest; and Turn
// reports the time of chunks.
func TestEachRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var longest, handled atomic.Int64
		s := newStage(t, Options[thing]{Total: 3, Turn: func(_ int, _ *Lane[thing], n int, elapsed time.Duration) {
			longest.Store(max(longest.Load(), int64(elapsed)))
			handled.Add(int64(n))
		}})
		seen := func() map[string]time.Duration {
			synctest.Wait()
			m := map[string]time.Duration{}
			s.EachRunning(func(_ *Lane[thing], it Look[thing], since time.Duration) { m[it.Item.name] = since })
			return m
		}
		l := s.Open(1, Unordered, nil, 0, 0)
		s.gate("first", "among", "old")
		l.Push(0, things("first"))
		time.Sleep(time.Second)
		if m := seen(); len(m) != 1 || m["first"] != time.Second {
			t.Errorf("running: %v", m)
		}
		warmUp(l)
		synctest.Wait()
		l.Push(0, things("x", "y", "among", "z"))
		time.Sleep(time.Second)
		if m := seen(); len(m) != 2 || m["first"] != 2*time.Second || m["among"] < time.Second-2*time.Millisecond {
			t.Errorf("running: %v", m)
		}
		other := s.Open(2, ByKey, nil, 0, 0)
		other.Push(0, things("old"))
		synctest.Wait()
		other.Close()
		time.Sleep(time.Second)
		if m := seen(); len(m) != 3 || m["old"] != time.Second {
			t.Errorf("running: %v", m)
		}
		s.open("first", "among", "old")
		if m := seen(); len(m) != 0 {
			t.Errorf("running: %v", m)
		}
		if longest := time.Duration(longest.Load()); longest != 3*time.Second || handled.Load() != 1006 {
			t.Errorf("the longest turn took %v, %d items were in turns", longest, handled.Load())
		}
		l.Close()
		s.Wait()
	})
}
