package workers

import (
	"encoding/binary"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func number8(it *uint64) []byte {
	return binary.LittleEndian.AppendUint64(nil, *it%10_000)
}

// TestStuckRecordHoldsUpNothing (C7, C9): among 90,000 records one blocks in the middle; all others finish, the ones
// included that were claimed in one chunk with it. By key, only records of its key wait.
func TestStuckRecordHoldsUpNothing(t *testing.T) {
	for _, order := range []Order{Unordered, ByKey} {
		for _, workers := range []int{2, 8, 100} {
			t.Run(order.String(), func(t *testing.T) {
				const n, stuck = 90_000, 45_123
				want := int64(n - 1)
				if order == ByKey {
					want = n - 5 // the records of the key are 10,000 apart: itself and four more
				}
				gate, through := make(chan struct{}), make(chan struct{})
				var done atomic.Int64
				p := New(Options[uint64]{Total: workers, Key: number8, Handle: func(t *Task[uint64]) {
					if *t.Item(0) == stuck {
						<-gate
					}
					if done.Add(1) == want {
						close(through)
					}
				}})
				l := p.Open(0, order, nil, 0, 0)
				for from := uint64(0); from < n; from += 7500 {
					l.Push(0, numbersFrom(from, 7500))
				}
				<-through
				close(gate)
				p.Wait()
				if done.Load() != n {
					t.Errorf("%d done", done.Load())
				}
				l.Close()
			})
		}
	}
}

func numbersFrom(from uint64, n int) []uint64 {
	items := make([]uint64, n)
	for i := range items {
		items[i] = from + uint64(i)
	}
	return items
}

// TestStuckHeadCostsNoMemory (C7): however far the work goes on behind a stuck record, the lane does not grow.
func TestStuckHeadCostsNoMemory(t *testing.T) {
	n := 10_000_000
	if raceDetector {
		n = 500_000
	}
	for _, order := range []Order{Unordered, ByKey} {
		t.Run(order.String(), func(t *testing.T) {
			gate, stuck := make(chan struct{}), make(chan struct{})
			low := make(chan struct{}, 1)
			p := New(Options[uint64]{
				Total: 4, Key: number8,
				Handle: func(t *Task[uint64]) {
					if *t.Item(0) == 0 {
						close(stuck)
						<-gate
					}
				},
				Low: func(*Lane[uint64]) { low <- struct{}{} },
			})
			l := p.Open(0, order, nil, 8192, 1024)
			l.Push(0, []uint64{0})
			<-stuck
			items := numbersFrom(1, 4096)
			pump := func(n int) {
				for range n / len(items) {
					for i := range items {
						items[i] = items[i]%9_999 + 1 // never the key of the stuck one
					}
					if l.Push(0, slices.Clone(items)) {
						<-low
					}
				}
			}
			pump(200_000)
			sizes := func() (pages, ring int) {
				l.part.mu.Lock()
				defer l.part.mu.Unlock()
				return len(l.part.store.slab.pages), len(l.part.store.queue.ring)
			}
			pages, ring := sizes()
			heap := heapInUse()
			pump(n)
			morePages, longerRing := sizes()
			if morePages > pages+64 { // 64 pages: what four workers and some luck may need
				t.Errorf("the slab grew from %d to %d pages", pages, morePages)
			}
			if longerRing > 2*ring {
				t.Errorf("the queue grew from %d to %d", ring, longerRing)
			}
			if got := heapInUse(); got > heap+1<<20 {
				t.Errorf("the heap grew by %d bytes", got-heap)
			}
			close(gate)
			p.Wait()
			l.Close()
		})
	}
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // a sync.Pool keeps things for two rounds
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMonitorRests (C8): the pool sets a timer only while items are claimed behind one that runs. A stuck record among
// others costs a few ticks, a single one none, and an idle pool none: otherwise virtual time would never stand still.
func TestMonitorRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timers atomic.Int64
		s := newStage(t, Options[thing]{Total: 3, AfterFunc: func(d time.Duration, f func()) func() bool {
			timers.Add(1)
			return time.AfterFunc(d, f).Stop
		}})
		l := s.Open(1, Unordered, nil, 0, 0)
		s.gate("stuck")
		l.Push(0, things("stuck"))
		time.Sleep(time.Hour)
		if n := timers.Load(); n != 0 {
			t.Errorf("%d timers for a single item", n)
		}
		warmUp(l)
		time.Sleep(time.Hour)
		before := timers.Load()
		s.gate("among")
		l.Push(0, things("1", "2", "among", "3", "4", "5", "6", "7", "8", "9", "10"))
		time.Sleep(time.Hour)
		if n := timers.Load() - before; n < 1 || n > 5 {
			t.Errorf("%d timers for a chunk that gets stuck", n)
		}
		synctest.Wait()
		if n := len(s.ended); n != 1010 {
			t.Errorf("%d items are through, want 1010", n)
		}
		if s.Stats().Recalled == 0 {
			t.Error("nothing was recalled")
		}
		s.open("stuck", "among")
		time.Sleep(time.Hour)
		l.Close()
		s.Wait()
	})
}

// TestStuckByPartition (C7): under ByPartition nothing can overtake, but what was claimed behind a stuck record is given
// back, so that it can be seen, replaced and dropped.
func TestStuckByPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 2})
		l := s.Open(1, ByPartition, nil, 0, 0)
		warmUp(l)
		synctest.Wait()
		s.begun = nil
		s.gate("2")
		l.Push(0, things("1", "2", "3", "4", "5"))
		time.Sleep(10 * time.Millisecond)
		n := 0
		l.EachWaiting(func(Look[thing]) { n++ })
		if waiting, running, _ := l.Len(); n != 3 || waiting != 3 || running != 1 {
			t.Errorf("%d visited, %d wait, %d run", n, waiting, running)
		}
		l.Push(0, things("6"))
		s.open("2")
		s.wantBegun("1", "2", "3", "4", "5", "6")
		l.Close()
		s.Wait()
	})
}
