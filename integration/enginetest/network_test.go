package enginetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// outages are the ways in which a member can be cut off from its group.
var outages = []struct {
	name  string
	begin func(*kafkatest.Network) error
	shows bool // the client sees it, and gives the partitions up before the session has ended
}{
	{"refused", func(n *kafkatest.Network) error { return n.Cut() }, true},
	{"silent", func(n *kafkatest.Network) error { return n.Blackhole() }, false},
	{"without answers", func(n *kafkatest.Network) error { return n.HoldAnswers() }, false},
}

// C1, C3, C4: one member is cut off for longer than its session, and another takes over. The first suspends by its own clock: its
// handler's context ends and nothing starts. When the network is back, what it had sent arrives late and changes nothing: the
// offsets that the other has committed stay, the first has lost its partitions, and joins again.
func TestMemberCutOffFromItsGroup(t *testing.T) {
	ownBroker(t, "the way to it is cut")
	cluster := kafkatest.Start(t, kafkatest.Networks(2*len(outages)))
	next := 0
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			inBothProtocols(t, func(t *testing.T, set func(*engine.Config)) {
				next++
				network := cluster.Network(next)
				t.Parallel() // it waits for sessions to end
				memberCutOff(worldOn(t, cluster, 2), network, o.begin, o.shows, set)
			})
		})
	}
}

func memberCutOff(w *world, network *kafkatest.Network, begin func(*kafkatest.Network) error, shows bool, set func(*engine.Config)) {
	const n, stop = 60, 20
	w.setGroup("consumer.session.timeout.ms", "1500")
	w.produceAll(n, n)
	l := w.ledger()
	started := w.newGate()
	ended := make(chan string, 2)
	c := w.config(l.keep(func(ctx context.Context, r *engine.Record) error {
		if r.Offset != stop {
			return nil
		}
		started.arrived <- place{r.Partition, r.Offset}
		select {
		case <-ctx.Done():
			ended <- context.Cause(ctx).Error()
			return ctx.Err()
		case <-started.open:
			return nil
		}
	}))
	c.SessionTimeout, c.HeartbeatInterval = 1500*time.Millisecond, 300*time.Millisecond
	set(&c)
	apart := c
	apart.Brokers = network.Addresses()
	a := w.start(apart)
	started.reached(w, 2)
	l.reaches(2 * (n - 1))
	for p := range w.parts {
		w.eventually("committed up to the record that is not settled", func() bool { return w.committed(p) == stop })
	}

	if err := begin(network); err != nil {
		w.Fatal(err)
	}
	a.hears(engine.EventSuspended)
	for range 2 {
		select {
		case why := <-ended:
			if !shows && !strings.Contains(why, "has not answered for a session timeout") {
				w.Errorf("a handler's context ended only because: %s", why)
			}
		case <-time.After(patience):
			w.Fatal("a handler's context did not end")
		}
	}
	started.lift()
	b := w.start(c)
	b.owns(2)
	w.produceAll(n, n) // for the one who is there
	l.reaches(4 * n)
	w.noLagLeft()
	if s := a.e.Status(); !s.Suspended || s.Healthy {
		w.Errorf("cut off: suspended %v, healthy %v", s.Suspended, s.Healthy)
	}

	if err := network.Heal(); err != nil {
		w.Fatal(err)
	}
	a.hears(engine.EventLost)
	a.owns(1)
	b.owns(1)
	for p := range w.parts {
		if at := w.committed(p); at != 2*n {
			w.Errorf("partition %d: the commit went back to %d", p, at)
		}
	}
	w.produceAll(n, n)
	l.reaches(6 * n)
	w.noLagLeft()
	a.becomesHealthy()
	a.stop()
	b.stop()
	w.Logf("handled %d twice", l.twice(stop))
}
