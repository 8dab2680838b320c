package enginetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/gaplesshq/gapless/engine"
)

// C1, C2: where a new group begins is resolved and committed at its first assignment. A partition in which nothing happens
// keeps it: what arrives while the member is away is handled after its return.
func TestStartLatestSurvivesARestart(t *testing.T) {
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		w := newWorld(t, 2)
		w.produceAll(10, 5)
		l := w.ledger()
		c := w.config(l.keep(nil))
		c.Start = engine.StartLatest
		set(&c)
		m := w.start(c)
		m.owns(2)
		m.hears(engine.EventStartsLatest)
		m.stop()
		if a, b := w.committed(0), w.committed(1); a != 10 || b != 10 {
			t.Fatalf("committed %d and %d, not the start", a, b)
		}
		w.produceAll(5, 5)
		m = w.start(c)
		l.reaches(10)
		w.noLagLeft()
		m.stop()
		for p := range w.parts {
			if got := fmt.Sprint(l.offsets(p)); got != "[10 11 12 13 14]" {
				t.Errorf("partition %d: handled %s", p, got)
			}
		}
		m.quiet(engine.EventStartsLatest)
	})
}

// C1, C2: the same for a timestamp. A partition with older records only begins at its end.
func TestStartAtATimeSurvivesARestart(t *testing.T) {
	w := newWorld(t, 2)
	at := time.Now().Add(-24 * time.Hour).Truncate(time.Millisecond) // recent enough not to be deleted for its age
	ctx, cancel := patient()
	defer cancel()
	for p, ages := range [][]time.Duration{{-2, -1, 0, 1, 2}, {-3, -2, -1}} {
		for _, d := range ages {
			r := w.records(int32(p), "k=v")[0]
			r.Timestamp = at.Add(d * time.Hour)
			if err := w.cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := w.ledger()
	c := w.config(l.keep(nil))
	c.Start = engine.StartAt(at)
	m := w.start(c)
	l.reaches(3)
	w.noLagLeft()
	m.stop()
	w.produce(1, "k=new")
	m = w.start(c)
	l.reaches(4)
	w.noLagLeft()
	m.stop()
	if a, b := fmt.Sprint(l.offsets(0)), fmt.Sprint(l.offsets(1)); a != "[2 3 4]" || b != "[3]" {
		t.Errorf("handled %s and %s", a, b)
	}
}

// deleteBefore does what retention does: the log of partition 0 begins at this offset now.
func (w *world) deleteBefore(offset int64) {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	var to kadm.Offsets
	to.Add(kadm.Offset{Topic: w.topic, Partition: 0, At: offset})
	if _, err := w.adm.DeleteRecords(ctx, to); err != nil {
		w.Fatal(err)
	}
}

// C9: retention overtook the group while it was away. By default the partition stops, says how many records are gone, and the
// other partitions go on; the choice of earliest goes on with what is left.
func TestRetentionOvertookTheGroup(t *testing.T) {
	w := newWorld(t, 2)
	w.produce(0, keyed(5, 5)...)
	l := w.ledger()
	c := w.config(l.keep(nil))
	m := w.start(c)
	l.reaches(5)
	m.stop()

	w.produce(0, keyed(25, 5)...) // 5-29
	w.produce(1, keyed(3, 3)...)
	w.deleteBefore(20)
	m = w.start(c)
	ev := m.hears(engine.EventDataLoss)
	if ev.Partition != 0 || ev.Offset != 5 || ev.Count != 15 {
		t.Errorf("event %+v", ev)
	}
	l.reaches(8) // the other partition
	w.eventually("it is unhealthy, and stopped", func() bool {
		ok, _ := m.e.Healthy()
		s := m.partition(0)
		return !ok && len(s.Paused) == 1 && s.Paused[0] == "data_loss" && s.Lost == 15
	})
	m.stop()
	if at := w.committed(0); at != 5 {
		t.Errorf("committed %d over a loss that nobody has accepted", at)
	}

	c.OnDataLoss = engine.DataLossEarliest
	m = w.start(c)
	l.reaches(18)
	w.noLagLeft()
	if n := m.e.Status().Counts.Lost; n != 15 {
		t.Errorf("counted %d lost", n)
	}
	m.stop()
	if got := l.offsets(0); len(got) != 15 || got[5] != 20 {
		t.Errorf("handled %v", got)
	}
}

// C9: the same while a member is at work, whose position lies in what is deleted.
func TestRetentionOvertakesARunningMember(t *testing.T) {
	for _, choice := range []engine.DataLoss{engine.DataLossStop, engine.DataLossEarliest} {
		t.Run(string(choice), func(t *testing.T) {
			w := newWorld(t, 1)
			l := w.ledger()
			g := w.newGate()
			c := w.config(l.keep(func(_ context.Context, r *engine.Record) error { g.wait(r); return nil }))
			c.OnDataLoss = choice
			c.PartitionRecords = 64 // it stops fetching early, far behind the end of the log
			c.FetchMaxPartitionBytes = 4096
			w.produce(0, keyed(64, 8)...)
			m := w.start(c)
			g.reached(w, 8)
			w.eventually("it has fetched all there is", func() bool { return m.partition(0).Position == 64 })
			w.eventually("it has stopped fetching", func() bool { return len(m.partition(0).Paused) == 1 })
			w.produce(0, keyed(100, 8)...)
			w.deleteBefore(150)
			g.lift()
			ev := m.hears(engine.EventDataLoss)
			if ev.Offset != 64 || ev.Count != 86 {
				t.Errorf("event %+v", ev)
			}
			if choice == engine.DataLossStop {
				w.eventually("what was fetched is committed, and no more", func() bool { return w.committed(0) == 64 })
				m.stop()
				if n := l.handled(); n != 64 {
					t.Errorf("handled %d records", n)
				}
				return
			}
			l.reaches(64 + 14)
			w.noLagLeft()
			m.stop()
		})
	}
}
