package demo

import (
	"context"
	"fmt"
	"time"
)

// When B leaves and comes back, as shares of the records.
const (
	leaveAt  = 0.40
	returnAt = 0.65
)

// stage is what the acts of the play have in common.
type stage struct {
	*demo
	feed  *feed
	n     int // partitions
	quiet bool
	a, b  *member
}

// play is the story: two members share the work, one leaves and comes back, and all is handled in the end.
func (d *demo) play(f *feed) error {
	s := &stage{demo: d, feed: f, n: d.o.partitions, quiet: leave(d.o.leave) == leaveQuiet}
	if err := s.meet(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(d.ctx)
	fed := make(chan struct{})
	go func() { defer close(fed); f.run(ctx) }()
	defer func() { stop(); <-fed }()
	for _, act := range []func() error{s.part, s.reunite, s.finish} {
		if err := act(); err != nil {
			return err
		}
	}
	return nil
}

// meet starts both members, and decides how far the feed may go before B has left.
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
	for p := range s.n {
		s.feed.allow(p, s.until(returnAt))
	}
	for _, p := range s.b.partitions() {
		s.feed.allow(int(p.Partition), s.until(leaveAt))
	}
	return nil
}

// part lets B leave, in the middle of the others' work, and A take over.
func (s *stage) part() error {
	had := len(s.b.partitions())
	if err := s.await("B to finish what it has", func() bool { return s.due(leaveAt, s.b, had) }); err != nil {
		return err
	}
	s.tell("B leaves; its %s to A", count(had, "partition goes", "partitions go"))
	if err := s.leave(s.b); err != nil {
		return err
	}
	for p := range s.n {
		s.feed.allow(p, s.until(returnAt))
	}
	if err := s.await("A to take over", func() bool { return len(s.a.partitions()) == s.n }); err != nil {
		return err
	}
	s.tell("A handles all %s", count(s.n, "partition"))
	return nil
}

// reunite brings B back. Which partitions it will get is the group's business, so a quiet return needs all of them quiet.
func (s *stage) reunite() (err error) {
	if err := s.await("A to be ready for B's return", func() bool { return s.due(returnAt, s.a, s.n) }); err != nil {
		return err
	}
	s.tell("B comes back")
	if s.b, err = s.join(s.ctx, "B"); err != nil {
		return err
	}
	if err := s.await("A and B to share the partitions again", s.shared); err != nil {
		return err
	}
	s.tell("A and B share the %s again", count(s.n, "partition"))
	for p := range s.n {
		s.feed.allow(p, 1)
	}
	return nil
}

// finish waits until all is produced, handled and committed.
func (s *stage) finish() error {
	if err := s.await("all to be committed", s.caughtUp); err != nil {
		return err
	}
	s.tell("all is handled and committed; now the records are counted")
	return nil
}

// until is how far the feed may go before the next act: all the way where nobody waits for a quiet moment.
func (s *stage) until(share float64) float64 {
	if s.quiet {
		return share
	}
	return 1
}

// due says whether it is time for a member to leave, or to make room for another: when it has finished all that its partitions
// were given, or, in the thick of it, when so much has been handled.
func (s *stage) due(share float64, m *member, partitions int) bool {
	if !s.quiet {
		done := make([]int64, s.n)
		s.journal.progress(done)
		sum := int64(0)
		for _, n := range done {
			sum += n
		}
		return sum >= int64(share*float64(len(s.plan.records)))
	}
	active := m.partitions()
	for _, p := range active {
		end, all := s.feed.upTo(int(p.Partition))
		if !all || p.Frontier != end || p.InFlight+p.Parked+p.Waiting > 0 {
			return false
		}
	}
	return len(active) == partitions
}

// shared says whether all partitions are at work, evenly spread over both members.
func (s *stage) shared() bool {
	a, b := len(s.a.partitions()), len(s.b.partitions())
	return a+b == s.n && max(a-b, b-a) <= 1
}

// caughtUp says whether all is produced and committed.
func (s *stage) caughtUp() bool {
	select {
	case <-s.feed.done:
	default:
		return false
	}
	committed := 0
	for _, m := range s.present() {
		for _, p := range m.partitions() {
			if end, _ := s.feed.upTo(int(p.Partition)); p.Committed >= end {
				committed++
			}
		}
	}
	return committed == s.n
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
	for !cond() {
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
	return nil
}

// signs of life: what is produced, handled and committed.
func (d *demo) signs() (s [3]int64) {
	if f := d.source.Load(); f != nil {
		s[0] = f.produced()
	}
	s[1] = d.journal.now()
	for _, m := range d.present() {
		for _, p := range m.partitions() {
			s[2] += p.Committed + 1
		}
	}
	return s
}
