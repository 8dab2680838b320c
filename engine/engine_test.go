package engine

import (
	"context"
	"testing"
)

// C1, C2: everything that was produced is handled once, and the group's offset ends behind it.
func TestHandlesAndCommits(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		var log callLog
		for p := range int32(3) {
			w.produce(p, numbered("v", 100)...)
		}
		m := w.start(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil }))
		w.eventually("all handled", func() bool { return log.len() == 300 })
		w.eventually("all committed", func() bool {
			return w.committed("t", 0) == 100 && w.committed("t", 1) == 100 && w.committed("t", 2) == 100
		})
		m.stop()
		if n := log.len(); n != 300 {
			t.Errorf("handled %d", n)
		}
	})
}
