package tracker

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// The benchmarks count one operation per record. A poll is 512 records.
const poll = 512

// BenchmarkAddDoneAdvance is the whole life of a record on one goroutine: added
// with its poll, done by itself, the frontier moved once a poll.
func BenchmarkAddDoneAdvance(b *testing.B) {
	b.ReportAllocs()
	t := New(0, 1, Options{})
	for i := 0; i < b.N; i += poll {
		first, _ := t.AddRange(int64(i), poll, 1)
		for s := first; s < first+poll; s++ {
			t.Done(s)
		}
		t.Frontier()
	}
}

// BenchmarkAddDoneRangeAdvance is the same with a completion per slice of 64.
func BenchmarkAddDoneRangeAdvance(b *testing.B) {
	b.ReportAllocs()
	t := New(0, 1, Options{})
	for i := 0; i < b.N; i += poll {
		first, _ := t.AddRange(int64(i), poll, 1)
		for s := first; s < first+poll; s += 64 {
			t.DoneRange(s, 64)
		}
		t.Frontier()
	}
}

// BenchmarkAddHolesDoneAdvance has a hole after each seventh record and takes the
// offsets as a slice.
func BenchmarkAddHolesDoneAdvance(b *testing.B) {
	b.ReportAllocs()
	t := New(0, 1, Options{})
	offsets := make([]int64, poll)
	next := int64(0)
	for i := 0; i < b.N; i += poll {
		for j := range offsets {
			offsets[j] = next
			if next++; j%7 == 6 {
				next++
			}
		}
		first, err := t.Add(offsets, 1)
		if err != nil {
			b.Fatal(err)
		}
		for s := first; s < first+poll; s++ {
			t.Done(s)
		}
		t.Frontier()
	}
}

// BenchmarkAddDoneAdvance8Workers has eight workers that contend for slices of 64
// records and finish each record by itself. Whoever takes the first slice of a
// poll adds another one and moves the frontier.
func BenchmarkAddDoneAdvance8Workers(b *testing.B) {
	benchmarkWorkers(b, 64, func(t *Tracker, s Seq, n int) {
		for end := s + Seq(n); s < end; s++ {
			t.Done(s)
		}
	})
}

// BenchmarkAddDoneRangeAdvance8Workers is the same with a completion per slice.
func BenchmarkAddDoneRangeAdvance8Workers(b *testing.B) {
	benchmarkWorkers(b, 64, func(t *Tracker, s Seq, n int) { t.DoneRange(s, n) })
}

// BenchmarkAddDoneAdvance8WorkersSameWord is the worst case: neighbouring records
// are finished by different workers, so that all of them write the same word. The
// cost of the shared cursor is in it, too.
func BenchmarkAddDoneAdvance8WorkersSameWord(b *testing.B) {
	benchmarkWorkers(b, 1, func(t *Tracker, s Seq, _ int) { t.Done(s) })
}

func benchmarkWorkers(b *testing.B, chunk int, done func(*Tracker, Seq, int)) {
	b.ReportAllocs()
	t := New(0, 1, Options{})
	const ahead = 16 * poll // so that nobody runs past the tail
	t.AddRange(0, ahead, 1)
	var cursor atomic.Int64
	var fetch sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				s := cursor.Add(int64(chunk)) - int64(chunk)
				if s >= int64(b.N) {
					return
				}
				for uint64(s) >= t.tail.Load() {
					runtime.Gosched()
				}
				done(t, Seq(s), chunk)
				if s%poll == 0 {
					fetch.Lock()
					_, next := t.Next()
					for _, err := t.AddRange(next, poll, 1); err != nil; _, err = t.AddRange(next, poll, 1) {
						runtime.Gosched() // ErrSpan: a preempted worker holds the head
					}
					fetch.Unlock()
					t.Frontier()
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkSnapshot reads a window of 22,500 deliveries with 1,000 of them not
// done; one operation is one snapshot.
func BenchmarkSnapshot(b *testing.B) {
	b.ReportAllocs()
	t := New(0, 1, Options{})
	t.AddRange(0, 22_500, 1)
	for s := Seq(0); s < 22_500; s++ {
		if s%22 != 0 {
			t.Done(s)
		}
	}
	var w Window
	for b.Loop() {
		t.Snapshot(&w)
	}
}
