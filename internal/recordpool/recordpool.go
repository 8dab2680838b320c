// Package recordpool is the pool of record slabs that a Kafka client decodes into: the engine's, and that of the loop which the benchmarks
// compare it with.
package recordpool

import (
	"context"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Pool gives the client slabs of records to decode into, one for each batch of the log, and takes them back when every record
// of one is recycled or, of what was lent, released. It is a small stack rather than a sync.Pool: the collector, which runs many
// times a second beside a fast consumer, empties those.
//
// A producer that sends little at a time makes small batches, so a backlog leaves thousands of small slabs. They lie by size, so that
// none is looked at that is too small, and what a backlog has left over goes to the collector soon after.
type Pool struct {
	mu      sync.Mutex
	classes [poolClasses]slabs
	held    int         // records in all
	gets    int         // since the last trim
	lends   atomic.Bool // something was lent
	loans   sync.Map    // of *slab, by the context that the client gave its records
}

// slab is memory for records. Behind those that the client asked for there is always one more, whose context is the slab: who has come to
// the end of a batch finds its slab there.
type slab struct {
	context.Context // none: it only is where a context may be
	recs            []kgo.Record
	out             atomic.Int64 // records that are lent
}

// newSlab makes a slab. The last record is never the client's, so it is the way back from the memory to the slab.
func newSlab(recs []kgo.Record) *slab {
	s := &slab{recs: recs}
	recs[len(recs)-1].Context = s
	return s
}

// slabs are a stack of those whose size is at least a power of two and below the next one.
type slabs struct {
	stack []*slab
	idle  int // so many at the bottom were not taken since the last trim
}

const (
	// poolMax bounds what the pool keeps: about 26 MB, a fetch of a dozen partitions with small records.
	poolMax     = 1 << (poolClasses - 1)
	poolClasses = 18
	// poolTrim is how many slabs are asked for between two trims. What lies unused for so long is more than is needed now.
	poolTrim = 1024
	// poolLooks is how many slabs are looked at in the class of what is asked for: not all there are large enough.
	poolLooks = 8
)

// GetRecords implements kgo.PoolRecords.
func (p *Pool) GetRecords(n int) []kgo.Record {
	s := p.get(n)
	if s == nil {
		s = newSlab(make([]kgo.Record, n+1))
	}
	s.recs[n].Context = s
	return s.recs[:n]
}

func (p *Pool) get(n int) *slab {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gets++; p.gets >= poolTrim {
		p.trim()
	}
	class := bits.Len(uint(n)) - 1
	for c := max(class, 0); c <= class+1 && c < poolClasses; c++ {
		if s := p.classes[c].take(n); s != nil {
			p.held -= len(s.recs)
			return s
		}
	}
	return nil
}

// take gives the topmost slab that has room for n and one more.
func (s *slabs) take(n int) *slab {
	top := len(s.stack) - 1
	for i := top; i >= 0 && i > top-poolLooks; i-- {
		if it := s.stack[i]; len(it.recs) > n {
			s.stack[i] = s.stack[top]
			s.stack[top] = nil
			s.stack = s.stack[:top]
			s.idle = min(s.idle, i)
			return it
		}
	}
	return nil
}

// PutRecords implements kgo.PoolRecords.
func (p *Pool) PutRecords(recs []kgo.Record) {
	recs = recs[:cap(recs)]
	if len(recs) == 0 {
		return
	}
	s, ok := recs[len(recs)-1].Context.(*slab)
	if !ok || &s.recs[0] != &recs[0] { // somebody else's
		s = newSlab(recs)
	}
	p.put(s)
}

func (p *Pool) put(it *slab) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(it.recs); p.held+n <= poolMax {
		s := &p.classes[bits.Len(uint(n))-1]
		s.stack = append(s.stack, it)
		p.held += n
	}
}

// trim drops what nobody has taken since the last one.
func (p *Pool) trim() {
	p.gets = 0
	for c := range p.classes {
		s := &p.classes[c]
		for _, it := range s.stack[:s.idle] {
			p.held -= len(it.recs)
		}
		left := copy(s.stack, s.stack[s.idle:])
		clear(s.stack[left:])
		s.stack, s.idle = s.stack[:left], left
	}
}
