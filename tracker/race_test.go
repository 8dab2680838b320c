package tracker

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestRaceSnapshotIsACut runs completions, deliveries and snapshots at once. Each
// window must hold every completion that had returned before it was asked for,
// and none that had not begun when it was given (C1), and the frontier must never
// go back (C4). The offset of number s is 2s.
// Seen at confluentinc/parallel-consumer#894.
func TestRaceSnapshotIsACut(t *testing.T) {
	const total = 20_000
	tr := New(0, 1, Options{})
	begun, returned := make([]atomic.Bool, total), make([]atomic.Bool, total)
	var cursor, running atomic.Int64
	var wg sync.WaitGroup
	for worker := range 4 {
		running.Add(1)
		wg.Go(func() {
			defer running.Add(-1)
			rng := rand.New(rand.NewPCG(uint64(worker), 0))
			for {
				n := 1 + rng.IntN(20)
				s := int(cursor.Add(int64(n))) - n
				if s >= total {
					return
				}
				end := min(s+n, total)
				for uint64(end) > tr.tail.Load() {
					runtime.Gosched()
				}
				if rng.IntN(2) == 0 {
					for i := s; i < end; i++ {
						begun[i].Store(true)
					}
					if newly := tr.DoneRange(Seq(s), end-s); newly != end-s {
						t.Errorf("DoneRange: %d of %d", newly, end-s)
					}
					for i := s; i < end; i++ {
						returned[i].Store(true)
					}
					continue
				}
				for _, i := range rng.Perm(end - s) {
					begun[s+i].Store(true)
					if !tr.Done(Seq(s + i)) {
						t.Errorf("Done(%d) was false", s+i)
					}
					returned[s+i].Store(true)
				}
			}
		})
	}
	wg.Go(func() {
		offsets := make([]int64, 0, 100)
		for s := int64(0); s < total; s += int64(len(offsets)) {
			offsets = offsets[:0]
			for i := s; i < min(s+100, total); i++ {
				offsets = append(offsets, 2*i)
			}
			if _, err := tr.Add(offsets, 1); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var w Window
	before := make([]bool, total)
	low := 0 // all below had returned before the last snapshot
	for last := false; !last; {
		last = running.Load() == 0
		from := low
		for i := from; i < total; i++ {
			if before[i] = returned[i].Load(); before[i] && i == low {
				low++
			}
		}
		previous := w.Frontier
		tr.Snapshot(&w)
		if w.Frontier < previous {
			t.Fatalf("frontier went back from %d to %d", previous, w.Frontier)
		}
		for i := from; i < total; i++ {
			settled := w.Done(int64(2 * i))
			if before[i] && !settled {
				t.Fatalf("%d had returned and is not in the window", i)
			}
			if settled && !begun[i].Load() {
				t.Fatalf("%d is in the window and had not begun", i)
			}
		}
	}
	wg.Wait()
	at(t, tr, 2*total-1)
}

// TestRaceRebaseCountsEachDoneOnce: a completion that races with Rebase returns
// true and is counted as done, or returns false and is counted as stale (C3).
func TestRaceRebaseCountsEachDoneOnce(t *testing.T) {
	tr := New(0, 1, Options{})
	tr.AddRange(0, 500, 1)
	const calls = 40_000
	var yes atomic.Uint64
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 0))
			for range calls {
				tail := tr.tail.Load()
				if tr.Done(Seq(tail - 1 - rng.Uint64N(min(tail, 600)))) {
					yes.Add(1)
				}
			}
		})
	}
	for range 2000 {
		tr.AddRange(0, 37, 1)
		tr.Rebase(0, 1)
		tr.AddRange(0, 41, 1)
		tr.Frontier()
		tr.Rebase(0, 1)
		runtime.Gosched()
	}
	wg.Wait()
	st := tr.Stats()
	if st.DoneCount != yes.Load() {
		t.Errorf("%d completions returned true, %d were counted", yes.Load(), st.DoneCount)
	}
	if st.DoneCount+st.DoubleDone+st.StaleDone != 4*calls {
		t.Errorf("%+v does not add up to %d calls", st, 4*calls)
	}
	if st.DoneCount+st.Forgotten+uint64(tr.Pending()) != st.Delivered {
		t.Errorf("%+v does not add up to the deliveries", st)
	}
}

// TestRaceCloseFreezesTheFrontier: the frontier after Close is that of exactly
// those completions that returned true, the racing ones included (C1, C3).
func TestRaceCloseFreezesTheFrontier(t *testing.T) {
	for round := range 300 {
		tr := New(0, 1, Options{})
		const total = 400
		tr.AddRange(0, total, 1)
		var done [total]atomic.Bool
		var cursor atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for s := cursor.Add(1) - 1; s < total; s = cursor.Add(1) - 1 {
					done[s].Store(tr.Done(Seq(s)))
				}
			})
		}
		for cursor.Load() < int64(round) {
			runtime.Gosched()
		}
		tr.Close()
		frozen, _ := tr.Frontier()
		wg.Wait()
		want := int64(0)
		for want < total && done[want].Load() {
			want++
		}
		if frozen != want {
			t.Fatalf("round %d: frozen at %d, but %d completions from 0 on returned true", round, frozen, want)
		}
		at(t, tr, frozen)
	}
}

// TestRaceTailBehindPages: as soon as a number is known, its Done counts, while
// the ring grows and shrinks (C1).
func TestRaceTailBehindPages(t *testing.T) {
	tr := New(0, 1, Options{})
	const pages = 2000
	var wg sync.WaitGroup
	wg.Go(func() {
		for s := Seq(0); s < pages*pageBits; {
			tail := Seq(tr.tail.Load())
			if s == tail {
				runtime.Gosched()
				continue
			}
			if !tr.Done(tail - 1) { // the newest page first
				t.Errorf("Done(%d) was false below the tail %d", tail-1, tail)
				return
			}
			if newly := tr.DoneRange(s, int(tail-1-s)); newly != int(tail-1-s) {
				t.Errorf("DoneRange(%d, %d) = %d", s, tail-1-s, newly)
				return
			}
			s = tail
		}
	})
	for i := range int64(pages) {
		if _, err := tr.AddRange(i*pageBits, pageBits, 1); err != nil {
			t.Fatal(err)
		}
		if i%7 == 0 {
			tr.Frontier()
			runtime.Gosched()
		}
	}
	wg.Wait()
	at(t, tr, pages*pageBits)
}
