package engine

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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

// C1, C9: a right to write that is missing when the first output or dead letter is written holds the partition, names the right, and is
// no failure of the record; once it is given, the write passes, although the client has been refused a producer id for good.
func TestWriteIsForbiddenAtFirst(t *testing.T) {
	for name, forbid := range map[string]func(*world) (grant func()){
		"producer id": func(w *world) func() { return w.refuseProducerIDs(kerr.ClusterAuthorizationFailed) },
		"topic": func(w *world) func() {
			return w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1}).Remove
		},
	} {
		for _, what := range []EventName{EventOutputFailed, EventDeadLetterFailed} {
			t.Run(name+" "+string(what), func(t *testing.T) {
				inWorld(t, 1, func(w *world) {
					w.createOut()
					w.produce(0, "a", "b")
					topic, name, problem := "t.dlq", `dead-letter topic "t.dlq"`, "dead letter t"
					h := func(context.Context, *Record) error { return Permanent(errBoom) }
					if what == EventOutputFailed {
						topic, name, problem = "out", `output topic "out"`, "outputs t"
						h = emits(new(atomic.Int64))
					}
					grant := forbid(w)
					m := w.start(w.config(h))
					ev := m.awaitName(what)
					if !strings.Contains(ev.Err.Error(), "grant WRITE and DESCRIBE on "+name+" to this user") {
						t.Errorf("failed with %v", ev.Err)
					}
					if ok, problems := m.e.Healthy(); ok || !strings.Contains(problems[problem], "grant WRITE") {
						t.Errorf("healthy %v: %v", ok, problems)
					}
					time.Sleep(time.Minute)
					if at := w.committed("t", 0); at > 0 {
						t.Errorf("committed %d over what was not written", at)
					}
					grant()
					w.eventually("committed", func() bool { return w.committed("t", 0) == 2 })
					if n := m.e.Status().Counts; what == EventOutputFailed && (n.Failures != 0 || n.DeadLettered != 0) {
						t.Errorf("the records were blamed: %+v", n)
					}
					m.stop()
					w.dead(topic, 2)
				})
			})
		}
	}
}

// refuseProducerIDs makes the broker refuse producer ids, until grant. It takes a moment to answer, as every broker does: a client that hears in
// no time at all that it gets none may miss a record that it is just about to partition, and never fails it (kgo's storePartitionsUpdate makes
// partitions known only after their records are on their way, and failBufferedRecords goes by what is known).
func (w *world) refuseProducerIDs(code *kerr.Error) (grant func()) {
	var granted atomic.Bool
	w.cluster.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if granted.Load() {
			return nil, nil, false
		}
		w.cluster.KeepControl()
		time.Sleep(time.Millisecond) // the broker does nothing else meanwhile
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = code.Code
		return resp, nil, true
	})
	return func() { granted.Store(true) }
}

// C1, C9: a client that the broker refuses a producer id is dead for good. When the right to write is granted, what waits is written all the
// same, without a restart.
func TestProducerIDIsRefused(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.createOut()
		w.produce(0, "bad", "good")
		grant := w.refuseProducerIDs(kerr.ClusterAuthorizationFailed)
		c := w.config(func(_ context.Context, r *Record) error {
			if string(r.Value) == "bad" {
				return Permanent(errBoom)
			}
			r.Emit(&kgo.Record{Topic: "out", Value: slices.Clone(r.Value)})
			return nil
		})
		c.DeadLetter.BreakerRatio, c.Retry.Attempts = 1, 1000
		m := w.start(c)
		m.awaitName(EventDeadLetterFailed)
		time.Sleep(time.Minute)
		if ok, _ := m.e.Healthy(); ok || w.committed("t", 0) > 0 {
			t.Errorf("healthy %v, committed %d", ok, w.committed("t", 0))
		}
		grant()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 2 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
		w.dead("t.dlq", 1)
		w.dead("out", 1)
	})
}

// C8: a producer id that the broker can't give now is not asked for as fast as the network allows.
func TestProducerIDIsNotToBeHad(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.produce(0, "bad")
		asked := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.NotController, Count: -1})
		c := w.config(func(context.Context, *Record) error { return Permanent(errBoom) })
		c.DeadLetter.BreakerRatio = 1
		m := w.start(c)
		m.awaitName(EventDeadLetterFailed)
		time.Sleep(time.Minute)
		if n := asked.Hits(); n > 5000 {
			t.Errorf("asked %d times in a minute", n)
		}
		asked.Remove()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		m.stop()
	})
}
