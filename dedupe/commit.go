package dedupe

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// maxIdle is how often a store with nothing to write looks for buckets that have ended, and whether a disk that was full
// has space again.
const maxIdle = time.Second

// commit is the committer: it makes one batch after the other of what waits, each synced before anything of it counts.
func (s *Store) commit() {
	defer close(s.committed)
	s.health.own(atCommit)
	var g group
	timer := time.NewTimer(maxIdle)
	defer timer.Stop()
	for {
		wait, end := s.take(&g)
		switch {
		case end:
			s.finish(ErrClosed)
			return
		case !g.work && s.idleWork():
			g.items, g.flushers, g.ops = g.items[:0], g.flushers[:0], nil
			fallthrough
		case wait == 0:
			if err := s.commitGroup(&g); err != nil {
				s.abandon(&g, err)
				s.finish(err)
				return
			}
		default:
			if wait < 0 {
				wait = maxIdle
			}
			timer.Reset(wait)
			select {
			case <-s.q.wake:
			case <-timer.C:
			}
		}
		if err := s.health.fatal.Load(); err != nil {
			s.finish(*err)
			return
		}
	}
}

// idleWork says whether an empty group is worth writing: a bucket has ended, the disk was full, or the store has to be reopened.
func (s *Store) idleWork() bool {
	if s.logs.failed.Load() {
		return true
	}
	if s.health.background() {
		s.dbMu.RLock()
		if s.db != nil {
			_, _ = s.db.AsyncFlush() // what comes of it, the events tell
		}
		s.dbMu.RUnlock()
		return true
	}
	_, over := split(*s.buckets.Load(), s.clock.read())
	return len(over) > 0
}

// commitGroup makes a group durable, however often the store has to be reopened for it. An error is final.
func (s *Store) commitGroup(g *group) error {
	g.marks = g.marks[:0]
	for i := range g.items {
		if g.items[i].Claim.token != 0 {
			g.marks = append(g.marks, g.items[i])
		}
	}
	for tries := 0; ; tries++ {
		if tries > 1 { // the store opens and still can't write
			s.pause(min(firstPause<<min(tries, 10), s.o.pause))
		}
		began := time.Now()
		p, err := s.write(g)
		if err == nil {
			s.publish(g, p)
			s.report(g)
			took := int64(time.Since(began))
			s.slowest.Store(max(s.slowest.Load(), took))
			s.writing.Add(took)
			return nil
		}
		if err := s.health.fatal.Load(); err != nil {
			return *err
		}
		if err := s.repair(err); err != nil {
			return err
		}
	}
}

// plan is what a batch changes about the buckets.
type plan struct {
	now    int64
	live   []*bucket // newest first, with the new one, without those that have ended
	over   []*bucket
	fresh  *bucket // made by this batch
	rolled *bucket // the one before it
	part   *part   // where the marks go
	isNew  bool    // the part is not among its bucket's yet
	st     state
}

func (s *Store) plan(g *group) *plan {
	p := &plan{now: s.clock.read()}
	p.live, p.over = split(*s.buckets.Load(), p.now)
	if len(g.marks) > 0 {
		if len(p.live) == 0 || !p.live[0].takes(p.now, s.o.Retention) {
			expected := 0
			if len(p.live) > 0 {
				p.rolled = p.live[0]
				expected = int(p.rolled.keys.Load()) + int(p.rolled.keys.Load())/32
			}
			p.fresh = newBucket(newSpan(s.nextSerial, p.now, s.o.Retention), expected)
			p.live = append([]*bucket{p.fresh}, p.live...)
		}
		if p.part = p.live[0].open(); p.part == nil || p.part.mem.len() >= s.o.partSize {
			p.part, p.isNew = &part{no: p.live[0].nextPart(), mem: newArena(s.o.partSize + s.o.MaxGroup + 1)}, true
		}
	}
	p.st = state{seq: s.seq.Load() + 1, time: p.now, stream: s.clock.stream.Load()}
	return p
}

// write makes the batch of a group and commits it. What Pebble does about a log that it cannot write is panic.
func (s *Store) write(g *group) (p *plan, err error) {
	if err := s.sealer.room(s, len(g.marks)); err != nil {
		return nil, err
	}
	err = guard(func() error {
		s.dbMu.RLock()
		defer s.dbMu.RUnlock()
		if s.db == nil {
			return ErrUnavailable
		}
		p = s.plan(g)
		b := s.db.NewBatchWithSize(rowSize(len(g.marks)) + 1024)
		if err := s.fill(b, g, p); err != nil {
			return errors.Join(err, b.Close())
		}
		s.o.hook("commit")
		if err := s.sync(b); err != nil {
			return err // the batch is Pebble's
		}
		// Should the logger have been told of a fatal error that was not passed on, nothing of this counts.
		if err := s.health.fatal.Load(); err != nil {
			return *err
		}
		return b.Close()
	})
	return p, err
}

func (s *Store) sync(b *pebble.Batch) error {
	s.logMu.Lock()
	defer s.logMu.Unlock() // also where Pebble panics
	return b.Commit(pebble.Sync)
}

