package dedupe

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// cause is who says that the store cannot write.
type cause int

const (
	causeCommit     cause = iota // the committer, which then reopens the store
	causeSeal                    // the sealer, which tries again
	causeBackground              // Pebble's flushes and compactions, which Pebble tries again
	causeLog                     // the log, whose writes are tried again
	causes
)

// health collects what keeps the store from writing, and tells the caller from a goroutine of its own: some of it comes
// from Pebble with Pebble's locks held.
type health struct {
	fatal atomic.Pointer[error]
	dead  chan struct{} // closed after fatal was set

	mu      sync.Mutex
	reasons [causes]error
	bad     atomic.Bool
	wake    chan struct{}
	ended   bool

	owners sync.Map // ids of our goroutines and what they are at, see fatalf
}

func (h *health) init() {
	h.wake = make(chan struct{}, 1)
	h.dead = make(chan struct{})
}

func (h *health) writable() bool { return !h.bad.Load() && h.fatal.Load() == nil }

func (h *health) background() bool {
	if !h.bad.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reasons[causeBackground] != nil
}

// set says what keeps the store from writing, or that this does not any more; it returns whether that is news.
func (h *health) set(c cause, err error) bool {
	if err == nil && !h.bad.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if (h.reasons[c] == nil) == (err == nil) {
		return false
	}
	h.reasons[c] = err
	h.bad.Store(h.reason() != nil)
	h.poke()
	return true
}

func (h *health) reason() error {
	for _, err := range h.reasons {
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *health) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *health) stop() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.poke()
}

// herald calls OnState and OnFatal.
func (s *Store) herald() {
	defer s.goroutines.Done()
	h := &s.health
	var told, fatal bool
	for range h.wake {
		h.mu.Lock()
		err, ended := h.reason(), h.ended
		h.mu.Unlock()
		if told != (err != nil) {
			told = err != nil
			if err != nil {
				s.o.Log.Error().Err(err).Str("dir", s.dir).Msg("dedupe: the store cannot write")
			} else {
				s.o.Log.Info().Str("dir", s.dir).Msg("dedupe: the store can write again")
			}
			s.o.OnState(err)
			s.q.makeRoom()
		}
		if err := h.fatal.Load(); err != nil && !fatal {
			fatal = true
			s.o.Log.Error().Err(*err).Str("dir", s.dir).Msg("dedupe: the store cannot be repaired in this process")
			s.o.OnFatal(*err)
			s.q.makeRoom()
		}
		if ended {
			return
		}
	}
}

// fail says that this process cannot repair the store.
func (s *Store) fail(err error) error {
	err = fmt.Errorf("%w: %w", ErrFatal, err)
	if s.health.fatal.CompareAndSwap(nil, &err) {
		close(s.health.dead)
	} else {
		err = *s.health.fatal.Load()
	}
	s.health.poke()
	s.q.poke()
	s.sealer.poke()
	return err
}

// What our goroutines are at.
const (
	atCommit = iota // committing a batch: the panic of fatalf is recovered
	atTables        // taking in tables or flushing, where Pebble is not ready for a panic
	atDoor          // opening or closing a database, where errors are returned
)

// own marks this goroutine as one that recovers; the function that it returns takes that back.
func (h *health) own(at int) (disown func()) {
	id := goroutine()
	before, was := h.owners.Swap(id, at)
	if was {
		return func() { h.owners.Store(id, before) }
	}
	return func() { h.owners.Delete(id) }
}

// goroutine returns the id of this goroutine, which is only used where something has gone badly wrong, and at starts.
func goroutine() (id uint64) {
	var buf [64]byte
	n := runtime.Stack(buf[:], false)
	for _, c := range buf[len("goroutine "):n] {
		if c < '0' || c > '9' {
			break
		}
		id = id*10 + uint64(c-'0')
	}
	return id
}

// fatalf is what Pebble calls when it cannot go on: its log or its manifest cannot be written. It counts on this not coming
// back. Were it to return, a commit that failed would look like one that succeeded. Where we commit, a panic unwinds to where
// the store is reopened. All others are stopped where they are, with the locks that they hold: nothing of this database goes
// on then, and the process is told to end.
func (s *Store) fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	for _, a := range args {
		if e, ok := a.(error); ok {
			err = fmt.Errorf("%w (%w)", e, err)
		}
	}
	if at, ours := s.health.owners.Load(goroutine()); ours && at != atTables {
		panic(err)
	}
	s.stopHere(err)
}

// stopHere says that the store failed for good, and stops this goroutine.
func (s *Store) stopHere(err error) {
	_ = s.fail(err)
	left.Add(1)
	select {}
}

// left counts what was left behind for good: goroutines that were stopped, and databases that did not close.
var left atomic.Int64

// pebbleLog passes on what Pebble says.
type pebbleLog struct{ s *Store }

func (l pebbleLog) Infof(format string, args ...any) {
	l.s.o.Log.Debug().Str("dir", l.s.dir).Msgf("pebble: "+format, args...)
}

func (l pebbleLog) Errorf(format string, args ...any) {
	l.s.o.Log.Warn().Str("dir", l.s.dir).Msgf("pebble: "+format, args...)
}

func (l pebbleLog) Fatalf(format string, args ...any) { l.s.fatalf(format, args...) }

// events listens to Pebble. A disk that is full makes it fail a background flush tens of thousands of times a second, and no
// call return an error: this is where one learns of it.
func (s *Store) events() *pebble.EventListener {
	e := &pebble.EventListener{
		BackgroundError: func(err error) {
			if s.health.set(causeBackground, err) {
				s.q.poke()
			}
		},
		FlushEnd: func(i pebble.FlushInfo) {
			s.iters.epoch.Add(1)
			if i.Err == nil {
				s.health.set(causeBackground, nil)
			}
		},
		CompactionEnd: func(i pebble.CompactionInfo) {
			if i.Err == nil {
				s.health.set(causeBackground, nil)
			}
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			s.o.Log.Error().Err(i.Details).Str("dir", s.dir).Str("path", i.Path).Msg("dedupe: a file of the store is damaged")
		},
		DiskSlow: func(i pebble.DiskSlowInfo) {
			s.o.Log.Warn().Str("dir", s.dir).Msgf("dedupe: %s", i)
		},
		LowDiskSpace: func(i pebble.LowDiskSpaceInfo) {
			s.o.Log.Warn().Str("dir", s.dir).Msgf("dedupe: %s", i)
		},
	}
	e.EnsureDefaults(quiet{})
	return e
}

// quiet keeps Pebble's default listeners silent.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(string, ...any) {}
