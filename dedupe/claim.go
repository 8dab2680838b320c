package dedupe

import (
	"sync"
)

// Tag names a completion or a waiter in the caller's terms; the store only hands it back.
type Tag struct{ Owner, Seq uint64 }

// Verdict is what a claim came to.
type Verdict uint8

const (
	// Mine: the key is new, or its mark has expired, and now held. Run the handler, then Mark or Release.
	Mine Verdict = iota + 1
	// Seen: a durable mark with the same fingerprint counts. Nothing is held.
	Seen
	// Differs: a durable mark with another fingerprint counts. The key is held all the same, and the caller decides: run the
	// handler and Mark, which replaces the mark, or Release.
	Differs
	// Busy: somebody holds the key, or its mark is not durable yet. Nothing is held; OnFree will name the waiter, once.
	Busy
)

// String returns the name in lower case.
func (v Verdict) String() string {
	switch v {
	case Mine:
		return "mine"
	case Seen:
		return "seen"
	case Differs:
		return "differs"
	case Busy:
		return "busy"
	}
	return "none"
}

// Claim is a hold on a key. The zero Claim holds nothing. It is a value: copies stand for the same hold, and once the hold
// has ended, by Release or by a durable mark, all of them are stale.
type Claim struct {
	key         Key
	token       uint64
	fingerprint uint64
}

// Key returns the key, which is zero for the zero Claim.
func (c Claim) Key() Key { return c.key }

// Held says whether this came from a Claim that held the key. It may be stale by now.
func (c Claim) Held() bool { return c.token != 0 }

// forgetToken stands in the place of a token in the completion that Forget queues.
const forgetToken = ^uint64(0)

const shardCount = 256

// shard holds the reservations of the keys with one first byte.
type shard struct {
	mu     sync.Mutex
	held   reservations
	tokens uint64

	seen, busy, stale uint64

	_ [64]byte // keeps neighbours off each other's cache lines
}

// Claim asks for a key before its record is handled. Only one claim of a key is held at a time. The fingerprint is
// that of the payload (see Fingerprint); of equal keys with different ones, neither is skipped silently.
//
// An error means that nobody knows: a read failed, the store is being reopened (ErrUnavailable), or it is closed. Nothing is
// held then, and the key counts neither as seen nor as new.
//
// It takes about a microsecond for a new key, and one read from the disk or its cache for one that was marked a while ago.
func (s *Store) Claim(k Key, fingerprint uint64, waiter Tag) (Claim, Verdict, error) {
	return s.claim(k, fingerprint, waiter, false)
}

// ClaimAnew is Claim for a record that shall run though its key was marked, as after an operator's rewind: it does not look
// at the durable marks, and its verdict is Mine or Busy. A Mark replaces the mark that was there.
func (s *Store) ClaimAnew(k Key, fingerprint uint64, waiter Tag) (Claim, Verdict, error) {
	return s.claim(k, fingerprint, waiter, true)
}

func (s *Store) claim(k Key, fingerprint uint64, waiter Tag, anew bool) (Claim, Verdict, error) {
	if err := s.ended(); err != nil {
		return Claim{}, 0, err
	}
	c := Claim{key: k, fingerprint: fingerprint & fingerprintMask}
	sh := &s.shards[k[0]]
	sh.mu.Lock()
	if r := sh.held.find(&k); r != nil {
		if r.waiters == nil {
			r.waiters = new([]Tag)
		}
		*r.waiters = append(*r.waiters, waiter)
		sh.busy++
		sh.mu.Unlock()
		return Claim{}, Busy, nil
	}
	sh.tokens++
	c.token = sh.tokens
	sh.held.add(&k, c.token)
	sh.mu.Unlock()

	// From here on nobody else can mark the key, and all its marks before are in what the lookup sees, because a
	// reservation ends only after that.
	if anew {
		return c, Mine, nil
	}
	verdict := Mine
	b, e, found, err := s.lookup(&k)
	if err != nil {
		s.let(c, nil)
		return Claim{}, 0, err
	}
	if found && e.at() != forgotten && !b.expired(e.at(), s.clock.read()) {
		if e.fingerprint() == c.fingerprint {
			s.let(c, func(sh *shard) { sh.seen++ })
			return Claim{}, Seen, nil
		}
		verdict = Differs
	}
	return c, verdict, nil
}

// Release gives a claim back without a mark: the handler failed. The next waiter may run. A claim that is stale, or that
// Mark has been given, is left alone and counted.
func (s *Store) Release(c Claim) {
	if c.token != 0 && !s.let(c, nil) {
		sh := &s.shards[c.key[0]]
		sh.mu.Lock()
		sh.stale++
		sh.mu.Unlock()
	}
}

// let ends the reservation of a claim, if it is that claim's, and tells the waiters.
func (s *Store) let(c Claim, count func(sh *shard)) bool {
	sh := &s.shards[c.key[0]]
	sh.mu.Lock()
	r := sh.held.find(&c.key)
	if r == nil || r.token != c.token || r.marked {
		sh.mu.Unlock()
		return false
	}
	waiters := sh.held.remove(&c.key)
	if count != nil {
		count(sh)
	}
	sh.mu.Unlock()
	if waiters != nil {
		s.o.OnFree(*waiters)
	}
	return true
}

// secure makes a claim that is to be marked impossible to release, and says whether it is still valid.
func (s *Store) secure(c *Claim) bool {
	sh := &s.shards[c.key[0]]
	sh.mu.Lock()
	r := sh.held.find(&c.key)
	ok := r != nil && r.token == c.token && !r.marked
	if ok {
		r.marked = true
	} else {
		sh.stale++
	}
	sh.mu.Unlock()
	return ok
}

// done ends the reservation of a claim whose mark is durable and can be found, and collects the waiters.
func (s *Store) done(c *Claim, waiters []Tag) []Tag {
	sh := &s.shards[c.key[0]]
	sh.mu.Lock()
	more := sh.held.remove(&c.key)
	sh.mu.Unlock()
	if more != nil {
		waiters = append(waiters, *more...)
	}
	return waiters
}
