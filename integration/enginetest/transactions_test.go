package enginetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// transactions is a producer whose records count, for those who read committed, only once their transaction is committed.
type transactions struct {
	w  *world
	cl *kgo.Client
}

func (w *world) transactions() *transactions {
	w.Helper()
	return &transactions{w, w.client(kgo.TransactionalID(kafkatest.Name(w.T)), kgo.RecordPartitioner(kgo.ManualPartitioner()))}
}

// begin writes values within a new transaction, to partition 0, and leaves it open.
func (tx *transactions) begin(values ...string) {
	tx.w.Helper()
	if err := tx.cl.BeginTransaction(); err != nil {
		tx.w.Fatal(err)
	}
	ctx, cancel := patient()
	defer cancel()
	if err := tx.cl.ProduceSync(ctx, tx.w.records(0, values...)...).FirstErr(); err != nil {
		tx.w.Fatal(err)
	}
}

// end writes the transaction's marker.
func (tx *transactions) end(how kgo.TransactionEndTry) {
	tx.w.Helper()
	ctx, cancel := patient()
	defer cancel()
	if err := tx.cl.EndTransaction(ctx, how); err != nil {
		tx.w.Fatal(err)
	}
}

func (tx *transactions) commit(values ...string) { tx.begin(values...); tx.end(kgo.TryCommit) }
func (tx *transactions) abort(values ...string)  { tx.begin(values...); tx.end(kgo.TryAbort) }

// C2: what was committed is handled, what was aborted is not, and markers and aborted batches are no gaps: the commit passes
// over them to the end of the log, also where the log ends with one.
func TestReadsCommittedTransactions(t *testing.T) {
	w := newWorld(t, 1)
	tx := w.transactions()
	tx.commit(keyed(5, 2)...)  // 0-4, marker 5
	tx.abort(keyed(4, 2)...)   // 6-9, marker 10
	w.produce(0, "k=v")        // 11
	tx.commit(keyed(3, 20)...) // 12-14, marker 15
	l := w.ledger()
	m := w.start(w.config(l.keep(nil)))
	l.reaches(9)
	w.noLagLeft() // behind the marker of a commit
	if at := w.committed(0); at != 16 {
		t.Errorf("committed %d; the log ends at 16", at)
	}
	tx.abort(keyed(5, 5)...) // 16-20, marker 21
	w.noLagLeft()            // behind the marker of an abort, with nothing to handle before it
	if at := w.committed(0); at != 22 {
		t.Errorf("committed %d; the log ends at 22", at)
	}
	if s := m.partition(0); s.Lag != 0 || s.Frontier != 22 {
		t.Errorf("status %+v", s)
	}
	m.stop()
	if want := []int64{0, 1, 2, 3, 4, 11, 12, 13, 14}; !slices.Equal(l.offsets(0), want) {
		t.Errorf("handled %v, not %v", l.offsets(0), want)
	}
	m.quiet(engine.EventOpenTransaction, engine.EventStalled)
}

// C2: with ReadUncommitted the records of aborted and open transactions are handled as well, and markers are passed over.
func TestReadsUncommittedWhenAsked(t *testing.T) {
	w := newWorld(t, 1)
	tx := w.transactions()
	tx.commit(keyed(2, 2)...) // 0-1, marker 2
	tx.abort(keyed(2, 2)...)  // 3-4, marker 5
	tx.begin(keyed(2, 2)...)  // 6-7, open
	l := w.ledger()
	c := w.config(l.keep(nil))
	c.ReadUncommitted = true
	m := w.start(c)
	l.reaches(6)
	w.noLagLeft()
	tx.end(kgo.TryAbort)
	w.noLagLeft()
	m.stop()
	if want := []int64{0, 1, 3, 4, 6, 7}; !slices.Equal(l.offsets(0), want) {
		t.Errorf("handled %v, not %v", l.offsets(0), want)
	}
}

// C9: a transaction that nobody ends holds everything behind it back. That is said, and not taken for a fetch that stalls; the
// partition goes on when it is decided.
func TestOpenTransactionIsReported(t *testing.T) {
	t.Parallel() // it waits for the watchdog, which looks once a second, and at the log's end every five
	w := newWorld(t, 1)
	tx := w.transactions()
	w.produce(0, "k=0", "k=1")
	tx.begin("k=2")
	w.produce(0, "k=3", "k=4")
	l := w.ledger()
	c := w.config(l.keep(nil))
	c.StalledAfter = time.Second
	m := w.start(c)
	ev := m.hears(engine.EventOpenTransaction)
	if ev.Partition != 0 || ev.Offset != 2 || ev.Count != 3 {
		t.Errorf("event %+v", ev)
	}
	if s := m.partition(0); s.StableEnd != 2 || s.LogEnd != 5 || s.Lag != 3 {
		t.Errorf("status %+v", s)
	}
	if ok, problems := m.e.Healthy(); ok || len(problems) != 1 {
		t.Errorf("healthy %v: %v", ok, problems)
	}
	if got := fmt.Sprint(l.offsets(0)); got != "[0 1]" {
		t.Errorf("handled %s behind an open transaction", got)
	}
	tx.end(kgo.TryCommit)
	l.reaches(5)
	w.noLagLeft()
	m.becomesHealthy()
	m.stop()
	m.quiet(engine.EventStalled)
}
