package recordpool

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

// To recycle a record by the client's own way is a good part of what it costs behind the decoder (docs/performance.md): its slab is looked
// up in its context, its memory cleared by itself, with a word to the collector where that marks, and the slab's count lowered by an
// atomic operation. A loan does that for all records that come back together.

// LeastLoan is the least batch that is worth a loan, which costs as much as to recycle some ten records. Tests lower it.
var LeastLoan = 64

// Lend says that the records of a batch, which are of this pool, come back by Release, each once, and that nobody writes to them before.
// The pool then counts by itself what is out of their slab. It takes whole batches only: of one whose first records the client left out, or
// that is small, the records are recycled one by one.
func (p *Pool) Lend(batch []*kgo.Record) {
	n := len(batch)
	if n < LeastLoan || batch[0].Context == nil {
		return
	}
	behind := (*kgo.Record)(unsafe.Add(unsafe.Pointer(batch[n-1]), unsafe.Sizeof(kgo.Record{}))) // a slab always has room for one more
	s, ok := behind.Context.(*slab)
	if !ok || &s.recs[0] != batch[0] {
		return
	}
	p.lends.Store(true)
	s.out.Store(int64(n))
	p.loans.Store(batch[0].Context, s)
}

// Release gives records back to where they come from, each exactly once: nobody may look at them from then on. A record without a context
// is nobody's, and left alone.
func (p *Pool) Release(recs []*kgo.Record) {
	for len(recs) > 0 {
		n := 1
		for n < len(recs) && sideBySide(recs[n-1], recs[n]) {
			n++
		}
		p.release(recs[:n])
		recs = recs[n:]
	}
}

// ReleaseOne is Release of one record.
func (p *Pool) ReleaseOne(r *kgo.Record) {
	one := [1]*kgo.Record{r}
	p.release(one[:])
}

// release gives back records that lie side by side: those of a slab do, and copies may by chance, but then none of them has a context.
func (p *Pool) release(recs []*kgo.Record) {
	batch := recs[0].Context // it is one context for all of a batch
	if batch == nil {
		return
	}
	var lent any
	if p.lends.Load() { // else it may be a context of which there can't be a map
		lent, _ = p.loans.Load(batch)
	}
	if lent == nil {
		for _, r := range recs {
			r.Recycle()
		}
		return
	}
	if checked {
		for _, r := range recs {
			if r.Context != batch {
				panic("recordpool: a record is given back twice")
			}
		}
	}
	clear(unsafe.Slice(recs[0], len(recs)))
	if s := lent.(*slab); s.out.Add(-int64(len(recs))) == 0 {
		p.loans.Delete(batch)
		p.put(s)
	}
}

// Lent is the number of batches of which records are out, for tests.
func (p *Pool) Lent() (n int) {
	p.loans.Range(func(any, any) bool { n++; return true })
	return n
}
