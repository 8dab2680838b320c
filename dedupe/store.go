package dedupe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Store is a store of marks. Make it with Open or OpenSlot, and close it.
type Store struct {
	o      Options
	dir    string
	fs     orderedFS
	logs   *logFS
	lock   *pebble.Lock
	schema schema
	clock  *clock

	// logMu is held while a group is synced, and while the log is ended: see endLog.
	logMu sync.Mutex

	// dbMu is held for reading by whoever uses db, and for writing to take it away or bring it back.
	dbMu  sync.RWMutex
	db    *pebble.DB
	iters iterPool

	buckets    atomic.Pointer[[]*bucket] // newest first; changed by the committer only
	nextSerial uint32                    // the committer's, as are the next
	shards     [shardCount]shard
	seq        atomic.Uint64 // of the last durable group

	scopeMu     sync.Mutex
	scopes      map[string]*scopeState
	generations map[string]uint64

	q      queue
	sealer sealer
	health health

	committed  chan struct{} // closed when the committer has ended
	goroutines sync.WaitGroup
	closeOnce  sync.Once
	closeErr   error

	marks, probes, groups, forgets, seals, drops, reopens atomic.Uint64
	slowest, writing                                      atomic.Int64 // nanoseconds: of the slowest group, and of all
}

// Open opens the store in a directory, which is made where it does not exist. It takes a directory for itself: a second Open
// of it, by any process, is refused with ErrLocked.
//
// The errors wrap ErrLocked, ErrNewer, ErrDamaged, ErrForeign, or an error of the file system, and say what to do. A store
// that is refused was not changed. Reading 10 million marks into the filters takes half a second.
func Open(dir string, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := newStore(dir, o)
	if s.lock, err = lockDirectory(dir, s.fs); err != nil {
		return nil, err
	}
	l, err := s.openAndLoad(true)
	if err != nil {
		if !errors.Is(err, ErrFatal) { // then Pebble still has its hands on it
			_ = s.lock.Close()
		}
		return nil, err
	}
	s.schema, s.generations = l.schema, l.generations
	s.clock = newClock(o.Now, o.elapsed, o.Retention, l.state.time, l.state.stream)
	s.adopt(l)
	s.goroutines.Add(2)
	go s.herald()
	go s.seal()
	go s.commit()
	return s, nil
}

func newStore(dir string, o Options) *Store {
	s := &Store{
		o: o, dir: dir, fs: orderedFS{o.FS, new(atomic.Bool)},
		scopes: map[string]*scopeState{}, committed: make(chan struct{}),
	}
	s.logs = &logFS{FS: s.fs, s: s, closed: make(chan struct{})}
	s.q.init()
	s.sealer.init()
	s.health.init()
	return s
}

// mostSlots bounds the search of OpenSlot.
const mostSlots = 1024

// OpenSlot opens base/0, or where that is in use base/1, and so on: what several processes of one host use when nobody gives
// each a directory of its own. Which slot a process gets after a restart is a matter of order, and so is which marks it has.
func OpenSlot(base string, o Options) (*Store, error) {
	for i := range mostSlots {
		fs := o.FS
		if fs == nil {
			fs = vfs.Default
		}
		s, err := Open(fs.PathJoin(base, fmt.Sprint(i)), o)
		if !errors.Is(err, ErrLocked) {
			return s, err
		}
	}
	return nil, fmt.Errorf("%w: all %d slots under %s", ErrLocked, mostSlots, base)
}

// Dir returns the directory of the store.
func (s *Store) Dir() string { return s.dir }

// ID returns what names this store: it is drawn when the store is made and never changes.
func (s *Store) ID() [16]byte { return s.schema.id }

// Seq returns the number of the last durable group. It grows by one a group, over restarts, too. A store whose number is
// below one that it was known to have has lost what came after: it was restored from a copy, or its disk lost writes.
func (s *Store) Seq() uint64 { return s.seq.Load() }

// Observe tells the store the time of a record that is being consumed, so that marks age by the stream and not by the wall
// clock while the consumer is behind: the time that counts is the earlier of the wall clock and the latest time observed,
// and never goes back. A time more than a minute ahead of the wall clock is ignored. It costs a few nanoseconds when the time
// is not later than the latest.
func (s *Store) Observe(t time.Time) { s.clock.observe(t) }

// ended returns why the store takes no calls any more, if so.
func (s *Store) ended() error {
	if err := s.health.fatal.Load(); err != nil {
		return *err
	}
	if s.q.closing.Load() {
		return ErrClosed
	}
	return nil
}

// Close writes what waits, and closes the store. It takes at most CloseTimeout, then it returns ErrTimeout and leaves behind
// what hangs; what was not reported durable may not be. Claims that are held are simply forgotten. Further calls of Close
// return what the first did; other methods return ErrClosed or do nothing.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.closeErr = within(s.o.CloseTimeout, s.shut)
		if errors.Is(s.closeErr, ErrTimeout) {
			close(s.logs.closed) // whoever still waits for the log stops where it is
			return
		}
		s.closeErr = errors.Join(s.closeErr, s.lock.Close())
	})
	return s.closeErr
}

func (s *Store) shut() error {
	s.q.close()
	<-s.committed
	s.sealer.stop()
	s.health.stop()
	s.goroutines.Wait()
	defer s.health.own(atDoor)()
	return s.detach(true)
}

// detach takes the database away from its users and closes it.
func (s *Store) detach(flush bool) (err error) {
	s.dbMu.Lock()
	db := s.db
	s.db = nil
	s.dbMu.Unlock()
	if db == nil {
		return nil
	}
	s.iters.epoch.Add(1)
	s.iters.drain(true)
	flushed := false
	if flush && s.health.fatal.Load() == nil {
		// A flushed store opens without replaying its log.
		s.fs.fresh.Store(true)
		if err := s.flush(db); err != nil {
			s.o.Log.Warn().Err(err).Str("dir", s.dir).Msg("dedupe: flush at close failed; the next open takes a little longer")
		} else {
			flushed = true
		}
	}
	s.logs.in.Store(false)
	if err := db.Close(); err != nil || !flushed {
		return err
	}
	removeLogs(s.fs, s.dir)
	return nil
}

// flush writes what Pebble has in memory to tables.
func (s *Store) flush(db *pebble.DB) error {
	defer s.health.own(atTables)()
	var done <-chan struct{}
	err := s.endLog(func() (err error) { done, err = db.AsyncFlush(); return err })
	if err == nil {
		<-done
	}
	return err
}

// apart runs f on a goroutine of its own and waits for it, or for the end of the store: where Pebble was stopped in the middle of
// something (stopHere), whoever needs a lock of the database waits for ever. That is nobody who called us.
func apart[T any](s *Store, f func(db *pebble.DB) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var none T
	if err := s.ended(); err != nil {
		return none, err
	}
	done := make(chan result, 1)
	go func() {
		s.dbMu.RLock()
		defer s.dbMu.RUnlock()
		if s.db == nil {
			done <- result{err: ErrUnavailable}
			return
		}
		v, err := f(s.db)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-s.health.dead:
		return none, *s.health.fatal.Load()
	}
}

// within runs f and waits so long for it. A panic of f is an error.
func within(d time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- guard(f) }()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		left.Add(1)
		return fmt.Errorf("%w after %v", ErrTimeout, d)
	}
}

// wait waits for c, the end of ctx, or the end of the store.
func (s *Store) wait(ctx context.Context, c <-chan error) error {
	select {
	case err := <-c:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.health.dead:
		return *s.health.fatal.Load()
	}
}
