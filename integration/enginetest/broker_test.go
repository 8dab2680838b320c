package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// C1, C4, C8: the broker is killed in the middle of the work and comes back. Handlers go on meanwhile, nothing is lost, and
// the work goes on without a restart of the member.
func TestBrokerKilledAndRestarted(t *testing.T) {
	ownBroker(t, "it is killed")
	inBothProtocols(t, func(t *testing.T, set func(*engine.Config)) {
		w := worldOn(t, brokerToKill(t), 3)
		const n = 200
		w.produceAll(n, 10)
		l := w.ledger()
		g := w.newGate()
		c := w.config(l.inOrder(byKey, func(_ context.Context, r *engine.Record) error {
			if r.Offset == n/2 {
				g.wait(r)
			}
			return nil
		}))
		set(&c)
		m := w.start(c)
		g.reached(w, 3)
		for p := range w.parts {
			w.eventually("committed up to the gate", func() bool { return w.committed(p) == n/2 })
		}
		if err := w.cluster.Kill(1); err != nil {
			t.Fatal(err)
		}
		g.lift() // what was fetched is handled without a broker
		ctx, cancel := patient()
		defer cancel()
		if err := w.cluster.Restart(ctx, 1); err != nil {
			t.Fatal(err)
		}
		l.reaches(n * 3)
		w.noLagLeft()
		w.produceAll(n, 10)
		l.reaches(2 * n * 3)
		w.noLagLeft()
		m.becomesHealthy()
		m.stop()
		t.Logf("%d of %d records were handled twice", l.twice(n/2), 2*n*3)
	})
}

// C3: the coordinator falls silent for longer than the session. By its own clock the engine suspends: the running handler's
// context ends, nothing starts, nothing is committed. When the broker is back, it goes on, or has lost the partition and gets
// it anew; in no case is an offset committed over the record that was never settled.
func TestSilentCoordinatorSuspends(t *testing.T) {
	ownBroker(t, "it is frozen")
	inBothProtocols(t, func(t *testing.T, set func(*engine.Config)) {
		const session = 1500 * time.Millisecond
		w := worldOn(t, kafkatest.Start(t), 1)
		w.setGroup("consumer.session.timeout.ms", "1500")
		const n, stop = 60, 20
		w.produceAll(n, n)
		l := w.ledger()
		ended := make(chan error, 1)
		again := w.newGate()
		c := w.config(l.keep(func(ctx context.Context, r *engine.Record) error {
			if r.Offset != stop {
				return nil
			}
			select {
			case <-ctx.Done(): // the first time: until the engine takes the partition for lost
				select {
				case ended <- context.Cause(ctx):
				default:
				}
				return ctx.Err()
			case <-again.open:
				return nil
			}
		}))
		c.SessionTimeout, c.HeartbeatInterval = session, session/5
		set(&c)
		m := w.start(c)
		l.reaches(n - 1)
		w.eventually("committed up to the record that is not settled", func() bool { return w.committed(0) == stop })

		if err := w.cluster.Pause(1); err != nil {
			t.Fatal(err)
		}
		frozen := time.Now()
		m.hears(engine.EventSuspended)
		// Only while a JoinGroup is out does the group keep a silent member longer, for up to RebalanceTimeout.
		if took := time.Since(frozen); took > session+c.RebalanceTimeout/2 {
			t.Errorf("suspended after %v; the session is %v", took, session)
		}
		select {
		case cause := <-ended:
			if cause == nil || errors.Is(cause, context.Canceled) {
				t.Errorf("the handler's context ended for no stated reason: %v", cause)
			}
		case <-time.After(patience):
			t.Fatal("the handler's context did not end")
		}
		s := m.e.Status()
		if !s.Suspended || s.Healthy || l.has(0, stop) {
			t.Errorf("suspended %v, healthy %v, settled %v", s.Suspended, s.Healthy, l.has(0, stop))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if err := m.e.Commit(ctx); err == nil {
			t.Error("a commit passed while suspended")
		}
		cancel()

		if err := w.cluster.Continue(1); err != nil {
			t.Fatal(err)
		}
		m.await("resumed or lost", func(ev engine.Event) bool { return ev.Name == engine.EventResumed || ev.Name == engine.EventLost })
		for _, ev := range m.all() {
			if ev.Name == engine.EventResumed && ev.Count > 0 && m.count(engine.EventLost) > 0 {
				t.Errorf("resumed what was lost: %v", m.told())
			}
		}
		if at := w.committed(0); at != stop {
			t.Errorf("committed %d over offset %d, which was never settled", at, stop)
		}
		again.lift()
		w.produce(0, keyed(10, 10)...)
		l.reaches(n + 10)
		w.noLagLeft()
		m.becomesHealthy()
		m.stop()
		t.Logf("resumed %d, lost %d, handled %d twice", m.count(engine.EventResumed), m.count(engine.EventLost), l.twice(stop))
	})
}
