package window

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// running is a record in flight and the time of its end.
type running struct {
	offset int64
	end    float64
}

type byEnd []running

func (h byEnd) Len() int           { return len(h) }
func (h byEnd) Less(i, j int) bool { return h[i].end < h[j].end }
func (h byEnd) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byEnd) Push(x any)        { *h = append(*h, x.(running)) }
func (h *byEnd) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// simulate keeps so many records in flight, and shows the window from time to time. It finishes them in the order of their
// ends, whatever has become of the frontier.
func simulate(inFlight, completions int, latency func() float64, show func(*Window)) {
	var h byEnd
	next := int64(10_000_000) // offsets of a topic that is not young
	undone := map[int64]bool{}
	start := func(now float64) {
		heap.Push(&h, running{next, now + latency()})
		undone[next] = true
		next++
	}
	for range inFlight {
		start(0)
	}
	frontier, highest := next-int64(inFlight), int64(-1)
	w := Window{TopicID: topicA, Partitions: 64, Store: storeA, StoreSeq: 1 << 30, Trying: -1}
	for i := range completions {
		done := heap.Pop(&h).(running)
		delete(undone, done.offset)
		highest = max(highest, done.offset)
		start(done.end)
		if i%(completions/50) != completions/50-1 {
			continue
		}
		for !undone[frontier] {
			frontier++
		}
		w.Frontier, w.Highest, w.Undone = frontier, frontier-1, w.Undone[:0]
		w.Epochs = append(w.Epochs[:0], Epoch{frontier, 17})
		if highest > frontier {
			w.Highest = highest
			for o := frontier; o < highest; o++ {
				if undone[o] {
					w.Undone = append(w.Undone, o)
				}
			}
		}
		show(&w)
	}
}

// 2,048 records in flight fit in the 4,096 bytes that a broker takes by default, under latencies that spread over the window.
func TestSizes(t *testing.T) {
	const limit = 4096
	for _, inFlight := range []int{64, 256, 1024, 2048, 3000} {
		for name, latency := range latencies(rand.New(rand.NewPCG(7, uint64(inFlight)))) {
			largest, width, undone, cut := 0, int64(0), 0, 0
			simulate(inFlight, 60_000, latency, func(w *Window) {
				text := w.Append(nil, 0)
				largest, width, undone = max(largest, len(text)), max(width, w.Highest-w.Frontier), max(undone, len(w.Undone))
				if got := mustDecode(t, w.Append(nil, limit)); got.Cut {
					cut++
				}
			})
			t.Logf("%4d in flight, %-12s: widest window %6d, at most %4d undone, %4d bytes, shortened %d of 50", inFlight, name, width, undone, largest, cut)
			if inFlight <= 2048 && cut > 0 {
				t.Errorf("%d in flight, %s: takes %d bytes, the limit is %d", inFlight, name, largest, limit)
			}
		}
	}
}

func latencies(r *rand.Rand) map[string]func() float64 {
	return map[string]func() float64{
		"exp":          r.ExpFloat64,
		"exp + stuck":  func() float64 { return stuck(r, r.ExpFloat64()) },
		"pareto 1.1":   func() float64 { return math.Pow(1-r.Float64(), -1/1.1) },
		"pareto 2":     func() float64 { return math.Pow(1-r.Float64(), -1/2.0) },
		"near uniform": func() float64 { return 1 + r.Float64()/10 },
	}
}

// stuck holds one record in 10,000 for very long.
func stuck(r *rand.Rand, latency float64) float64 {
	if r.IntN(10_000) == 0 {
		return 1000
	}
	return latency
}

// An idle partition is committed as well, and its metadata is kept by the broker: the two ids are nearly all of it.
func TestIdleSizes(t *testing.T) {
	idle := Window{TopicID: topicA, Partitions: 12, Frontier: 1_000_000_000, Highest: 999_999_999, Trying: -1}
	bare, withID := idle, idle
	bare.TopicID = [16]byte{}
	idle.Store, idle.StoreSeq = storeA, 100_000_000
	for _, c := range []struct {
		name string
		w    Window
		most int
	}{{"without ids", bare, 27}, {"with the topic's id", withID, 48}, {"with the topic's and the store's", idle, 75}} {
		n := len(c.w.Append(nil, 0))
		t.Logf("%s: %d bytes", c.name, n)
		if n > c.most {
			t.Errorf("%s: %d bytes, more than %d", c.name, n, c.most)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{0, 64, 2048} {
		w := benchmarked(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = w.Append(dst[:0], 4096)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	w := benchmarked(2048)
	text := string(w.Append(nil, 4096))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSettled(b *testing.B) {
	w := benchmarked(2048)
	o := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		w.Settled(w.Frontier+o%20_000, 17)
		o += 7
	}
}

// benchmarked is a window with so many undone offsets, a dozen apart.
func benchmarked(undone int) Window {
	w := Window{TopicID: topicA, Partitions: 64, Frontier: 1 << 30, Highest: 1<<30 - 1, Store: storeA, StoreSeq: 1 << 20, Trying: -1, Epochs: []Epoch{{1 << 30, 17}}}
	for i := range undone {
		w.Undone = append(w.Undone, w.Frontier+int64(i)*12)
		w.Highest = w.Undone[i] + 5
	}
	return w
}
