package demo

import (
	"context"
	"fmt"
	"time"
)

// When things happen to B, as shares of the orders.
const (
	leaveAt   = 0.18
	returnAt  = 0.30
	killAt    = 0.40
	killLate  = 0.50 // where nothing holds a frontier
	againAt   = 0.60
	againLate = 0.85
)

// How long a record must have held a frontier of B when B is killed. In the second case it is the commits that must tell what was
// finished behind it, so it is well above what may pass until they do: see settleWithin.
const (
	heldFor      = time.Second
	heldForAgain = 3 * time.Second
)

// patience is how long B stays away at most, where A finds nothing left to do in its partitions.
const patience = 5 * time.Second

// settledIn is how long B is left alone after its return, so that there is something to interrupt.
const settledIn = 1500 * time.Millisecond

// stage is what the acts of the play have in common.
type stage struct {
	*demo
	feed *feed
	n    int // partitions
	a, b *member
	back time.Time // when B came back last
}

// play is the story: two members share the work. One of them leaves and comes back; it is killed and comes back with its store; it
// is killed again, and this time the other one takes over. All is handled in the end.
func (d *demo) play(f *feed) error {
	s := &stage{demo: d, feed: f, n: d.o.partitions}
	if err := s.meet(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(d.ctx)
	fed := make(chan struct{})
	go func() { defer close(fed); f.run(ctx) }()
	defer func() { stop(); <-fed }()
	acts := []func() error{s.part, s.reunite}
	if !d.o.noKill {
		acts = append(acts, s.crash, s.move)
	}
	for _, act := range append(acts, s.finish) {
		if err := act(); err != nil {
			return err
		}
	}
	return nil
}

// meet starts both members.
func (s *stage) meet() (err error) {
	if s.a, err = s.join(s.ctx, "A"); err != nil {
		return err
	}
	if s.b, err = s.join(s.ctx, "B"); err != nil {
		return err
	}
	if err := s.await("A and B to share the partitions", s.shared); err != nil {
		return err
	}
	s.tell("A and B share the %s", count(s.n, "partition"))
	return nil
}

// part lets B leave, in the thick of it, and A take over.
func (s *stage) part() error {
	if err := s.await("the first records to be handled", func() bool { return s.due(leaveAt) }); err != nil {
		return err
	}
	s.tell("B leaves cleanly; its %s to A", count(len(s.b.partitions()), "partition goes", "partitions go"))
	if err := s.leave(s.b); err != nil {
		return err
	}
	if err := s.await("A to take over", s.alone); err != nil {
		return err
	}
	s.tell("A handles all %s", count(s.n, "partition"))
	return nil
}

// reunite brings B back.
func (s *stage) reunite() (err error) {
	if err := s.await("B's return", func() bool { return s.due(returnAt) }); err != nil {
		return err
	}
	s.tell("B comes back")
	return s.comeBack("A and B share the partitions again")
}

func (s *stage) comeBack(then string) (err error) {
	if s.b, err = s.join(s.ctx, "B"); err != nil {
		return err
	}
	if err := s.await("A and B to share the partitions again", s.shared); err != nil {
		return err
	}
	s.tell("%s", then)
	s.back = time.Now()
	return nil
}

// ripe says whether it is the moment to kill B: while a record holds its frontier, or, where none does, when so much is handled.
func (s *stage) ripe(share float64, heldFor time.Duration, late float64) bool {
	if held := s.journal.holding(s.b.life); held > 0 {
		return s.due(share) && held >= heldFor
	}
	return s.due(late) && time.Since(s.back) > settledIn
}

// crash kills B where it is. It comes back at once, to its partitions and its store.
func (s *stage) crash() error {
	if err := s.await("the moment to kill B", func() bool { return s.ripe(killAt, heldFor, killLate) }); err != nil {
		return err
	}
	if _, err := s.strike(s.b); err != nil {
		return err
	}
	s.tell("B is killed: kill -9 in the middle of its work")
	return s.comeBack("B is back, with its store, and goes on where it was")
}

// move kills B and leaves it dead until the group has noticed, so that A gets its partitions: A has another store, so all that it
// knows is what B has committed. The last kill must be history by then: a partition whose owners die twice at the same record is
// suspected, and handled one record at a time.
func (s *stage) move() error {
	last := s.kills[len(s.kills)-1].committed
	moved := func() bool {
		w := s.witness.Load()
		for _, p := range s.b.partitions() {
			if at := w.upTo(p); at <= last[p].offset && at < s.feed.ends[p].Load() {
				return false
			}
		}
		return true
	}
	if err := s.await("the moment to kill B again", func() bool {
		return moved() && s.ripe(againAt, heldForAgain, againLate)
	}); err != nil {
		return err
	}
	had := s.b.partitions()
	k, err := s.strike(s.b)
	if err != nil {
		return err
	}
	s.tell("B is killed again, and stays away: in %v the group gives it up", s.o.session)
	if err := s.await("A to take over", s.alone); err != nil {
		return err
	}
	s.tell("A has B's %s, and what B had committed", count(len(had), "partition"))
	since := time.Now()
	if err := s.await("B's return", func() bool {
		if waited := time.Since(since); waited < time.Second || waited > patience {
			return waited > patience
		}
		return s.journal.began(s.a.life, k.clock, had)
	}); err != nil {
		return err
	}
	s.tell("B comes back, with a store that is behind")
	return s.comeBack("A and B share the partitions again")
}

// finish waits until all is produced, handled and committed.
func (s *stage) finish() error {
	if err := s.await("all to be committed", s.caughtUp); err != nil {
		return err
	}
	s.tell("all is handled and committed; now the records are counted")
	return nil
}

// due says whether so much has been handled.
func (s *stage) due(share float64) bool {
	done := make([]int64, s.n)
	s.journal.progress(done)
	sum := int64(0)
	for _, n := range done {
		sum += n
	}
	return sum >= int64(share*float64(len(s.plan.records)))
}

// shared says whether all partitions are at work, evenly spread over both members.
func (s *stage) shared() bool {
	a, b := len(s.a.partitions()), len(s.b.partitions())
	return a+b == s.n && max(a-b, b-a) <= 1
}

// alone says whether A handles all partitions.
func (s *stage) alone() bool { return len(s.a.partitions()) == s.n }

// caughtUp says whether all is produced and committed.
func (s *stage) caughtUp() bool {
	select {
	case <-s.feed.done:
	default:
		return false
	}
	w := s.witness.Load()
	for p := range s.n {
		if w.upTo(int32(p)) < s.feed.ends[p].Load() {
			return false
		}
	}
	return true
}

// stallError ends a run in which nothing happens any more. There is a verdict all the same, and it is bad.
type stallError struct {
	what string
	idle time.Duration
}

func (e *stallError) Error() string {
	return fmt.Sprintf("nothing happened for %v, while waiting for %s", e.idle, e.what)
}

// await looks every few milliseconds whether cond holds, as long as there are signs of life.
func (d *demo) await(what string, cond func() bool) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	var last [3]int64
	moved := time.Now()
	for {
		if _, err := d.journal.catchUp(); err != nil {
			return err
		}
		if cond() {
			return nil
		}
		select {
		case <-d.ctx.Done():
			return context.Cause(d.ctx)
		case <-tick.C:
		}
		if now := d.signs(); now != last {
			last, moved = now, time.Now()
		} else if idle := time.Since(moved); idle > d.o.stallAfter {
			return &stallError{what, idle.Round(time.Second)}
		}
	}
}

// signs of life: what is produced, handled and committed.
func (d *demo) signs() (s [3]int64) {
	if f := d.source.Load(); f != nil {
		s[0] = f.produced()
	}
	s[1] = d.journal.now()
	if w := d.witness.Load(); w != nil {
		for p := range d.o.partitions {
			s[2] += w.upTo(int32(p))
		}
	}
	return s
}
