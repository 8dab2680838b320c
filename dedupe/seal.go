package dedupe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// job is work for the sealer: a full part to seal, an ended bucket to drop, or leftovers to remove.
type job struct {
	bucket *bucket
	part   *part
	drop   *bucket
	span   pebble.KeyRange
	gen    int // of the database that it is about
}

// sealer turns full parts into sorted rows, and removes what has ended, one job after the other on one goroutine.
type sealer struct {
	wake chan struct{}

	mu    sync.Mutex
	jobs  []job
	gen   int
	ended bool
	less  chan struct{} // closed and replaced when a job is done
}

// mostUnsealed is how many full parts may wait in memory. More only come together when sealing fails, and then the
// committer waits.
const mostUnsealed = 2

func (c *sealer) init() {
	c.wake = make(chan struct{}, 1)
	c.less = make(chan struct{})
}

func (c *sealer) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
	c.mu.Lock()
	close(c.less)
	c.less = make(chan struct{})
	c.mu.Unlock()
}

func (c *sealer) add(j job) {
	c.mu.Lock()
	// A part is queued when it is full and when its bucket ends; once is enough.
	if j.part == nil || !slices.ContainsFunc(c.jobs, func(o job) bool { return o.part == j.part }) {
		j.gen = c.gen
		c.jobs = append(c.jobs, j)
	}
	c.mu.Unlock()
	c.poke()
}

// restart forgets all jobs, which were about a database that is gone, and takes those of the new one.
func (c *sealer) restart(jobs []job) {
	c.mu.Lock()
	c.gen++
	c.jobs = c.jobs[:0]
	for _, j := range jobs {
		j.gen = c.gen
		c.jobs = append(c.jobs, j)
	}
	c.mu.Unlock()
	c.poke()
}

func (c *sealer) stop() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.poke()
}

func (c *sealer) next() (j job, ok, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jobs) == 0 || c.ended {
		return job{}, false, c.ended
	}
	return c.jobs[0], true, false
}

// finish takes a job off the queue, unless it went with its database.
func (c *sealer) finish(j job) {
	c.mu.Lock()
	if j.gen == c.gen {
		c.jobs = slices.Delete(c.jobs, 0, 1)
	}
	c.mu.Unlock()
	c.poke()
}

var errLogFailed = fmt.Errorf("%w: a sync of the log failed", ErrUnavailable)

// room waits until few enough parts are unsealed for another to be filled. A group without marks fills none: it asks only whether
// the store can be written, so that who flushes what is durable already does not wait for the sealer.
func (c *sealer) room(s *Store, marks int) error {
	for {
		c.mu.Lock()
		n, less := 0, c.less
		for _, j := range c.jobs {
			if j.part != nil {
				n++
			}
		}
		c.mu.Unlock()
		if err := s.health.fatal.Load(); err != nil {
			return *err
		}
		if s.logs.failed.Load() { // nothing is sealed until the store has been reopened
			return errLogFailed
		}
		if marks == 0 || n <= mostUnsealed || s.q.closing.Load() {
			return nil
		}
		select {
		case <-less:
		case <-s.q.wake:
		}
	}
}

// seal is the sealer's goroutine.
func (s *Store) seal() {
	defer s.goroutines.Done()
	defer s.health.own(atTables)()
	c := &s.sealer
	pause := min(firstPause, s.o.pause)
	for {
		j, ok, ended := c.next()
		if ended {
			return
		}
		if !ok || s.health.fatal.Load() != nil {
			<-c.wake
			continue
		}
		err := guard(func() error { return s.do(j) })
		if err == nil {
			s.health.set(causeSeal, nil)
			c.finish(j)
			pause = min(firstPause, s.o.pause)
			continue
		}
		if !errors.Is(err, ErrUnavailable) {
			s.o.Log.Warn().Err(err).Str("dir", s.dir).Msg("dedupe: sealing failed; it will be tried again")
			s.health.set(causeSeal, err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-c.wake:
		}
		t.Stop()
		pause = min(2*pause, s.o.pause)
	}
}

func (s *Store) do(j job) error {
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	if s.db == nil {
		return ErrUnavailable
	}
	switch {
	case j.part != nil:
		if j.bucket.dropped.Load() {
			return nil
		}
		return s.sealPart(j.bucket, j.part)
	case j.drop != nil:
		for _, prefix := range []byte{arrivalPrefix, sealedPrefix} {
			if err := s.excise(bucketSpan(prefix, j.drop.serial)); err != nil {
				return err
			}
		}
		s.drops.Add(1)
		s.o.Log.Debug().Str("dir", s.dir).Uint32("bucket", j.drop.serial).Msg("dedupe: a bucket has ended")
		return nil
	default:
		return s.excise(j.span)
	}
}

// bucketSpan is where the rows of a bucket are, partSpan where those of a part are.
func bucketSpan(prefix byte, bucket uint32) pebble.KeyRange {
	return pebble.KeyRange{Start: partKey(prefix, bucket, 0)[:5], End: partKey(prefix, bucket+1, 0)[:5]}
}

func partSpan(prefix byte, bucket, part uint32) pebble.KeyRange {
	return pebble.KeyRange{Start: partKey(prefix, bucket, part), End: partKey(prefix, bucket, part+1)}
}

// excise removes all rows of a span, if there are any.
func (s *Store) excise(span pebble.KeyRange) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: span.Start, UpperBound: span.End})
	if err != nil {
		return err
	}
	any := it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil || !any {
		return err
	}
	s.o.hook("excise")
	return s.endLog(func() error { return s.db.Excise(context.Background(), span) })
}

