package enginetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/gaplesshq/gapless/engine"
)

// C1, C2, C6: whatever the order, each record is handled once, and the group's offsets end behind the last. What an order
// allows is shown by the first record of each partition: it waits until every other one that need not wait for it was handled.
func TestUnorderedHandlesEachOnce(t *testing.T) {
	w := newWorld(t, 3)
	l := w.ledger()
	testOrder(w, engine.OrderUnordered, l, l.keep, 199)
}

func TestKeyOrderHandlesEachOnceAndKeepsKeys(t *testing.T) {
	w := newWorld(t, 3)
	l := w.ledger()
	keep := func(h engine.HandlerFunc) engine.HandlerFunc { return l.inOrder(byKey, h) }
	testOrder(w, engine.OrderKey, l, keep, 180) // 20 of 200 records have the key of the first
}

func TestPartitionOrderHandlesOneAfterTheOther(t *testing.T) {
	w := newWorld(t, 3)
	l := w.ledger()
	keep := func(h engine.HandlerFunc) engine.HandlerFunc { return l.inOrder(byPartition, h) }
	testOrder(w, engine.OrderPartition, l, keep, 0)
}

func testOrder(w *world, order engine.Order, l *ledger, keep func(engine.HandlerFunc) engine.HandlerFunc, overtake int) {
	w.Helper()
	const n = 200
	w.produceAll(n, 10)
	first := w.newGate()
	c := w.config(keep(func(_ context.Context, r *engine.Record) error {
		if r.Offset == 0 {
			first.wait(r)
		}
		return nil
	}))
	c.Order = order
	m := w.start(c)
	first.reached(w, int(w.parts))
	l.reaches(overtake * int(w.parts))
	// C1: nothing may be committed beyond the one that is not settled.
	m.commit()
	for p := range w.parts {
		if at := w.committed(p); at != 0 {
			w.Errorf("partition %d: %d was committed while offset 0 was not settled", p, at)
		}
	}
	if got := l.handled(); got != overtake*int(w.parts) {
		w.Errorf("%d records were handled beside the first ones, not %d", got, overtake*int(w.parts))
	}
	first.lift()
	l.reaches(n * int(w.parts))
	w.noLagLeft()
	m.stop()
	l.eachOnce(n)
	l.orderly()
}

// C6: a batch under key order holds at most one record of a key; every record comes once, the last partial batch included.
func TestBatchesHandleEachOnce(t *testing.T) {
	w := newWorld(t, 2)
	const n = 250
	w.produceAll(n, 25)
	l := w.ledger()
	one := l.inOrder(byKey, nil)
	c := w.config(nil)
	c.BatchSize = 20
	c.BatchHandler = engine.BatchHandlerFunc(func(ctx context.Context, b *engine.Batch) error {
		keys := map[string]bool{}
		for _, r := range b.Records {
			if keys[string(r.Key)] {
				return engine.End(fmt.Errorf("key %s is in a batch twice", r.Key))
			}
			keys[string(r.Key)] = true
			if err := one(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
	m := w.start(c)
	l.reaches(n * 2)
	w.noLagLeft()
	m.stop()
	l.eachOnce(n)
	l.orderly()
}
