package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// C7: behind a stuck record those of its key wait, one or two of each fetch. They do not pin all that was fetched with them, and when they run
// at last they are what they were.
func TestLeftoversDoNotPinTheirFetch(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		gates, log := w.shut("k=0"), callLog{}
		c := brisk(w.config(func(ctx context.Context, r *Record) error {
			if r.Key == nil {
				return nil
			}
			if err := gates.pass(ctx, r); err != nil {
				return err
			}
			log.add(r)
			return nil
		}))
		c.PartitionBytes = 800_000
		m := w.start(c)
		const fetches, others = 60, 30
		var keyed []string
		for i := range fetches {
			keyed = append(keyed, fmt.Sprint("k=", i))
			w.produce(0, append([]string{keyed[i]}, slices.Repeat([]string{strings.Repeat("x", 1000)}, others)...)...)
			w.eventually("the others are handled", func() bool { return m.e.Status().Counts.Handled == int64((i+1)*others) })
		}
		p := m.part(0)
		if p.Waiting != fetches-1 || p.Bytes > c.PartitionBytes/4 {
			t.Errorf("%d wait, and pin %d bytes", p.Waiting, p.Bytes)
		}
		gates.openAll()
		w.eventually("all is handled", func() bool { return w.committed("t", 0) == fetches*(others+1) })
		if got := log.all(); !slices.Equal(got, keyed) {
			t.Errorf("handled %v", got)
		}
		w.settled(m)
		m.stop()
	})
}
