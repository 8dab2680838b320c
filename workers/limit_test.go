package workers

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLimitsUpAndDown (C8; the limits are changed while the pool runs): more handlers start as soon as they may; after a
// limit went down none starts until fewer run; nothing is lost or started twice.
func TestLimitsUpAndDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, handled atomic.Int64
		gate := make(chan struct{}) // each receive lets one handler return
		p := New(Options[int]{Total: 3, PerLane: 2, Handle: func(*Task[int]) {
			running.Add(1)
			<-gate
			running.Add(-1)
			handled.Add(1)
		}})
		a, b := p.Open(1, Unordered, nil, 0, 0), p.Open(2, Unordered, nil, 0, 0)
		want := func(n, inA, inB int) {
			t.Helper()
			synctest.Wait()
			_, ra, _ := a.Len()
			_, rb, _ := b.Len()
			if int(running.Load()) != n || inA >= 0 && (ra != inA || rb != inB) {
				t.Errorf("%d run, %d and %d in the lanes, want %d, %d and %d", running.Load(), ra, rb, n, inA, inB)
			}
			if g := p.Stats().Goroutines; g != n {
				t.Errorf("%d goroutines for %d handlers", g, n)
			}
		}
		a.Push(0, make([]int, 50))
		want(2, 2, 0)
		b.Push(0, make([]int, 50))
		want(3, 2, 1)
		p.SetLimit(10, 3)
		want(6, 3, 3)
		p.SetLimit(10, 0)
		want(10, -1, -1)
		p.SetLimit(2, 0)
		want(10, -1, -1)
		for range 8 {
			gate <- struct{}{}
		}
		want(2, -1, -1)
		gate <- struct{}{}
		want(2, -1, -1)
		p.SetLimit(0, 1) // total as it is
		gate <- struct{}{}
		gate <- struct{}{}
		want(2, 1, 1)
		p.SetLimit(5, 0)
		want(5, -1, -1)
		for handled.Load() < 100 {
			select {
			case gate <- struct{}{}:
			default:
				synctest.Wait()
			}
		}
		want(0, 0, 0)
		if s := p.Stats(); s.Peak != 10 {
			t.Errorf("the peak was %d, want 10", s.Peak)
		}
		a.Close()
		b.Close()
		p.Wait()
	})
}

// TestLoweredLimitStopsChunks (C8): also what workers have claimed already does not start over the new limit.
func TestLoweredLimitStopsChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 4})
		l := s.Open(1, Unordered, nil, 0, 0)
		warmUp(l)
		synctest.Wait()
		s.begun = nil
		var names []string
		for i := range 256 {
			names = append(names, fmt.Sprintf("%d", i))
		}
		s.gate(names...)
		l.Push(0, things(names...))
		synctest.Wait()
		first := len(s.begun)
		s.SetLimit(1, 0)
		s.open(s.begun[:first-1]...)
		if len(s.begun) != first || first < 2 {
			t.Errorf("%d have started, want %d until the limit is met", len(s.begun), first)
		}
		s.open(s.begun[first-1])
		if len(s.begun) != first+1 {
			t.Errorf("%d have started, want %d", len(s.begun), first+1)
		}
		s.mu.Lock()
		for name, g := range s.gates {
			close(g)
			delete(s.gates, name)
		}
		s.mu.Unlock()
		synctest.Wait()
		if len(s.ended) != 1000+256 {
			t.Errorf("%d are through", len(s.ended))
		}
		l.Close()
		s.Wait()
	})
}

// TestPause (C3, suspension): nothing of the lane starts, what runs goes on, claimed items go back.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 1})
		l, other := s.Open(1, ByKey, nil, 0, 0), s.Open(2, ByKey, nil, 0, 0)
		warmUp(l)
		synctest.Wait()
		s.begun = nil
		s.gate("a/1")
		l.Push(0, things("a/1", "a/2", "b/1"))
		s.wantBegun("a/1")
		l.Pause()
		if waiting, running, _ := l.Len(); waiting != 2 || running != 1 {
			t.Errorf("%d wait, %d run", waiting, running)
		}
		l.Push(0, things("c/1"))
		s.open("a/1")
		other.Push(0, things("other"))
		s.wantBegun("a/1", "other")
		time.Sleep(time.Hour)
		s.wantBegun("a/1", "other")
		l.Unpause()
		synctest.Wait()
		if len(s.begun) != 5 {
			t.Errorf("begun: %q", s.begun)
		}
		l.Close()
		other.Close()
		s.Wait()
	})
}

