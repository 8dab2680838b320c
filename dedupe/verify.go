package dedupe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Report is what Verify found.
type Report struct {
	Buckets  int
	Parts    int   // with rows; a part that has sorted rows and arrival rows counts once for each
	Rows     int64 // of marks
	Marks    int64 // as in Stats.Keys
	Leftover int64 // rows of buckets that have ended, not removed yet
	Problems []error
}

// mostProblems bounds a report on a store that is damaged all over.
const mostProblems = 100

// Verify reads every row of marks as it is on the disk, and checks sums, order, completeness, and that lookups would find
// each mark. Work may go on meanwhile; what comes in after the start is not looked at. What is wrong is in the report (each
// problem wraps ErrDamaged or a read error); an error means that the report is not complete: it is ctx's, ErrClosed, or
// ErrUnavailable when the store stops being able to write. progress, which may
// be nil, is called now and then with rows read and an estimate of how many there are.
func (s *Store) Verify(ctx context.Context, progress func(done, total int64)) (Report, error) {
	if progress == nil {
		progress = func(int64, int64) {}
	}
	if err := s.ended(); err != nil {
		return Report{}, err
	}
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	if s.db == nil {
		return Report{}, ErrUnavailable
	}
	v := verifier{s: s, live: map[uint32]*bucket{}}
	v.r.Buckets = len(*s.buckets.Load())
	total := int64(0)
	for _, b := range *s.buckets.Load() {
		v.live[b.serial] = b
		total += b.keys.Load()/rowEntries + 1
	}
	for _, prefix := range []byte{sealedPrefix, arrivalPrefix} {
		if err := v.rows(ctx, prefix, total, progress); err != nil {
			return v.r, err
		}
	}
	progress(v.r.Rows, v.r.Rows)
	return v.r, nil
}

// rows looks at all rows of one kind.
func (v *verifier) rows(ctx context.Context, prefix byte, total int64, progress func(done, total int64)) error {
	s := v.s
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return fmt.Errorf("dedupe: reading: %w", err)
	}
	defer s.iters.close(it)
	v.begin()
	for ok := it.First(); ok; ok = it.Next() {
		err := ctx.Err()
		if err == nil && v.r.Rows%64 == 0 {
			if err = s.ended(); err == nil && !s.health.writable() {
				err = ErrUnavailable // whoever repairs it waits for this
			}
		}
		if err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			v.problem(fmt.Errorf("reading row %x: %w", it.Key(), err))
			continue
		}
		v.row(it.Key(), value)
		if v.r.Rows%4096 == 0 {
			progress(v.r.Rows, max(total, v.r.Rows))
		}
	}
	v.end()
	if err := it.Error(); err != nil {
		v.problem(fmt.Errorf("reading: %w", err))
	}
	return nil
}

type verifier struct {
	s    *Store
	r    Report
	live map[uint32]*bucket

	part   []byte // prefix, bucket and part of the row before
	next   uint32 // the row that should come
	last   bool   // the row before ended its part
	before Key    // the last key of the row before
}

func (v *verifier) problem(err error) {
	if len(v.r.Problems) < mostProblems {
		v.r.Problems = append(v.r.Problems, err)
	}
}

func (v *verifier) begin() { v.part, v.last = nil, true }

// end looks at whether the part that was being read is complete.
func (v *verifier) end() {
	if !v.last && v.part != nil && v.part[0] == sealedPrefix {
		v.problem(fmt.Errorf("%w: part %x has no end", ErrDamaged, v.part))
	}
}

func (v *verifier) row(key, value []byte) {
	v.r.Rows++
	size := 17
	if key[0] == sealedPrefix {
		size = 13
	}
	if len(key) != size {
		v.problem(fmt.Errorf("%w: a row has the key %x", ErrDamaged, key))
		return
	}
	b := v.live[binary.BigEndian.Uint32(key[1:])]
	if b == nil || b.dropped.Load() {
		v.r.Leftover++
		return
	}
	if !bytes.Equal(v.part, key[:9]) {
		v.end()
		v.part = bytes.Clone(key[:9])
		v.next, v.last, v.before = 0, false, Key{}
		v.r.Parts++
	}
	entries, last, err := openRow(key, value)
	if err != nil {
		v.problem(err)
		v.next++
		return
	}
	if key[0] == sealedPrefix {
		if no := binary.BigEndian.Uint32(key[9:]); no != v.next || v.last {
			v.problem(fmt.Errorf("%w: row %x is out of place; row %d was due", ErrDamaged, key, v.next))
			v.next = no
		}
		v.next++
		v.last = last
	}
	missed := 0
	for i := range len(entries) / entrySize {
		k := entryAt(entries, i).key()
		if key[0] == sealedPrefix && (v.next > 1 || i > 0) && bytes.Compare(v.before[:], k[:]) >= 0 {
			v.problem(fmt.Errorf("%w: row %x is not in order", ErrDamaged, key))
			break
		}
		v.before = *k
		v.r.Marks++
		if !v.found(b, k) {
			missed++
		}
	}
	if missed > 0 {
		v.problem(fmt.Errorf("%w: the index in memory misses %d marks of row %x; a restart builds it anew", ErrDamaged, missed, key))
	}
}

// found says whether a lookup would come to look where the key is.
func (v *verifier) found(b *bucket, k *Key) bool {
	if !b.filter.has(k) {
		return false
	}
	no := binary.BigEndian.Uint32(v.part[5:])
	for _, p := range *b.parts.Load() {
		if p.no == no {
			return p.mem != nil && p.mem.get(k) != nil || p.sealed != nil && p.sealed.filter.has(k)
		}
	}
	return false
}
