package engine

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
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

// tracing is a hook that gives some records contexts of their own, as those for tracing do with all.
type tracing struct{}

func (tracing) OnFetchRecordBuffered(r *kgo.Record) {
	if r.Offset%3 == 1 {
		type span struct{}
		r.Context = context.WithValue(r.Context, span{}, r.Offset)
	}
}

func (tracing) OnFetchRecordUnbuffered(*kgo.Record, bool) {}

// C1, C7: records whose contexts a hook of the embedder's has changed are handled, with these, and given back one by one.
func TestHooksChangeContexts(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		w.produce(0, numbered("v", 100)...)
		c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
		c.KgoOpts = append(c.KgoOpts, kgo.WithHooks(tracing{}))
		m := w.start(c)
		w.eventually("all committed", func() bool { return w.committed("t", 0) == 100 })
		if n := log.len(); n != 100 {
			t.Errorf("handled %d", n)
		}
		m.stop() // nothing is lent
		if m.e.lender != nil {
			t.Error("records are lent by contexts that are not theirs")
		}
	})
	inWorld(t, 1, func(w *world) { // without such a hook they are
		w.produce(0, numbered("v", 100)...)
		g := make(chan struct{})
		m := w.start(w.config(func(_ context.Context, r *Record) error { <-g; return nil }))
		w.eventually("lent", func() bool { return m.e.records.Lent() == 1 })
		close(g)
		w.eventually("all committed", func() bool { return w.committed("t", 0) == 100 })
		m.stop()
	})
}
