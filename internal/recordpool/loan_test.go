package recordpool

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetch has the client decode batches of so many records each, from an offset on: what is before it, it leaves out.
func fetch(t testing.TB, p *Pool, from int64, sizes ...int) []*kgo.Record {
	const nothing = "\x0c\x00\x00\x00\x01\x01\x00" // a record without a key and a value
	var raw []byte
	at := int64(0)
	for _, n := range sizes {
		b := kmsg.RecordBatch{FirstOffset: at, Magic: 2, NumRecords: int32(n), LastOffsetDelta: int32(n - 1)}
		for i := range n {
			r := []byte(nothing)
			r[3] = 0
			r = append(r[1:3], binary.AppendVarint(nil, int64(i))...) // attributes, time, offset
			r = append(r, "\x01\x01\x00"...)
			b.Records = append(binary.AppendVarint(b.Records, int64(len(r))), r...)
		}
		start := len(raw)
		raw = b.AppendTo(raw)
		binary.BigEndian.PutUint32(raw[start+8:], uint32(len(raw)-start-12)) // its length
		at += int64(n)
	}
	f, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{DisableCRCValidation: true, Offset: from, Pools: []kgo.Pool{p}},
		&kmsg.FetchResponseTopicPartition{RecordBatches: raw}, kgo.DefaultDecompressor(), nil)
	if f.Err != nil || int64(len(f.Records)) != at-from {
		t.Fatalf("decoded %d records of %d: %v", len(f.Records), at-from, f.Err)
	}
	return f.Records
}

func lend(p *Pool, recs []*kgo.Record) (batches int) {
	for ; len(recs) > 0; batches++ {
		b := Batch(recs)
		p.Lend(b)
		recs = recs[len(b):]
	}
	return batches
}

// TestLoanComesBackWhole: C7. The slab of a batch that was lent is free when the last of its records has come back, however they came, and not
// before; then it is empty, and used again.
func TestLoanComesBackWhole(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("GAPLESS_SEED"); v != "" {
		seed, _ = strconv.ParseUint(v, 10, 64)
	}
	t.Logf("GAPLESS_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	p, partly := new(Pool), false
	for i := range 300 {
		if i%10 == 0 {
			p, partly = new(Pool), false
		}
		var sizes []int
		total := 0
		for range 1 + r.IntN(4) {
			sizes = append(sizes, 1+r.IntN(300))
			total += sizes[len(sizes)-1]
		}
		from := int64(0)
		if r.IntN(2) == 0 {
			from = r.Int64N(int64(sizes[0])) // the first batch comes in part, as it does where a group begins within one
		}
		recs := fetch(t, p, from, sizes...)
		for i, rec := range recs {
			if rec.Offset != from+int64(i) || rec.Context == nil {
				t.Fatalf("record %d has offset %d", i, rec.Offset)
			}
		}
		if n := lend(p, recs); n != len(sizes) {
			t.Fatalf("%d batches, want %d", n, len(sizes))
		}
		want := 0
		for i, n := range sizes {
			if n >= LeastLoan && (i > 0 || from == 0) {
				want++
			}
		}
		if got := p.Lent(); got != want {
			t.Fatalf("%d batches are lent of %v from %d on, want %d", got, sizes, from, want)
		}
		held := p.held
		lent := map[any]bool{}
		p.loans.Range(func(c, _ any) bool { lent[c] = true; return true })
		n := 0
		for _, part := range split(r, recs) {
			for _, rec := range part {
				if rec.Context == nil { // a copy
					continue
				}
				n++
				if _, out := p.loans.Load(rec.Context); lent[rec.Context] && !out {
					t.Fatal("a slab is free while one of its records is out")
				}
			}
			if len(part) == 1 {
				p.ReleaseOne(part[0])
			} else {
				p.Release(part)
			}
		}
		if n != len(recs) {
			t.Fatalf("%d records were whole when they came back, of %d", n, len(recs))
		}
		if got := p.Lent(); got != 0 {
			t.Fatalf("%d batches are lent after all has come back", got)
		}
		if p.held <= held {
			t.Fatalf("the pool has %d records after all has come back, and %d before", p.held, held)
		}
		partly = partly || from > 0
		for c := range p.classes {
			if partly { // the client does not clear what it leaves out
				break
			}
			for _, s := range p.classes[c].stack {
				for i := range s.recs[:len(s.recs)-1] {
					if rec := &s.recs[i]; rec.Topic != "" || rec.Offset != 0 || rec.Context != nil && rec.Context != context.Context(s) {
						t.Fatalf("record %d of a free slab says %+v", i, rec)
					}
				}
			}
		}
	}
}

// split takes the records apart: into stretches, in any order, and here and there a record of its own, or one that is a copy by now.
func split(r *rand.Rand, recs []*kgo.Record) (parts [][]*kgo.Record) {
	for len(recs) > 0 {
		n := 1 + r.IntN(min(len(recs), 100))
		parts = append(parts, slices.Clone(recs[:n]))
		recs = recs[n:]
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for i := 0; i < len(parts); i += 3 {
		one := parts[i][len(parts[i])/2]
		parts[i][len(parts[i])/2] = &kgo.Record{} // a copy took its place
		parts = slices.Insert(parts, r.IntN(i+1), []*kgo.Record{one})
	}
	return parts
}

// TestLentInTwo: C1. Of a batch that comes in two parts neither is lent: what comes back of one would count for the other.
func TestLentInTwo(t *testing.T) {
	var p Pool
	recs := fetch(t, &p, 0, 200)
	p.Lend(recs[:100])
	p.Lend(recs[100:])
	if n := p.Lent(); n != 0 {
		t.Fatalf("%d parts are lent", n)
	}
	p.Release(recs)
	if p.held != 201 {
		t.Fatalf("the pool has %d records", p.held)
	}
}

// TestOthersMemory: memory that did not come from the pool can be given to it.
func TestOthersMemory(t *testing.T) {
	var p Pool
	p.PutRecords(nil)
	p.PutRecords(make([]kgo.Record, 100))
	if recs := p.GetRecords(99); cap(recs) != 100 || p.held != 0 {
		t.Fatalf("got %d records, and %d are left", cap(recs), p.held)
	}
}
