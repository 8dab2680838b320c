package engine

import (
	"unsafe"

	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/gaplesshq/gapless/tracker"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What the fetch loop has to know of the records that it hands over (whether there is a marker among them, where another leader epoch
// begins, whether offsets are missing, what they pin) stands in each of them. But to read them all is dear beyond its instructions: a
// fetch is larger than a core's cache, and what this core has just read, a worker's has to get from it. The client decodes a batch of
// the log into one slab out of one buffer, so that a few records of each batch tell it all.

// stretch is what of a fetch has consecutive numbers in the tracker: the records between two markers, or what is left of them.
type stretch struct {
	first tracker.Seq
	recs  []*kgo.Record
	bytes int64 // that they pin
	dense bool  // their offsets have no holes
}

// stretchOf takes the records up to the first one with another leader epoch or that is a control record. A batch is of one epoch, and a
// marker is a batch of its own. What it takes is lent by the pool, unless that is nil.
func stretchOf(recs []*kgo.Record, pool *recordpool.Pool) stretch {
	first, n := recs[0], 0
	var s stretch
	for n < len(recs) {
		batch := recordpool.Batch(recs[n:])
		if n > 0 && (batch[0].LeaderEpoch != first.LeaderEpoch || batch[0].Attrs.IsControl()) {
			break
		}
		s.bytes += sizeOfBatch(batch)
		if pool != nil {
			pool.Lend(batch)
		}
		n += len(batch)
	}
	s.recs = recs[:n:n]
	s.dense = recs[n-1].Offset-first.Offset == int64(n-1) // the client gives none twice, and none before an earlier one
	return s
}

func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// recordOverhead is what a record costs beside its key and value: its struct in the client's slab, and its place in the lane.
const recordOverhead = 200

// headerOverhead is what a header costs beside its key and value.
const headerOverhead = 40

// sizeOf is what a record pins.
func sizeOf(r *kgo.Record) int64 {
	n := len(r.Key) + len(r.Value) + recordOverhead
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value) + headerOverhead
	}
	return int64(n)
}

// sizeOfBatch is what the records of a batch pin: the buffer from where the first one begins to where the last one ends, and what each
// costs beside. Where that is far from what three of them say, or these differ in their headers, all are added up: a hook of the embedder's
// may have given them other keys and values, and some batches are of very different records.
func sizeOfBatch(batch []*kgo.Record) int64 {
	n := int64(len(batch))
	a, b, c := batch[0], batch[n/2], batch[n-1]
	first, middle, last := extentOf(a), extentOf(b), extentOf(c)
	inOrder := first.from > 0 && first.to <= middle.from && middle.to <= last.from
	if n > 3 && inOrder && len(a.Headers) == len(b.Headers) && len(b.Headers) == len(c.Headers) {
		size := int64(last.to-first.from) + n*int64(recordOverhead+len(a.Headers)*headerOverhead)
		if likely := (sizeOf(a) + sizeOf(b) + sizeOf(c)) * n / 3; size/4 < likely && likely/4 < size {
			return size
		}
	}
	var sum int64
	for _, r := range batch {
		sum += sizeOf(r)
	}
	return sum
}

// extent is where a record's key and value stand, the value behind the key; zero if it has neither, or they stand otherwise.
type extent struct{ from, to uintptr }

func extentOf(r *kgo.Record) (e extent) {
	if n := len(r.Key); n > 0 {
		e.from = address(unsafe.SliceData(r.Key))
		e.to = e.from + uintptr(n)
	}
	if n := len(r.Value); n > 0 {
		value := address(unsafe.SliceData(r.Value))
		if value < e.to {
			return extent{}
		}
		if e.from == 0 {
			e.from = value
		}
		e.to = value + uintptr(n)
	}
	return e
}

// add has the tracker count on the records and gives them their numbers.
func (d *delivery) add(tr *tracker.Tracker, s *stretch) (err error) {
	first := s.recs[0]
	if s.dense {
		s.first, err = tr.AddRange(first.Offset, len(s.recs), first.LeaderEpoch)
		return err
	}
	d.offsets = d.offsets[:0]
	for _, r := range s.recs {
		d.offsets = append(d.offsets, r.Offset)
	}
	s.first, err = tr.Add(d.offsets, first.LeaderEpoch)
	return err
}
