package enginetest

import (
	"maps"
	"testing"

	"github.com/gaplesshq/gapless/engine"
)

// staticPair starts two static members of a group, with two of four partitions each. The first leads the group.
func staticPair(w *world, l *ledger, set func(*engine.Config)) (a, b *member, ca, cb engine.Config) {
	w.Helper()
	ca = w.config(l.keep(nil))
	set(&ca)
	ca.InstanceID = "a"
	cb = ca
	cb.InstanceID = "b"
	a = w.start(ca)
	a.owns(4)
	b = w.start(cb)
	b.owns(2)
	a.owns(2)
	w.produceAll(10, 5)
	l.reaches(40)
	return a, b, ca, cb
}

// C3: a static member that restarts within its session gets the partitions that it had, and the other member notices nothing:
// classic stays silent, KIP-848 says good-bye with epoch -2 and its instance id, without which the broker would refuse the
// instance until its old session has ended.
func TestStaticMemberRestartsWithoutRebalance(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, set func(*engine.Config)) {
		w := newWorld(t, 4)
		l := w.ledger()
		a, b, ca, cb := staticPair(w, l, set)
		generation, rebalances := a.e.Status().Generation, a.count(engine.EventRebalanced)
		b = restartStatic(w, b, cb, a, 10)
		l.reaches(80)
		if a.e.Status().Generation != generation || a.count(engine.EventRebalanced) != rebalances {
			t.Errorf("the restart was a rebalance for the other member: %v", a.told())
		}
		// A classic member that led the group makes it rebalance when it is back, because the client (franz-go 1.22)
		// takes the assignment that it is handed again for a stale one. No partition moves in that.
		a = restartStatic(w, a, ca, b, 20)
		l.reaches(120)
		w.noLagLeft()
		a.stop()
		b.stop()
		l.eachOnce(30)
	})
}

// restartStatic ends a member, produces while it is away, and starts it again: same partitions, from where they were left.
func restartStatic(w *world, m *member, c engine.Config, other *member, at int64) *member {
	w.Helper()
	had, others := m.owned(), other.owned()
	m.stop()
	w.produceAll(10, 5) // nobody handles them yet where m had the partition
	m = w.start(c)
	m.owns(2)
	for p, began := range m.owned() {
		if _, ok := had[p]; !ok || began != at {
			w.Errorf("%s got partition %d at %d; it had %v, up to %d", c.InstanceID, p, began, had, at)
		}
	}
	if !maps.Equal(other.owned(), others) {
		w.Errorf("the other member had %v, and has %v", others, other.owned())
	}
	m.quiet(engine.EventSessionEnded, engine.EventLeaveFailed)
	return m
}

// C3, C8: with LeaveOnStop a static member's partitions move at once, long before its session would have ended.
func TestStaticMemberLeavesWhenAsked(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, set func(*engine.Config)) {
		w := newWorld(t, 4)
		l := w.ledger()
		a, b, _, _ := staticPair(w, l, func(c *engine.Config) { set(c); c.LeaveOnStop = true })
		a.stop()
		b.owns(4)
		w.produceAll(10, 5)
		l.reaches(80)
		w.noLagLeft()
		b.stop()
		l.eachOnce(20)
		a.quiet(engine.EventLeaveFailed)
	})
}

// C3: two live members with one instance id are a mistake that Run names. Under the classic protocol the later one wins.
func TestInstanceIDInUseIsNamed(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, set func(*engine.Config)) {
		w := newWorld(t, 1)
		c := w.config(w.ledger().keep(nil))
		set(&c)
		c.InstanceID = "twin"
		first := w.start(c)
		first.owns(1)
		second := w.launch(c)
		loser := first
		if c.Protocol == engine.ProtocolConsumer {
			loser = second
		}
		saysWhatToDo(w, loser, `instance id "twin" is used by another live member`, "give every member its own InstanceID")
	})
}