func (s *Store) fill(b *pebble.Batch, g *group, p *plan) error {
	if len(g.marks) > 0 {
		c := p.live[0]
		key := arrivalKey(c.serial, p.part.no, p.st.seq)
		d := b.SetDeferred(len(key), rowSize(len(g.marks)))
		copy(d.Key, key)
		at := c.encodeTime(p.now)
		for i := range g.marks {
			e, m := entryAt(d.Value[rowHeader:], i), &g.marks[i].Claim
			if m.token == forgetToken {
				e.set(&m.key, forgotten, 0)
			} else {
				e.set(&m.key, at, m.fingerprint)
			}
		}
		finishRow(key, d.Value, 0)
		if err := d.Finish(); err != nil {
			return err
		}
	}
	for _, o := range g.ops {
		if err := o.apply(b); err != nil {
			return err
		}
	}
	var err error
	s.o.Rows(func(key, value []byte) {
		if value == nil {
			err = errors.Join(err, b.Delete(callerKey(key), nil))
		} else {
			err = errors.Join(err, b.Set(callerKey(key), value, nil))
		}
	})
	if err != nil {
		return err
	}
	if p.fresh != nil || len(p.over) > 0 {
		next := s.nextSerial
		if p.fresh != nil {
			next++
		}
		if err := b.Set([]byte(bucketsKey), encodeSpans(next, p.live), nil); err != nil {
			return err
		}
	}
	return b.Set([]byte(stateKey), p.st.encode(), nil)
}

// publish lets lookups find what is durable now.
func (s *Store) publish(g *group, p *plan) {
	s.seq.Store(p.st.seq)
	s.groups.Add(1)
	if p.fresh != nil {
		s.nextSerial++
	}
	if p.fresh != nil || len(p.over) > 0 {
		s.buckets.Store(&p.live)
	}
	for _, b := range p.over {
		b.dropped.Store(true)
		s.sealer.add(job{drop: b})
	}
	if p.rolled != nil {
		if old := p.rolled.open(); old != nil {
			s.sealer.add(job{bucket: p.rolled, part: old})
		}
	}
	if len(g.marks) > 0 {
		b := p.live[0]
		if p.isNew {
			b.push(p.part)
		}
		var e entry
		at := b.encodeTime(p.now)
		for i := range g.marks {
			c := &g.marks[i].Claim
			if c.token == forgetToken {
				e.set(&c.key, forgotten, 0)
				b.covers.Store(true)
			} else {
				e.set(&c.key, at, c.fingerprint)
			}
			b.filter.add(&c.key)
			p.part.mem.add(&e)
		}
		b.keys.Add(int64(len(g.marks)))
		s.marks.Add(uint64(len(g.marks)))
		if p.part.mem.len() >= s.o.partSize {
			s.sealer.add(job{bucket: b, part: p.part})
		}
	}
	s.iters.drain(false)
}

// report ends the claims of a group that is durable, and tells everybody.
func (s *Store) report(g *group) {
	g.waiters = g.waiters[:0]
	for i := range g.marks {
		if c := &g.marks[i].Claim; c.token != forgetToken {
			g.waiters = s.done(c, g.waiters)
		}
	}
	s.health.set(causeCommit, nil)
	s.q.pending.Add(-int64(len(g.items)))
	s.q.makeRoom()
	s.tell(g, nil)
	if len(g.waiters) > 0 {
		s.o.OnFree(g.waiters)
	}
	for _, o := range g.ops {
		if o.after != nil {
			o.after()
		}
		o.done <- nil
	}
	for _, c := range g.flushers {
		c <- nil
	}
	clear(g.flushers)
}

func (s *Store) tell(g *group, err error) {
	g.tags = g.tags[:0]
	for i := range g.items {
		if g.items[i].Claim.token != forgetToken {
			g.tags = append(g.tags, g.items[i].Tag)
		}
	}
	if len(g.tags) > 0 {
		s.o.OnDurable(g.tags, err)
	}
}

// abandon reports a group that can never be made durable. Its claims stay held: whether its marks are in the store, nobody
// knows, and this store answers no claim any more.
func (s *Store) abandon(g *group, err error) {
	s.q.pending.Add(-int64(len(g.items)))
	s.tell(g, err)
	for _, o := range g.ops {
		o.done <- err
	}
	for _, c := range g.flushers {
		c <- err
	}
}

// finish ends the queue: what is still in it is not written.
func (s *Store) finish(err error) {
	q := &s.q
	q.mu.Lock()
	q.ended = err
	g := group{items: q.items, ops: q.ops, flushers: q.flushers}
	q.items, q.ops, q.flushers = nil, nil, nil
	q.mu.Unlock()
	s.abandon(&g, err)
	q.makeRoom()
}

func callerKey(key []byte) []byte { return append([]byte{callerPrefix}, key...) }

// guard runs f and makes a panic an error: it is how Pebble reports a log that it cannot write.
func guard(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("dedupe: %w", r)
		default:
			err = fmt.Errorf("dedupe: %v", r)
		}
	}()
	return f()
}
