package dedupe

import (
	"errors"
	"fmt"
	"time"
)

// Pauses between attempts at what failed.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// damagedTries is how often a store must be found damaged before that is believed: a disk that fails may also read badly for a while.
const damagedTries = 5

// repair closes and reopens the database after a failed commit, for as long as it takes. What was acknowledged is on the
// disk; what was being written may or may not be there, and is written again. An error is final.
func (s *Store) repair(reason error) error {
	s.health.set(causeCommit, reason)
	s.o.Log.Error().Err(reason).Str("dir", s.dir).Msg("dedupe: a group could not be written; reopening the store")
	err := within(s.o.CloseTimeout, func() error {
		defer s.health.own(atDoor)()
		_ = s.detach(false) // it fails for the reason that is known already
		return nil
	})
	if err != nil {
		// Two databases in one directory would destroy each other.
		return s.fail(fmt.Errorf("the database does not close: %w; why it had to: %w", err, reason))
	}
	damaged := 0
	for pause := min(firstPause, s.o.pause); ; pause = min(2*pause, s.o.pause) {
		l, err := s.openAndLoad(false)
		if err == nil {
			if l.state.seq < s.seq.Load() {
				_ = l.db.Close()
				return s.fail(fmt.Errorf("%w: group %d is the last one in it, but %d was acknowledged", ErrDamaged, l.state.seq, s.seq.Load()))
			}
			s.adopt(l)
			s.reopens.Add(1)
			return nil
		}
		if fatal := s.health.fatal.Load(); fatal != nil {
			return *fatal
		}
		if errors.Is(err, ErrDamaged) {
			if damaged++; damaged >= damagedTries {
				return s.fail(err)
			}
		}
		s.o.Log.Warn().Err(err).Str("dir", s.dir).Msg("dedupe: the store cannot be reopened yet")
		if s.q.closing.Load() {
			return fmt.Errorf("%w while it was being reopened, because of: %w", ErrClosed, reason)
		}
		s.pause(pause)
	}
}

// pause waits for a while, or the closing of the store.
func (s *Store) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return
		case <-s.q.wake:
			if s.q.closing.Load() {
				s.q.poke() // the committer reads it again
				return
			}
		}
	}
}

// adopt makes a database that was opened the one in use.
func (s *Store) adopt(l *loaded) {
	s.dbMu.Lock()
	s.db = l.db
	s.logs.failed.Store(false)
	s.logs.in.Store(true)
	s.iters.epoch.Add(1)
	s.dbMu.Unlock()
	s.nextSerial = l.next
	s.seq.Store(l.state.seq)
	s.buckets.Store(&l.buckets)
	s.sealer.restart(l.jobs)
}
