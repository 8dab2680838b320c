package engine

import (
	"context"
	"errors"
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

// C8, C9: a full buffer keeps no worker for ever, and its outage is no failure of the records: they wait, visibly, and their
// outputs are written once in order when the topic is back.
func TestOutputsInAFullBuffer(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.createOut()
		out := w.cluster.TopicInfo("out").TopicID
		release := w.stall(func(req kmsg.Request) bool { return req.(*kmsg.ProduceRequest).Topics[0].TopicID == out }, kmsg.Produce)
		var calls atomic.Int64
		c := w.config(emits(&calls))
		c.Workers = 2
		c.KgoOpts = append(c.KgoOpts, kgo.MaxBufferedRecords(1))
		w.produce(0, "a", "b", "c", "d")
		m := w.start(c)
		ev := m.awaitName(EventOutputFailed)
		if !errors.Is(ev.Err, errNoRoom) {
			t.Errorf("failed with %v", ev.Err)
		}
		w.eventually("no worker is kept", func() bool { return m.part(0).InFlight == 0 })
		if ok, problems := m.e.Healthy(); ok {
			t.Errorf("healthy: %v", problems)
		}
		release()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 4 })
		if n := calls.Load(); n != 4 {
			t.Errorf("%d calls for 4 records", n)
		}
		if ok, problems := m.e.Healthy(); !ok {
			t.Errorf("unhealthy after it healed: %v", problems)
		}
		m.stop()
		w.dead("out", 4)
	})
}

// C1, C9: an output topic that is down spends no attempts: its records are handled once, wait, and are not dead-lettered. The
// health says so, and heals.
func TestOutputTopicIsDown(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var calls atomic.Int64
		c := w.config(emits(&calls))
		c.Retry.Attempts = 1
		w.produce(0, "a", "b") // "out" does not exist: the client gives such a record up soon
		m := w.start(c)
		ev := m.awaitName(EventOutputFailed)
		if !errors.Is(ev.Err, kerr.UnknownTopicOrPartition) {
			t.Errorf("failed with %v", ev.Err)
		}
		time.Sleep(time.Minute)
		st := m.e.Status()
		if _, ok := st.Problems["outputs t"]; !ok || st.Healthy {
			t.Errorf("problems %v", st.Problems)
		}
		if p := m.part(0); !slices.Contains(p.Paused, "output_topic") || p.Oldest == nil || p.Oldest.State != "outputs" {
			t.Errorf("%+v", p)
		}
		if st.Counts.Failures != 0 || st.Counts.Handled != 0 || w.committed("t", 0) != 0 {
			t.Errorf("%d failures, %d handled, committed %d", st.Counts.Failures, st.Counts.Handled, w.committed("t", 0))
		}
		time.Sleep(5 * time.Minute)
		w.createOut()
		begun := time.Now()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 2 })
		if took := time.Since(begun); took > writeBackoffMax+2*time.Second {
			t.Errorf("took %v", took)
		}
		time.Sleep(2 * time.Second) // the watchdog has looked
		st = m.e.Status()
		if !st.Healthy || st.Counts.Handled != 2 || calls.Load() != 2 || st.Counts.DeadLettered != 0 {
			t.Errorf("%v, %d handled of %d calls, %d dead letters", st.Problems, st.Counts.Handled, calls.Load(), st.Counts.DeadLettered)
		}
		m.stop()
		w.dead("out", 2)
	})
}

// C1: an output that can't ever be written is a failure of the attempt, and does not count as handled.
func TestOutputIsRefused(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.createOut()
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "out", Err: kerr.InvalidRecord, Count: -1})
		var calls atomic.Int64
		c := w.config(emits(&calls))
		c.Retry.Attempts = 2
		w.produce(0, "a")
		m := w.start(c)
		m.awaitName(EventDeadLettered)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		if n := m.e.Status().Counts; n.Handled != 0 || n.Failures != 2 || n.DeadLettered != 1 || calls.Load() != 2 {
			t.Errorf("%d calls, %+v", calls.Load(), n)
		}
		m.stop()
	})
}

