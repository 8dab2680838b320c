package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// C8: a revoke waits for the handlers that run and for a commit, and for nothing else. What it takes beyond the slowest
// handler is measured and logged: the machine is shared, so the number is no condition of the test.
func TestRevokeTakesNoLongerThanItsHandlers(t *testing.T) {
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		w := newWorld(t, 4)
		l := w.ledger()
		// The last record of every partition stands at a gate: the slowest handler returns when that is lifted.
		const n = 5000
		w.produceAll(n, 500)
		g := w.newGate()
		c := w.config(l.inOrder(byKey, func(_ context.Context, r *engine.Record) error {
			if r.Offset == n-1 {
				g.wait(r)
			}
			return nil
		}))
		set(&c)
		a := w.start(c)
		g.reached(w, 4)
		l.reaches(4 * (n - 1))
		b := w.start(c)
		w.eventually("a partition drains", func() bool {
			for _, s := range a.e.Status().Partitions {
				if s.Phase == "draining" {
					return true
				}
			}
			return false
		})
		lifted := time.Now()
		g.lift()
		var last time.Time
		a.when("all that drained was handed over", func(evs []engine.Event) bool {
			n := 0
			for i, ev := range evs {
				if ev.Name == engine.EventRevoked {
					last = a.times[i]
					n++
				}
			}
			return n > 0 && n == revokedOf4(c)
		})
		t.Logf("the revoke took %v beyond its slowest handler", last.Sub(lifted).Round(100*time.Microsecond))
		a.owns(2)
		b.owns(2)
		l.reaches(4 * n)
		w.noLagLeft()
		a.stop()
		b.stop()
		l.eachOnce(n)
		l.orderly()
		a.quiet(engine.EventLost, engine.EventCommitFailed)
	})
}

// revokedOf4 is how many of four partitions are revoked when a second member joins: range takes all back to share them out anew.
func revokedOf4(c engine.Config) int {
	if c.Balancer == engine.BalancerRange {
		return 4
	}
	return 2
}
