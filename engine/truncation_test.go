package engine

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C1, C4: the log was truncated above an unfinished record. What was below the truncation and not finished is delivered again,
// whatever the client's new position is; nothing is committed past it.
func TestTruncationKeepsTheUnfinished(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		g := w.shut("d")
		w.produce(0, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
		m := w.start(w.config(func(_ context.Context, r *Record) error {
			log.add(r)
			return g.pass(context.Background(), r) // ignores its context
		}))
		w.eventually("the rest is handled", func() bool { return log.len() == 10 && w.committed("t", 0) == 3 })
		m.e.fetchError("t", 0, &kgo.ErrDataLoss{Topic: "t", Partition: 0, ConsumedTo: 10, ResetTo: 7})
		time.Sleep(time.Minute)
		if at := w.committed("t", 0); at != 3 {
			t.Errorf("committed %d, and 3 is unfinished", at)
		}
		g.open("d")
		w.eventually("all of it", func() bool { return w.committed("t", 0) == 10 })
		n := 0
		for _, v := range log.all() {
			if v == "d" {
				n++
			}
		}
		if n != 2 {
			t.Errorf("d was handled %d times: once for the old epoch, which no longer counts, and once for the new one", n)
		}
		m.stop()
	})
}

// C1: a client that goes on where an earlier assignment had been is asked once more for what lies between: records that nobody has
// handled do not pass for a hole in the log.
func TestClientStartsBeyond(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		release := w.stall(nil, kmsg.Fetch)
		w.produce(0, numbered("", 10)...)
		m := w.start(brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })))
		m.assigned()
		m.e.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{"t": {0: {Epoch: -1, Offset: 5}}})
		release()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 10 })
		if n := log.len(); n != 10 {
			t.Errorf("%d of 10 were handled: %v", n, log.all())
		}
		m.stop()
	})
}

// C4, C5: where the client goes back, a new epoch begins, in which the commit may go back. What was settled and comes again is not
// handled again, and what follows is.
func TestClientGoesBack(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		m := w.start(brisk(w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })))
		w.produce(0, numbered("", 10)...)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 10 })
		m.e.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{"t": {0: {Epoch: -1, Offset: 3}}})
		m.awaitName(EventRenewed)
		w.produce(0, "more")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 11 })
		if all := log.all(); len(all) != 11 || all[10] != "more" {
			t.Errorf("handled %v", all)
		}
		m.stop()
	})
}

// C6: a handler may change the fields of its record; the order of its key, a retry and the dead letter go by the record as it
// was.
func TestHandlerChangesItsRecord(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var values []string
		c := w.config(func(_ context.Context, r *Record) error {
			values = append(values, string(r.Key)+" "+string(r.Value)) // no lock: one key, so never two at once
			r.Key, r.Value = r.Key[1:], r.Value[3:]
			r.Topic, r.Headers = "x", nil
			if string(r.Value) == "1" {
				return errBoom
			}
			return nil
		})
		c.Retry = Retry{Attempts: 2, Base: time.Second}
		w.produce(0, "ka=1", "ka=2", "ka=3")
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
		m.stop()
		if want := []string{"ka ka=1", "ka ka=1", "ka ka=2", "ka ka=3"}; !slices.Equal(values, want) {
			t.Errorf("%q", values)
		}
		if d := w.dead("t.dlq", 1)[0]; string(d.Key) != "ka" || string(d.Value) != "ka=1" {
			t.Errorf("dead letter %q %q", d.Key, d.Value)
		}
	})
}

// Outputs: the record itself can be sent on.
func TestEmitTheRecordItself(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.produce(0, "k=v")
		if _, err := w.adm.CreateTopic(context.Background(), 1, 1, nil, "out"); err != nil {
			t.Fatal(err)
		}
		m := w.start(w.config(func(_ context.Context, r *Record) error {
			r.Topic = "out"
			r.Emit(r.Record)
			return nil
		}))
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		m.stop()
		if d := w.dead("out", 1)[0]; string(d.Value) != "k=v" || string(d.Key) != "k" {
			t.Errorf("%+v", d)
		}
		if n := m.e.Status().Counts.Failures; n != 0 {
			t.Errorf("%d failures", n)
		}
	})
}

// Middleware is put on once: what it keeps lives as long as the engine, not as an assignment.
func TestMiddlewareIsWrappedOnce(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		wrapped := 0
		c := w.config(func(context.Context, *Record) error { return nil })
		c.Middleware = []Middleware{func(h Handler) Handler { wrapped++; return h }}
		m := w.start(c)
		w.eventually("assigned", func() bool { return m.count(EventAssigned) == 3 })
		m.stop()
		if wrapped != 1 {
			t.Errorf("%d times", wrapped)
		}
	})
}

// C9: a broker that refuses the very offset which it names as the place to go on is tried again with a backoff, and that is ill health;
// the partition does not begin anew there without end.
func TestRefusedAtTheNamedPlace(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.produce(0, "a", "b")
		h := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Err: kerr.OffsetOutOfRange, Count: -1})
		c := w.config(func(context.Context, *Record) error { return nil })
		c.StalledAfter = 20 * time.Second
		m := w.start(c)
		time.Sleep(2 * time.Minute)
		if ok, _ := m.e.Healthy(); ok {
			t.Error("healthy")
		}
		if n := m.count(EventTruncated); n > 2 {
			t.Errorf("began anew %d times", n)
		}
		h.Remove()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 2 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	})
}
