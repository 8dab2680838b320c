package enginetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// reported is what a child said that it did, before it was killed.
type reported struct {
	begun, done map[place]bool
}

// until reads what the child says until cond holds.
func (c *child) until(w *world, what string, r *reported, cond func() bool) {
	w.Helper()
	timeout := time.After(patience)
	for !cond() {
		select {
		case line, ok := <-c.lines:
			if !ok {
				w.Fatalf("the child ended before: %s", what)
			}
			var word string
			var p place
			if _, err := fmt.Sscan(line, &word, &p.partition, &p.offset); err != nil {
				w.Logf("the child says: %s", line)
				continue
			}
			map[string]map[place]bool{"begun": r.begun, "done": r.done}[word][p] = true
		case <-timeout:
			w.Fatalf("never: %s", what)
		}
	}
}

// C1: ten records that were handled, but not committed, when their member was killed are all redelivered after a restart.
func TestTenHandledButNotCommittedAreRedelivered(t *testing.T) {
	w := newWorld(t, 1)
	l := w.ledger()
	// Five records that were committed, so that it shows that only the ten come again.
	w.produce(0, keyed(5, 5)...)
	m := w.start(w.config(l.keep(nil)))
	l.reaches(5)
	m.stop()

	w.produce(0, keyed(10, 5)...)
	r := reported{map[place]bool{}, map[place]bool{}}
	victim := w.spawn(childOrder{CommitMillis: 3_600_000})
	victim.until(w, "ten records handled", &r, func() bool { return len(r.done) == 10 })
	victim.kill()
	if at := w.committed(0); at != 5 {
		t.Fatalf("committed %d, though nothing was to be committed after 5", at)
	}

	again := w.ledger()
	m = w.start(w.config(again.keep(nil)))
	again.reaches(10)
	w.noLagLeft()
	m.stop()
	if got := again.offsets(0); fmt.Sprint(got) != "[5 6 7 8 9 10 11 12 13 14]" {
		t.Errorf("redelivered %v", got)
	}
}

// C1, C3, design section 5: a member is killed in the middle of a batch. Every record that it had not finished is delivered
// again, and none that its commits say are done; and they say so of what it had finished only.
func TestKilledInMidBatch(t *testing.T) {
	w := newWorld(t, 2)
	const n = 300
	w.produceAll(n, 30)
	r := reported{map[place]bool{}, map[place]bool{}}
	victim := w.spawn(childOrder{CommitMillis: 20, BatchSize: 10, BlockAfter: 200})
	victim.until(w, "200 records handled, and a batch in hand", &r, func() bool { return len(r.done) >= 200 && len(r.begun) > len(r.done) })
	w.eventually("it has committed something", func() bool { return w.committed(0)+w.committed(1) > 0 })
	victim.kill()
	victim.until(w, "the rest of what it said", &r, func() bool { return len(victim.lines) == 0 })
	said := [][]int64{w.saidDone(0, n), w.saidDone(1, n)}
	t.Logf("killed with %d records begun, %d done, of which the commits say %d", len(r.begun), len(r.done), len(said[0])+len(said[1]))

	l := w.ledger()
	m := w.start(w.config(l.keep(nil)))
	l.reaches(2*n - len(said[0]) - len(said[1]))
	w.noLagLeft()
	m.stop()
	for p := range w.parts {
		for _, o := range said[p] {
			if !r.done[place{p, o}] {
				t.Errorf("partition %d: the commit says that %d is done, but it was not finished", p, o)
			}
		}
		if want := without(n, said[p]); !slices.Equal(l.offsets(p), want) {
			t.Errorf("partition %d: redelivered %v, not %v", p, l.offsets(p), want)
		}
	}
	m.quiet(engine.EventDataLoss, engine.EventHeld)
}
