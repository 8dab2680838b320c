package engine

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// C9: a lag that is counted from an old log end is not shown as if it were new: its age is there, and it is ill health after a
// while, until the first good answer.
func TestStaleLogEnds(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		m := w.start(brisk(w.config(func(context.Context, *Record) error { return nil })))
		w.produce(0, "a")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		time.Sleep(time.Minute)
		if p := m.part(1); p.LogEndAge < 0 || p.LogEndAge > logEndTick.Seconds()+1 {
			t.Errorf("%v s old", p.LogEndAge)
		}
		release := w.stall(nil, kmsg.ListOffsets)
		time.Sleep(2*endsStaleAfter - 10*time.Second)
		ev := m.awaitName(EventLogEndsStale)
		if ev.Count != 2 || ev.Took < endsStaleAfter || ev.Took > endsStaleAfter+2*time.Second {
			t.Errorf("%+v", ev)
		}
		ok, problems := m.e.Healthy()
		if p := m.part(1); ok || problems["log ends"] == "" || p.LogEndAge < endsStaleAfter.Seconds() {
			t.Errorf("%v s old, healthy %v: %v", p.LogEndAge, ok, problems)
		}
		release()
		begun := time.Now()
		w.eventually("healthy", func() bool { ok, _ := m.e.Healthy(); return ok })
		if took := time.Since(begun); took > 2*logEndRetry {
			t.Errorf("took %v", took)
		}
		if n := m.count(EventLogEndsStale); n != 1 {
			t.Errorf("said %d times", n)
		}
		m.stop()
	})
}
