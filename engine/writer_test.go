package engine

import (
	"context"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"slices"
	"strings"
	"sync/atomic"
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

// C1, C9: a right to write that is missing when the first output or dead letter is written holds the partition, names the right, and is
// no failure of the record; once it is given, the write passes, although the client has been refused a producer id for good.
func TestWriteIsForbiddenAtFirst(t *testing.T) {
	for name, fault := range map[string]kfake.Fault{
		"producer id": {Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1},
		"topic":       {Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1},
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
					refused := w.cluster.Fault(fault)
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
					refused.Remove()
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
