package dedupe

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Completion is a record whose handler succeeded. Without a claim, as for a record that has no business key or was a
// duplicate, it becomes durable with its group's rows and leaves no mark.
type Completion struct {
	Claim Claim
	Tag   Tag
}

// queue is what waits for the committer.
type queue struct {
	wake    chan struct{} // for the committer: look again
	closing atomic.Bool
	pending atomic.Int64 // completions waiting or being written

	mu       sync.Mutex
	items    []Completion
	since    time.Time // when the oldest thing that waits came
	dirty    bool
	ops      []*op
	flushers []chan error
	ended    error         // the committer takes nothing any more
	room     chan struct{} // closed and replaced when there may be room
}

// op is a change that a group carries besides marks.
type op struct {
	apply func(b *pebble.Batch) error
	after func() // when it is durable
	done  chan error
}

func (q *queue) init() {
	q.wake = make(chan struct{}, 1)
	q.room = make(chan struct{})
}

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.closing.Store(true)
	q.dirty = true // the last group is for the clock: what has expired by now stays so, wherever the wall clock is set
	q.mu.Unlock()
	q.poke()
}

// eager is how many completions make a group due at once.
func (s *Store) eager() int { return max(1, min(eager, s.o.MaxGroup, s.o.MaxPending/2)) }

// Mark takes completions: their claims become durable marks a group later, then OnDurable gets their tags, the claims
// end, and who waited for them is freed. It never blocks, and costs one lock whatever their number; the slice is not kept. Room
// is what keeps the number of pending ones bounded.
//
// A stale claim leaves no mark (and is counted), but its tag becomes durable all the same. From here on a claim can't be
// released: it ends when its mark is durable.
func (s *Store) Mark(done []Completion) {
	if len(done) == 0 {
		return
	}
	done = s.secureAll(done) // now, while what the claim touched is still in this core's cache
	q := &s.q
	q.mu.Lock()
	if q.ended != nil || q.closing.Load() {
		err := q.ended
		q.mu.Unlock()
		if err == nil {
			err = ErrClosed
		}
		s.refuse(done, err)
		return
	}
	before := len(q.items)
	if before == 0 && !q.dirty {
		q.since = time.Now()
	}
	q.items = append(q.items, done...)
	n := len(q.items)
	q.mu.Unlock()
	q.pending.Add(int64(len(done)))
	if e := s.eager(); before == 0 || before < e && n >= e {
		q.poke()
	}
}

// secureAll makes claims that are to be marked impossible to release, and returns the completions without those claims that hold
// nothing any more.
func (s *Store) secureAll(done []Completion) []Completion {
	copied := false
	for i := range done {
		if c := &done[i].Claim; c.token == 0 || s.secure(c) {
			continue
		}
		if !copied { // the slice is the caller's
			done, copied = slices.Clone(done), true
		}
		done[i].Claim = Claim{}
	}
	return done
}

// refuse reports completions that never become durable.
func (s *Store) refuse(done []Completion, err error) {
	tags := make([]Tag, 0, len(done))
	var waiters []Tag
	for i := range done {
		tags = append(tags, done[i].Tag)
		if c := &done[i].Claim; c.token != 0 {
			waiters = s.done(c, waiters)
		}
	}
	if len(waiters) > 0 {
		s.o.OnFree(waiters)
	}
	if len(tags) > 0 {
		s.o.OnDurable(tags, err)
	}
}

// Touch says that rows have changed: a group is due within MaxDelay, with or without marks, and Options.Rows is asked for it.
func (s *Store) Touch() {
	q := &s.q
	q.mu.Lock()
	first := !q.dirty && len(q.items) == 0
	if first {
		q.since = time.Now()
	}
	q.dirty = true
	q.mu.Unlock()
	if first {
		q.poke()
	}
}

// Room waits while MaxPending or more completions are pending, and while the store cannot write. Ask before handing out
// work. The errors are ctx's, ErrClosed, and ErrFatal.
func (s *Store) Room(ctx context.Context) error {
	q := &s.q
	for {
		if err := s.ended(); err != nil {
			return err
		}
		if q.pending.Load() < int64(s.o.MaxPending) && s.health.writable() {
			return nil
		}
		q.mu.Lock()
		room := q.room
		q.mu.Unlock()
		// What makes room closes the channel after it did, so what was true before this was the channel is seen here.
		if q.pending.Load() < int64(s.o.MaxPending) && s.health.writable() || s.ended() != nil {
			continue
		}
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// makeRoom lets those who wait in Room look again.
func (q *queue) makeRoom() {
	q.mu.Lock()
	close(q.room)
	q.room = make(chan struct{})
	q.mu.Unlock()
}

// Flush writes everything that was given to Mark and Touch before, without waiting for company, and waits until it is
// durable and reported. The errors are ctx's, ErrClosed, and ErrFatal.
func (s *Store) Flush(ctx context.Context) error {
	return s.enqueue(ctx, nil, nil)
}

// enqueue queues items, an op, and a wait for the group that carries them and all before them.
func (s *Store) enqueue(ctx context.Context, o *op, items []Completion) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	q := &s.q
	q.mu.Lock()
	if q.ended != nil || q.closing.Load() {
		err := q.ended
		q.mu.Unlock()
		if err == nil {
			err = ErrClosed
		}
		return err
	}
	if o != nil {
		o.done = make(chan error, 1)
		q.ops = append(q.ops, o)
	}
	if len(items) > 0 {
		q.items = append(q.items, items...)
		q.pending.Add(int64(len(items)))
	}
	q.dirty = true
	q.flushers = append(q.flushers, done)
	q.mu.Unlock()
	q.poke()
	if err := s.wait(ctx, done); err != nil {
		return err
	}
	if o != nil {
		return <-o.done
	}
	return nil
}

// group is what one batch makes durable.
type group struct {
	items    []Completion
	marks    []Completion // those whose entries are written
	ops      []*op
	flushers []chan error
	work     bool // there is something to write

	tags, waiters []Tag
}

// take moves what waits into a group. It says how long to wait if it is too early for one, with a negative time for as long
// as it takes, and whether the committer may end.
func (s *Store) take(g *group) (wait time.Duration, end bool) {
	q := &s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.items)
	g.work = n > 0 || q.dirty || len(q.ops) > 0 || len(q.flushers) > 0
	if !g.work {
		return -1, q.closing.Load()
	}
	if n < s.eager() && len(q.flushers) == 0 && len(q.ops) == 0 && !q.closing.Load() && s.o.MaxDelay > 0 {
		if left := s.o.MaxDelay - time.Since(q.since); left > 0 {
			return left, false
		}
	}
	if n <= s.o.MaxGroup {
		g.items, q.items = q.items, g.items[:0]
		g.flushers, q.flushers = q.flushers, g.flushers[:0]
		q.dirty = false
	} else {
		g.items = append(g.items[:0], q.items[:s.o.MaxGroup]...)
		g.flushers = g.flushers[:0] // those of the last group; who waits now waits for all that is queued
		q.items = q.items[:copy(q.items, q.items[s.o.MaxGroup:])]
		q.since = time.Now()
	}
	g.ops, q.ops = q.ops, nil
	return 0, false
}
