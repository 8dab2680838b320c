package tracker

import (
	"os"
	"runtime"
	"testing"
)

// With pages that are folded at once the random tests meet many of them.
func TestMain(m *testing.M) {
	foldBehind = 1
	os.Exit(m.Run())
}

// heapGrowth returns by how many bytes the live heap is larger after f, with what
// f returns kept alive.
func heapGrowth(f func() any) int64 {
	live := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	kept := f()
	after := live()
	runtime.KeepAlive(kept)
	return after - before
}

// C7: ten million deliveries behind a stuck head cost less than 400 KB, the last Snapshot
// included, if their log has no holes, in the worst case of a hole after each record less
// than 30 MB, and all of it comes back when the head moves.
func TestMemoryBehindStuckHead(t *testing.T) {
	foldBehind = 64
	t.Cleanup(func() { foldBehind = 1 })
	const total, poll = 10_000_000, 500
	for _, c := range []struct {
		name  string
		hole  func(i int) bool
		limit int64
	}{
		{"dense", func(int) bool { return false }, 400 << 10},
		{"hole after 100", func(i int) bool { return i%100 == 99 }, 8 << 20},
		{"hole after 8", func(i int) bool { return i%8 == 7 }, 30 << 20},
		{"hole after each", func(int) bool { return true }, 30 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, w := New(0, 1, Options{}), &Window{}
			stuck := heapGrowth(func() any {
				offsets, next := make([]int64, poll), int64(0)
				for i := 0; i < total; i += poll {
					for j := range offsets {
						offsets[j] = next
						if next++; c.hole(i + j) {
							next++
						}
					}
					s, err := tr.Add(offsets, 1)
					if err != nil {
						t.Fatal(err)
					}
					tr.DoneRange(max(s, 1), poll)
				}
				tr.Snapshot(w)
				return []any{tr, w}
			})
			if span := tr.Span(); span != total {
				t.Fatalf("span %d", span)
			}
			freed := -heapGrowth(func() any { tr.Done(0); tr.Snapshot(w); tr.Snapshot(w); return []any{tr, w} })
			t.Logf("%d deliveries: %d bytes, %.2f bits each; %d after the head moved", total, stuck, float64(stuck)*8/total, stuck-freed)
			if stuck > c.limit {
				t.Errorf("%d bytes, want at most %d", stuck, c.limit)
			}
			if stuck-freed > 64<<10 {
				t.Errorf("%d bytes are still held after the head moved", stuck-freed)
			}
		})
	}
}

// C7: ten thousand quiet partitions are small, whether a record ever came or not.
func TestMemoryIdle(t *testing.T) {
	const partitions = 10_000
	for _, used := range []bool{false, true} {
		each := heapGrowth(func() any {
			all := make([]*Tracker, partitions)
			for i := range all {
				all[i] = New(0, 1, Options{})
				if used {
					all[i].AddRange(0, 5000, 1)
					all[i].DoneRange(0, 5000)
					all[i].Frontier()
				}
			}
			return all
		}) / partitions
		t.Logf("used %v: %d bytes each", used, each)
		if each > 420 {
			t.Errorf("used %v: %d bytes each", used, each)
		}
	}
}

// A record costs no allocation: a poll that fits into the pages held has none at
// all, dense or not.
func TestNoAllocationInSteadyState(t *testing.T) {
	tr, next := New(0, 1, Options{}), int64(0)
	var w Window
	if n := testing.AllocsPerRun(1000, func() {
		s, _ := tr.AddRange(next, 8, 1)
		next += 8
		tr.Done(s + 7)
		tr.Snapshot(&w)
		tr.DoneRange(s, 8)
		tr.Frontier()
	}); n > 0.1 {
		t.Errorf("%.2f allocations a poll", n)
	}
}