// endLog does something in which Pebble ends its log, unless a sync of that log failed: then Pebble would panic, and as it lets go of
// a lock that it does not hold, the Go runtime would end the process. The committer reopens the store, and it is tried again.
func (s *Store) endLog(do func() error) error {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	if s.logs.failed.Load() {
		s.q.poke()
		return ErrUnavailable
	}
	return do()
}

// sealPart writes the marks of a part as sorted rows into a table of its own, and in one step brings it in and removes the
// arrival rows. Only then can the sorted rows be looked at, and only then is the memory let go.
func (s *Store) sealPart(b *bucket, p *part) error {
	entries := sortEntries(p.mem.newest())
	path := s.fs.PathJoin(s.dir, fmt.Sprintf("%s%d-%d", sealingPrefix, b.serial, p.no))
	if err := s.writeTable(path, b.serial, p.no, entries); err != nil {
		_ = s.fs.Remove(path)
		return fmt.Errorf("writing a table of marks: %w", err)
	}
	s.o.hook("ingest")
	if err := s.endLog(func() error {
		_, err := s.db.IngestAndExcise(context.Background(), []string{path}, nil, nil, partSpan(arrivalPrefix, b.serial, p.no))
		return err
	}); err != nil {
		_ = s.fs.Remove(path)
		return fmt.Errorf("taking in a table of marks: %w", err)
	}
	c := &sealed{keys: len(entries), filter: newBloom(len(entries), partBits, true)}
	for i := range entries {
		if i%rowEntries == 0 {
			c.first = append(c.first, binary.BigEndian.Uint64(entries[i][:8]))
		}
		c.filter.addAlone(entries[i].key())
	}
	s.iters.epoch.Add(1) // iterators from before do not see the table
	b.replace(&part{no: p.no, sealed: c})
	s.seals.Add(1)
	return nil
}

// sealingPrefix begins the names of tables that are not part of the store yet.
const sealingPrefix = "sealing-"

func (s *Store) writeTable(path string, bucket, part uint32, entries []entry) error {
	f, err := s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), s.tableOptions())
	row := make([]byte, 0, rowSize(rowEntries))
	var buf [13]byte
	for i := 0; i < len(entries); i += rowEntries {
		n := min(rowEntries, len(entries)-i)
		row = row[:rowHeader]
		for j := range n {
			row = append(row, entries[i+j][:]...)
		}
		var flags byte
		if i+n == len(entries) {
			flags = flagLast
		}
		key := putSealedKey(&buf, bucket, part, uint32(i/rowEntries))
		finishRow(key, row, flags)
		if err := w.Set(key, row); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	return w.Close() // syncs
}

// sortEntries sorts by key. The keys are hashes, so a first pass over 16 bits leaves a handful in each place.
func sortEntries(in []entry) []entry {
	if len(in) < 1<<14 {
		slices.SortFunc(in, func(a, b entry) int { return bytes.Compare(a[:16], b[:16]) })
		return in
	}
	ends := make([]uint32, 1<<16+1)
	for i := range in {
		ends[int(binary.BigEndian.Uint16(in[i][:]))+1]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	out := make([]entry, len(in))
	for i := range in {
		at := &ends[binary.BigEndian.Uint16(in[i][:])]
		out[*at] = in[i]
		*at++
	}
	// ends[x] is now where x ends and x+1 begins. Insertion sort within.
	start := 0
	for x := range 1 << 16 {
		end := int(ends[x])
		for i := start + 1; i < end; i++ {
			e := out[i]
			j := i
			for j > start && bytes.Compare(out[j-1][:16], e[:16]) > 0 {
				out[j] = out[j-1]
				j--
			}
			out[j] = e
		}
		start = end
	}
	return out
}
