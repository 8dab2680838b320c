package engine

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// C9: a pause that needs somebody is said at once, and its end is, too.
func TestHoldIsAPauseAndItsEnd(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var mended atomic.Bool
		m := w.start(w.config(func(context.Context, *Record) error {
			if mended.Load() {
				return nil
			}
			return Hold(errBoom)
		}))
		w.produce(0, "a")
		ev := m.awaitName(EventPaused)
		if ev.Reason != "hold" || ev.Hint == "" || ev.Err == nil || ev.Took > time.Second {
			t.Errorf("%+v", ev)
		}
		time.Sleep(time.Hour)
		mended.Store(true)
		if !m.e.Unhold("t", 0) {
			t.Error("nothing is held")
		}
		if ev := m.awaitName(EventUnpaused); ev.Took < time.Hour || ev.Took > time.Hour+time.Second {
			t.Errorf("%+v", ev)
		}
		if n, n2 := m.count(EventPaused), m.count(EventUnpaused); n != 1 || n2 != 1 {
			t.Errorf("paused %d, unpaused %d", n, n2)
		}
		m.stop()
	})
}

// C7, C9: that handlers are slower than the topic is no event many times a second; it is one where a pause lasts. The status has
// both.
func TestPausesForFlowControl(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		gates := w.shut("last")
		c := w.config(func(ctx context.Context, r *Record) error {
			time.Sleep(10 * time.Millisecond)
			return gates.pass(ctx, r)
		})
		c.Workers, c.PartitionRecords, c.Order = 1, 10, OrderPartition
		m := w.start(c)
		for i := range 50 {
			w.produce(0, numbered(fmt.Sprint("v", i, "-"), 20)...)
		}
		w.eventually("handled", func() bool { return m.e.Status().Counts.Handled == 1000 })
		p := m.part(0)
		if n := m.count(EventPaused) + m.count(EventUnpaused); n != 0 {
			t.Errorf("short pauses are events: %v", m.names())
		}
		if p.PausedSeconds < 1 || p.PausedSeconds > 10 {
			t.Errorf("paused for %v s", p.PausedSeconds)
		}
		w.produce(0, "last")
		w.produce(0, numbered("w", 20)...)
		ev := m.awaitName(EventPaused)
		if ev.Reason != "records" || ev.Took < pauseToldAfter || ev.Took > pauseToldAfter+time.Second || !ev.minor || !strings.Contains(ev.Hint, "Workers") {
			t.Errorf("%+v", ev)
		}
		time.Sleep(time.Minute)
		gates.openAll()
		if ev := m.awaitName(EventUnpaused); ev.Took < time.Minute+pauseToldAfter {
			t.Errorf("%+v", ev)
		}
		w.eventually("handled", func() bool { return m.e.Status().Counts.Handled == 1021 })
		if n, n2 := m.count(EventPaused), m.count(EventUnpaused); n != 1 || n2 != 1 {
			t.Errorf("paused %d, unpaused %d", n, n2)
		}
		m.stop()
	})
}

// C9: a partition that the broker refuses is one pause, however often it is tried again, and one end of it.
func TestFetchErrorIsOnePause(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		m := w.start(w.config(func(context.Context, *Record) error { return nil }))
		w.produce(0, "a")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		heal := w.refuseFetches(kerr.TopicAuthorizationFailed)
		w.produce(0, "b")
		ev := m.awaitName(EventPaused)
		if ev.Reason != "fetch_error" || ev.Err == nil {
			t.Errorf("%+v", ev)
		}
		time.Sleep(3 * time.Minute)
		if n, n2 := m.count(EventFetchFailed), m.count(EventUnpaused); n < 6 || n2 != 0 {
			t.Errorf("failed %d times, unpaused %d", n, n2)
		}
		heal()
		begun := time.Now()
		w.eventually("goes on", func() bool { return w.committed("t", 0) == 2 })
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		if took := time.Since(begun); took > fetchBackoffMax+2*time.Second {
			t.Errorf("took %v", took)
		}
		w.eventually("said", func() bool { return m.count(EventUnpaused) == m.count(EventPaused) })
		if n := m.count(EventPaused); n > 2 { // one a partition
			t.Errorf("paused %d times", n)
		}
		// The next error begins with a short backoff again.
		heal = w.refuseFetches(kerr.TopicAuthorizationFailed)
		w.produce(0, "c")
		w.eventually("refused again", func() bool { return m.count(EventPaused) > 2 })
		heal()
		begun = time.Now()
		w.eventually("goes on", func() bool { return w.committed("t", 0) == 3 })
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		m.stop()
	})
}

// refuseFetches makes the broker answer fetches of every partition with an error, until heal.
func (w *world) refuseFetches(code *kerr.Error) (heal func()) {
	var done atomic.Bool
	w.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if done.Load() {
			return nil, nil, false
		}
		w.cluster.KeepControl()
		r := req.(*kmsg.FetchRequest)
		resp := r.ResponseKind().(*kmsg.FetchResponse)
		for _, t := range r.Topics {
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewFetchResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.HighWatermark = p.Partition, code.Code, -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return func() { done.Store(true) }
}