// C8: a hard stop waits for no acknowledgement: it ends what is being produced.
func TestHardStopEndsProducing(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.createOut()
		var calls atomic.Int64
		c := w.config(emits(&calls))
		c.Workers = 1
		c.KgoOpts = append(c.KgoOpts, kgo.MaxBufferedRecords(1))
		m := w.start(c)
		w.eventually("here", func() bool { return len(m.owns()) == 1 })
		out := w.cluster.TopicInfo("out").TopicID
		w.stall(func(req kmsg.Request) bool { return req.(*kmsg.ProduceRequest).Topics[0].TopicID == out }, kmsg.Produce)
		w.produce(0, "a", "b")
		w.eventually("one waits for its answer, one for room", func() bool { return calls.Load() == 2 })
		_, err := m.stopWithin(time.Second)
		var left *AbandonedError
		if !errors.As(err, &left) || len(left.Records) != 2 || left.Records[0].For != WaitsForOutputs || left.Records[1].For != WaitsForOutputs {
			t.Errorf("Stop: %v", err)
		}
		begun := time.Now()
		if err := <-m.done; !errors.As(err, &left) || len(left.Records) != 2 {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(begun); took > 6*time.Second { // the flush has CommitTimeout
			t.Errorf("Run returned %v later", took)
		}
	})
}

// C6: outputs of one record with one key keep their order when one of them is written again: what is read last is what was emitted
// last. Others are not written twice.
func TestOutputsKeepTheirOrder(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.createOut()
		var calls atomic.Int64
		c := w.config(func(_ context.Context, r *Record) error {
			calls.Add(1)
			for _, v := range []string{"k=1", "k=2", "other=1", "k=3"} {
				key, _, _ := strings.Cut(v, "=")
				r.Emit(&kgo.Record{Topic: "out", Key: []byte(key), Value: []byte(v)})
			}
			return nil
		})
		// The client makes one try, and takes the next output when the one before is answered: so one of them fails alone.
		c.KgoOpts = append(c.KgoOpts, kgo.MaxBufferedRecords(1), kgo.RecordRetries(0))
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "out", Err: kerr.NotEnoughReplicas, Count: 1})
		w.produce(0, "a")
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		m.stop()
		var got []string
		ends, err := w.adm.ListEndOffsets(context.Background(), "out")
		if err != nil {
			t.Fatal(err)
		}
		end, _ := ends.Lookup("out", 0)
		for _, r := range w.dead("out", int(end.Offset)) {
			got = append(got, string(r.Value))
		}
		if !slices.Equal(got, []string{"k=2", "other=1", "k=3", "k=1", "k=2", "k=3"}) {
			t.Errorf("%v", got)
		}
		if calls.Load() != 1 || m.count(EventOutputFailed) != 1 {
			t.Errorf("%d calls: %v", calls.Load(), m.names())
		}
	})
}

// C6: what is written again after a failure, place by place.
func TestToRewrite(t *testing.T) {
	rec := func(topic, key string) *kgo.Record {
		r := &kgo.Record{Topic: topic}
		if key != "" {
			r.Key = []byte(key)
		}
		return r
	}
	outs := []*kgo.Record{rec("a", "k"), rec("a", "j"), rec("b", "k"), rec("a", "k"), rec("a", ""), rec("a", "j"), rec("a", "")}
	for _, c := range []struct{ failed, again []int }{
		{nil, nil},
		{[]int{0}, []int{0, 3}},
		{[]int{3}, []int{3}},
		{[]int{1, 2}, []int{1, 2, 5}},
		{[]int{4}, []int{4, 6}},
		{[]int{0, 5}, []int{0, 3, 5}},
	} {
		var failed []bool
		if c.failed != nil {
			failed = make([]bool, len(outs))
		}
		for _, i := range c.failed {
			failed[i] = true
		}
		var again []int
		for _, r := range toRewrite(outs, failed) {
			again = append(again, slices.Index(outs, r))
		}
		if !slices.Equal(again, c.again) {
			t.Errorf("after %v failed: %v, not %v", c.failed, again, c.again)
		}
	}
}
