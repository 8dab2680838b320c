package dedupe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"
)

// loaded is what was read from a database when it was opened.
type loaded struct {
	db          *pebble.DB
	schema      schema
	state       state
	next        uint32
	buckets     []*bucket // newest first
	generations map[string]uint64
	jobs        []job
}

func (s *Store) load(db *pebble.DB) (*loaded, error) {
	l := &loaded{db: db, generations: map[string]uint64{}}
	if err := l.meta(s.dir); err != nil {
		return nil, err
	}
	live := map[uint32]*bucket{}
	for _, b := range l.buckets {
		live[b.serial] = b
	}
	// Which parts there are, and rows of buckets that are no more.
	type found struct {
		b      *bucket
		no     uint32
		sealed bool
	}
	var parts []found
	for _, prefix := range []byte{sealedPrefix, arrivalPrefix} {
		err := eachPart(db, prefix, func(serial, no uint32) {
			b := live[serial]
			switch {
			case b == nil:
				l.jobs = append(l.jobs, job{span: partSpan(prefix, serial, no)})
			case prefix == arrivalPrefix && slices.Contains(parts, found{b, no, true}):
				l.jobs = append(l.jobs, job{span: partSpan(prefix, serial, no)})
			default:
				parts = append(parts, found{b, no, prefix == sealedPrefix})
			}
		})
		if err != nil {
			return nil, err
		}
	}
	s.sizeFilters(l)
	out := make([]*part, len(parts))
	var g errgroup.Group
	g.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	for i, f := range parts {
		g.Go(func() error {
			return guard(func() (err error) {
				if f.sealed {
					out[i], err = readSealedPart(db, f.b, f.no)
				} else {
					out[i], err = s.readArrivals(db, f.b, f.no)
				}
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for _, b := range l.buckets {
		var ps []*part
		for i, f := range parts {
			if f.b == b {
				ps = append(ps, out[i])
			}
		}
		slices.SortFunc(ps, func(x, y *part) int { return int(y.no) - int(x.no) })
		b.parts.Store(&ps)
		b.filter.room = max(0, b.filter.room-int(b.keys.Load()))
		// All but the one that takes marks are to be sealed, the oldest first.
		for i := len(ps) - 1; i >= 0; i-- {
			if p := ps[i]; p.mem != nil && (i > 0 || b != l.buckets[0] || p.mem.len() >= s.o.partSize) {
				l.jobs = append(l.jobs, job{bucket: b, part: p})
			}
		}
	}
	return l, nil
}

// meta reads the rows that say what the store is.
func (l *loaded) meta(dir string) error {
	row := func(key string, decode func([]byte) error) error {
		v, c, err := l.db.Get([]byte(key))
		if errors.Is(err, pebble.ErrNotFound) {
			if key == schemaKey {
				return fmt.Errorf("%w: %s is a Pebble database of something else; choose another directory", ErrForeign, dir)
			}
			return fmt.Errorf("%w: row %q is missing", ErrDamaged, key)
		}
		if err != nil {
			return err
		}
		return errors.Join(decode(v), c.Close())
	}
	var spans []span
	err := row(schemaKey, l.schema.decode)
	if err == nil {
		err = row(stateKey, l.state.decode)
	}
	if err == nil {
		err = row(bucketsKey, func(v []byte) (err error) { l.next, spans, err = decodeSpans(v); return err })
	}
	if err != nil {
		return err
	}
	for _, c := range spans {
		b := &bucket{span: c}
		b.parts.Store(new([]*part))
		l.buckets = append(l.buckets, b)
	}
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{generationPrefix}, UpperBound: []byte{generationPrefix + 1}})
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var v []byte
		if v, err = it.ValueAndErr(); err == nil {
			v, err = unwrap(string(it.Key()), v)
		}
		if err == nil && len(v) != 8 {
			err = fmt.Errorf("%w: row %q has %d bytes", ErrDamaged, it.Key(), len(v))
		}
		if err == nil {
			l.generations[string(it.Key()[1:])] = binary.BigEndian.Uint64(v)
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}

// eachPart names the parts that have rows, by seeking from one to the next.
func eachPart(db *pebble.DB, prefix byte, f func(bucket, part uint32)) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; {
		k := it.Key()
		if len(k) < 9 {
			err = fmt.Errorf("%w: a row has the key %x", ErrDamaged, k)
			break
		}
		bucket, part := binary.BigEndian.Uint32(k[1:]), binary.BigEndian.Uint32(k[5:])
		f(bucket, part)
		ok = it.SeekGE(partKey(prefix, bucket, part+1))
	}
	return errors.Join(err, it.Error(), it.Close())
}

// sizeFilters makes the buckets' filters, by what their rows take on disk. The newest bucket gets room for what memory
// still holds, and for as many keys as the one before.
func (s *Store) sizeFilters(l *loaded) {
	before := 0
	for i := len(l.buckets) - 1; i >= 0; i-- {
		b := l.buckets[i]
		var size uint64
		for _, prefix := range []byte{arrivalPrefix, sealedPrefix} {
			span := bucketSpan(prefix, b.serial)
			n, err := l.db.EstimateDiskUsage(span.Start, span.End)
			if err == nil { // otherwise the filter is too small, and says yes more often
				size += n
			}
		}
		keys := int(size/entrySize) + 1
		if i == 0 {
			keys = max(keys+2*s.o.partSize, before+before/32)
		}
		before = keys
		b.filter = newFilter(keys)
	}
}

// rowsOf calls f with the entries of each row of a part.
func rowsOf(db *pebble.DB, prefix byte, bucket, part uint32, f func(key, entries []byte, last bool) error) error {
	span := partSpan(prefix, bucket, part)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: span.Start, UpperBound: span.End})
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var v, entries []byte
		var last bool
		if v, err = it.ValueAndErr(); err != nil {
			break
		}
		if entries, last, err = openRow(it.Key(), v); err == nil {
			err = f(it.Key(), entries, last)
		}
	}
	return errors.Join(err, it.Error(), it.Close())
}

