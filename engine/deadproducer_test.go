package engine

import (
	"context"
	"slices"
	"testing"
	"time"
)

// C6: a key waits for the acknowledgement of its dead letter, and for nothing else: a hot key whose records are all dead-lettered
// is not held up by the producer's linger at each of them. They stay in order.
func TestHotKeyIsDeadLettered(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := w.config(func(context.Context, *Record) error { return Permanent(errBoom) })
		c.DeadLetter.BreakerRatio = 1
		m := w.start(c)
		values := numbered("k=", 500)
		begun := time.Now()
		w.produce(0, values...)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 500 })
		if took := time.Since(begun); took > time.Second { // with a linger of 5 ms it is more than 2.5 s
			t.Errorf("took %v", took)
		}
		m.stop()
		var got []string
		for _, r := range w.dead("t.dlq", 500) {
			got = append(got, string(r.Value))
		}
		if !slices.Equal(got, values) {
			t.Error("out of order")
		}
	})
}