// TestGoroutinesFollowWork (C7): none before there is work, as many as the work can use up to the limit, none after.
func TestGoroutinesFollowWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var workers sync.Map
		p := New(Options[int]{Total: 50, Handle: func(t *Task[int]) {
			workers.Store(t.Worker(), true)
			<-gate
		}})
		l := p.Open(1, Unordered, nil, 0, 0)
		for _, n := range []int{3, 20, 500} {
			l.Push(0, make([]int, n))
			synctest.Wait()
			want := min(n, 50)
			if n == 20 {
				want = 23
			}
			if s := p.Stats(); s.Goroutines != want || s.Running != want {
				t.Errorf("%+v, want %d goroutines", s, want)
			}
		}
		for i := range 50 {
			if _, ok := workers.Load(i); !ok {
				t.Errorf("the numbers of workers are not dense: there is no %d", i)
			}
		}
		close(gate)
		synctest.Wait()
		stacks := make([]byte, 1<<20) // runtime.NumGoroutine still counts one that has just ended
		stacks = stacks[:runtime.Stack(stacks, true)]
		if n := bytes.Count(stacks, []byte(".work(")); n > 0 {
			t.Errorf("%d goroutines are left:\n%s", n, stacks)
		}
		l.Close()
		p.Wait()
	})
}

// TestIdleLanesAreCheap (C7): ten thousand idle lanes, used before or not, take no goroutine and at most 1 KB each.
func TestIdleLanesAreCheap(t *testing.T) {
	const n = 10_000
	for _, used := range []bool{false, true} {
		t.Run(fmt.Sprintf("used=%v", used), func(t *testing.T) {
			p := New(Options[uint64]{Key: number8, Handle: func(*Task[uint64]) {}})
			goroutines, heap := runtime.NumGoroutine(), heapInUse()
			lanes := make([]*Lane[uint64], n)
			for i := range lanes {
				lanes[i] = p.Open(uint64(i), Order(i%3), nil, 1000, 500)
			}
			if used {
				for _, l := range lanes {
					l.Push(0, numbersFrom(0, 500))
				}
				p.Wait()
			}
			each := int64(heapInUse()-heap) / n
			t.Logf("%d bytes a lane", each)
			if each > 1024 {
				t.Errorf("%d bytes an idle lane, want at most 1024", each)
			}
			if more := runtime.NumGoroutine() - goroutines; more > n/1000 { // a few may be about to end
				t.Errorf("%d goroutines", more)
			}
			for _, l := range lanes {
				l.Close()
			}
			p.Wait()
		})
	}
}

// TestNothingAllocated: the way of an item that succeeds allocates nothing.
func TestNothingAllocated(t *testing.T) {
	if raceDetector { // it makes sync.Pool forget at random
		t.Log("not measured with the race detector")
		return
	}
	key := []byte("key of everybody")
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Append(nil, "key ", i)
	}
	for _, order := range []Order{Unordered, ByKey, ByPartition} {
		t.Run(order.String(), func(t *testing.T) {
			low := make(chan struct{}, 1)
			p := New(Options[[]byte]{
				Total: 4, Handle: func(*Task[[]byte]) {}, Key: func(it *[]byte) []byte { return *it },
				Release: func([][]byte) {}, Low: func(*Lane[[]byte]) { low <- struct{}{} },
				Turn: func(int, *Lane[[]byte], int, time.Duration) {},
			})
			l := p.Open(1, order, nil, 4096, 2048)
			items := make([][]byte, 1000)
			for i := range items {
				items[i] = keys[i]
				if i%4 == 0 {
					items[i] = key
				}
			}
			pump := func(n int) {
				for range n {
					if l.Push(0, slices.Clone(items)) { // a thousandth of an allocation an item: the slice is the caller's
						<-low
					}
				}
				p.Wait()
			}
			pump(100)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			pump(1000)
			runtime.ReadMemStats(&after)
			if perItem := float64(after.Mallocs-before.Mallocs) / 1e6; perItem > 0.01 {
				t.Errorf("%.4f allocations an item", perItem)
			}
			l.Close()
			p.Wait()
		})
	}
}
