//go:build unix

package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// crash is a group that is killed once.
type crash struct {
	addr, group, topic string
	parts              int
	store              bool
	dir                string
	cl                 *kgo.Client
	adm                *kadm.Client
}

// outcome is what a crash has cost.
type outcome struct {
	ended     int // when it was killed
	inFlight  int // begun, and not ended
	unsaid    int // ended, and by what the kill has left not settled
	again     int // of those in flight, handled by the successor
	redone    int // of those that had ended, handled again
	shortened int // windows
}

func newCrash(b *testing.B, addr, topic string, parts int, store bool) *crash {
	b.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(cl.Close)
	c := &crash{addr: addr, group: benchGroup(), topic: topic, parts: parts, store: store, cl: cl, adm: kadm.NewClient(cl)}
	if store {
		c.dir = b.TempDir() + "/store"
	}
	return c
}

// fill produces so many records.
func (c *crash) fill(b *testing.B, n int) {
	b.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: c.topic, Value: make([]byte, benchValue)}
	}
	if err := c.cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		b.Fatal(err)
	}
}

func (c *crash) start(b *testing.B, task crashTask) *victim {
	b.Helper()
	return startVictim(b, crashOrder{Addr: c.addr, Group: c.group, Topic: c.topic, Dir: c.dir, Task: task})
}

// commitSaid is what the group's commit says of a partition.
type commitSaid struct {
	at     int64
	window window.Window
}

func (c *crash) commits(b *testing.B) []commitSaid {
	b.Helper()
	all := make([]commitSaid, c.parts)
	resp, err := c.adm.FetchOffsets(context.Background(), c.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		b.Fatal(err)
	}
	for p := range all {
		if o, ok := resp.Lookup(c.topic, int32(p)); ok {
			all[p].at = o.At
			all[p].window, _ = window.Decode(o.Metadata)
		}
	}
	return all
}

// crash kills a life, looks at what it has left, and lets another one handle all that the first one had begun.
func (c *crash) crash(b *testing.B, l *victim) (out outcome) {
	b.Helper()
	l.kill()
	time.Sleep(100 * time.Millisecond) // a commit that was on its way arrives
	left := c.commits(b)
	for _, s := range left {
		if s.window.Cut {
			out.shortened++
		}
	}
	if c.store {
		c.readRows(b, left)
	}
	last := make([]int64, c.parts)
	l.each(func(p int, offset int64, ended bool) {
		last[p] = offset
		switch s := &left[p]; {
		case !ended:
			out.inFlight++
		case offset >= s.at && !s.window.Done(offset):
			out.ended++
			out.unsaid++
		default:
			out.ended++
		}
	})
	next := c.start(b, taskPlain)
	next.until(b, "all that had begun is committed", func() bool {
		for p, s := range c.commits(b) {
			if s.at <= last[p] {
				return false
			}
		}
		return true
	})
	next.kill()
	next.each(func(p int, offset int64, _ bool) {
		switch state := l.of(p)[offset]; {
		case state == isBegun:
			out.again++
		case state != 0:
			out.redone++
		}
	})
	l.close()
	next.close()
	if out.again != out.inFlight || out.redone > out.unsaid {
		b.Errorf("in flight %d, of which %d ran again; ended and not said to be %d, and %d ran again", out.inFlight, out.again, out.unsaid, out.redone)
	}
	return out
}

// readRows puts the rows of the killed process's store in the place of the commits' windows, where a successor will use them: they
// are fresher. It reads a copy.
func (c *crash) readRows(b *testing.B, left []commitSaid) {
	b.Helper()
	dir := b.TempDir() + "/copy"
	if err := os.CopyFS(dir, os.DirFS(c.dir)); err != nil {
		b.Fatal(err)
	}
	s, err := dedupe.Open(dir, dedupe.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for p := range left {
		w := &left[p].window
		if w.Store != s.ID() || w.StoreSeq > s.Seq() {
			continue
		}
		raw, ok, err := s.Row(binary.BigEndian.AppendUint32(w.TopicID[:], uint32(p)))
		if err != nil {
			b.Fatal(err)
		}
		if row, err := window.DecodeBinary(raw); ok && err == nil && row.Same(w.TopicID) && row.Frontier >= w.Frontier {
			*w = row
		}
	}
}

// report prints what the crashes cost: the median of what was handled again, beside its bound.
func (c *crash) report(b *testing.B, all ...outcome) {
	var redone, bound []float64
	for _, o := range all {
		redone = append(redone, float64(o.again+o.redone))
		bound = append(bound, float64(o.inFlight+o.unsaid))
		since := "ended since the last commit, or dropped from it,"
		if c.store {
			since = "ended and not durable"
		}
		b.Logf("%d had ended; in flight %d, %s %d; redone: %d of those in flight and %d that had ended", o.ended, o.inFlight, since, o.unsaid, o.again, o.redone)
	}
	finished := 0
	for _, o := range all {
		finished = max(finished, o.redone)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(redone), "redone")
	b.ReportMetric(median(bound), "redone-bound")
	b.ReportMetric(float64(finished), "finished-redone-max")
}
