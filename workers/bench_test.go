package workers

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The benchmarks run the same handler over the same slices twice: in the pool, and in one goroutine without anything
// around it, which is the floor. They report ns/op as usual, and cpu-ns/rec: the CPU time a record costs above the floor.

const (
	benchLanes = 12
	benchKeys  = 10_000
)

type benchRecord struct {
	key   []byte
	value [100]byte
	lane  int
}

// benchItem is what an engine pushes: a pointer to the client's record.
type benchItem = *benchRecord

func benchSlices(perSlice, n int) [][]benchItem {
	all := make([][]benchItem, n)
	for i := range all {
		recs := make([]benchRecord, perSlice)
		items := make([]benchItem, perSlice)
		for j := range recs {
			n := i*perSlice + j
			k := uint64(n) * 0x9E3779B97F4A7C15 >> 20 % benchKeys
			recs[j].key = binary.BigEndian.AppendUint64([]byte("key-"), k)
			recs[j].lane = i % benchLanes
			items[j] = &recs[j]
		}
		all[i] = items
	}
	return all
}

// benchSink is a handler that touches the record and does nothing else.
var benchSink [256]struct {
	n uint64
	_ [56]byte
}

func benchHandle(worker int, rec *benchRecord) {
	benchSink[worker&255].n += uint64(rec.value[0])
}

func BenchmarkNoop(b *testing.B) {
	for _, order := range []Order{Unordered, ByKey, ByPartition} {
		for _, size := range []int{600, 7500} {
			for _, total := range []int{2, 8, 100} {
				if order == ByPartition && total == 100 {
					continue
				}
				b.Run(fmt.Sprintf("%v/slice=%d/workers=%d", order, size, total), func(b *testing.B) {
					benchNoop(b, order, size, total)
				})
			}
		}
	}
}

func benchNoop(b *testing.B, order Order, size, total int) {
	polls := benchSlices(size, benchLanes*max(1, 90_000/size/benchLanes))
	seed := maphash.MakeSeed()
	floor := func(n int) {
		for n > 0 {
			for _, s := range polls {
				s = s[:min(n, len(s))]
				for i := range s {
					if order == ByKey {
						benchSink[1].n += maphash.Bytes(seed, s[i].key)
					}
					benchHandle(0, s[i])
				}
				n -= len(s)
			}
		}
	}
	floor(90_000)
	c := cpu()
	floor(b.N)
	floorCPU := cpu() - c

	var done atomic.Int64
	low := make(chan struct{}, benchLanes)
	p := New(Options[benchItem]{
		Total:  total,
		Key:    func(it *benchItem) []byte { return (*it).key },
		Handle: func(t *Task[benchItem]) { benchHandle(t.Worker(), *t.Item(0)) },
		Turn:   func(_ int, _ *Lane[benchItem], n int, _ time.Duration) { done.Add(int64(n)) },
		Low:    func(l *Lane[benchItem]) { low <- struct{}{} },
	})
	lanes := make([]*Lane[benchItem], benchLanes)
	for i := range lanes {
		lanes[i] = p.Open(uint64(i), order, nil, 22_500, 15_000)
	}
	pump := func(n int) {
		full := make([]bool, benchLanes)
		at := 0
		for n > 0 {
			moved := false
			for i, l := range lanes {
				if waiting, running, held := l.Len(); full[i] && waiting+running+held > 15_000 {
					continue
				}
				s := polls[(at+i)%len(polls)]
				s = s[:min(n, len(s))]
				full[i] = l.Push(0, slices.Clone(s)) // as the client makes a slice for each fetch
				n -= len(s)
				moved = true
			}
			at += benchLanes
			if !moved {
				<-low
			}
			for len(low) > 0 {
				<-low
			}
		}
		p.Wait()
	}
	pump(90_000)
	b.ReportAllocs()
	b.ResetTimer()
	c = cpu()
	pump(b.N)
	used := cpu() - c
	b.StopTimer()
	if got, want := done.Load(), int64(b.N+90_000); got != want {
		b.Fatalf("%d records handled, want %d", got, want)
	}
	b.ReportMetric(float64(used-floorCPU)/float64(b.N), "cpu-ns/rec")
	b.ReportMetric(float64(floorCPU)/float64(b.N), "floor-ns")
	for _, l := range lanes {
		l.Close()
	}
}

// BenchmarkSleep has a handler that sleeps 2 ms, on one lane: how near the pool comes to as many bare goroutines.
func BenchmarkSleep(b *testing.B) {
	const nap = 2 * time.Millisecond
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("bare/goroutines=%d", n), func(b *testing.B) {
			var wg sync.WaitGroup
			var next atomic.Int64
			for range n {
				wg.Go(func() {
					for next.Add(1) <= int64(b.N) {
						time.Sleep(nap)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rec/s")
		})
		for _, order := range []Order{Unordered, ByKey} {
			b.Run(fmt.Sprintf("%v/workers=%d", order, n), func(b *testing.B) {
				p := New(Options[benchItem]{
					Total:  n,
					Key:    func(it *benchItem) []byte { return (*it).key },
					Handle: func(*Task[benchItem]) { time.Sleep(nap) },
				})
				items := benchSlices(7500, 1)[0]
				for i := range items {
					items[i].key = fmt.Appendf(nil, "key-%d", i)
				}
				l := p.Open(0, order, nil, 0, 0)
				b.ResetTimer()
				for left := b.N; left > 0; left -= len(items) {
					l.Push(0, slices.Clone(items[:min(left, len(items))]))
				}
				p.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rec/s")
				l.Close()
			})
		}
	}
}