func readSealedPart(db *pebble.DB, b *bucket, no uint32) (*part, error) {
	c := &sealed{}
	span := partSpan(sealedPrefix, b.serial, no)
	size, _ := db.EstimateDiskUsage(span.Start, span.End)
	// A table that was taken in is not counted before it is flushed from the queue; then the filter starts small, like any.
	c.filter = newBloom(max(int(size/entrySize), smallestFilter), partBits, true)
	top := (*b.filter.layers.Load())[0]
	ended := false
	err := rowsOf(db, sealedPrefix, b.serial, no, func(key, entries []byte, last bool) error {
		if len(key) != 13 || ended || binary.BigEndian.Uint32(key[9:]) != uint32(len(c.first)) || len(entries) == 0 {
			return fmt.Errorf("%w: row %x is out of place", ErrDamaged, key)
		}
		ended = last
		c.first = append(c.first, binary.BigEndian.Uint64(entries))
		for i := range len(entries) / entrySize {
			e := entryAt(entries, i)
			if e.at() == forgotten {
				b.covers.Store(true)
			}
			k := e.key()
			c.filter.addAlone(k)
			top.add(k)
		}
		c.keys += len(entries) / entrySize
		return nil
	})
	if err == nil && !ended {
		err = fmt.Errorf("%w: bucket %d, part %d has no end", ErrDamaged, b.serial, no)
	}
	b.keys.Add(int64(c.keys))
	return &part{no: no, sealed: c}, err
}

func (s *Store) readArrivals(db *pebble.DB, b *bucket, no uint32) (*part, error) {
	var all []entry
	top := (*b.filter.layers.Load())[0]
	err := rowsOf(db, arrivalPrefix, b.serial, no, func(_, entries []byte, _ bool) error {
		for i := range len(entries) / entrySize {
			e := entryAt(entries, i)
			if e.at() == forgotten {
				b.covers.Store(true)
			}
			all = append(all, *e)
			top.add(e.key())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	mem := newArena(max(len(all), s.o.partSize) + s.o.MaxGroup + 1)
	for i := range all {
		mem.add(&all[i])
	}
	b.keys.Add(int64(len(all)))
	return &part{no: no, mem: mem}, nil
}
