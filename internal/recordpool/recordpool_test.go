package recordpool

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestPoolGivesBack: C7. A backlog leaves a pool full of slabs; what is not needed afterwards goes, whatever its size, and what is
// needed stays.
func TestPoolGivesBack(t *testing.T) {
	var p Pool
	backlog := func(n, size int) {
		slabs := make([][]kgo.Record, n)
		for i := range slabs {
			slabs[i] = p.GetRecords(size)
		}
		for _, s := range slabs {
			p.PutRecords(s[:cap(s)])
		}
	}
	backlog(500, 10)
	backlog(50, 1000)
	if p.held != 500*11+50*1001 { // each with room for one more
		t.Fatalf("%d records are held after the backlog", p.held)
	}
	for range 3 * poolTrim {
		a, b := p.GetRecords(5), p.GetRecords(900)
		if len(a) != 5 || len(b) != 900 {
			t.Fatalf("asked for 5 and 900 records, got %d and %d", len(a), len(b))
		}
		p.PutRecords(a[:cap(a)])
		p.PutRecords(b[:cap(b)])
	}
	if p.held != 1012 { // as large as a fetch: 1001, and 11
		t.Fatalf("long after the backlog %d records are held for two slabs in use", p.held)
	}
	if allocs := testing.AllocsPerRun(100, func() { p.PutRecords(p.GetRecords(900)) }); allocs > 0 {
		t.Fatalf("a slab that is in use is allocated anew: %v times", allocs)
	}
}

// TestSlabsLieApart: C1. Behind the last record of a slab there is room for another one, in slabs that are new and in those that were
// used before: who finds two records side by side knows that they are of one batch.
func TestSlabsLieApart(t *testing.T) {
	var p Pool
	for n := 1; n < 3000; n = n*3/2 + 1 {
		for _, want := range []int{n, n, max(n-1, 1), n + 1} {
			s := p.GetRecords(want)
			if len(s) != want || cap(s) == len(s) {
				t.Fatalf("asked for %d records, got %d of %d", want, len(s), cap(s))
			}
			p.PutRecords(s[:cap(s)])
		}
	}
}

// TestPoolBound: C7. The pool keeps no more than its bound, in slabs of all sizes, and never gives one that is too small.
func TestPoolBound(t *testing.T) {
	var p Pool
	var out [][]kgo.Record
	for n := 1; n <= 2*poolMax; n = n*3/2 + 1 {
		for range 40 {
			s := p.GetRecords(n)
			if len(s) != n {
				t.Fatalf("asked for %d records, got %d", n, len(s))
			}
			out = append(out, s)
		}
		for _, s := range out {
			p.PutRecords(s[:cap(s)])
		}
		out = out[:0]
		if p.held > poolMax {
			t.Fatalf("%d records are held, more than %d", p.held, poolMax)
		}
	}
}

// BenchmarkAfterBacklog takes a slab for a batch while the pool is full of smaller ones.
func BenchmarkAfterBacklog(b *testing.B) {
	var p Pool
	for range poolMax {
		p.PutRecords(make([]kgo.Record, 1))
	}
	for b.Loop() {
		p.PutRecords(p.GetRecords(2))
	}
}
