package engine

import (
	"context"
	"fmt"

	"github.com/gaplesshq/gapless/workers"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produceOutputs writes what a handler emitted. The record is parked until all of it is acknowledged: it keeps its key, not
// its worker.
func (e *Engine) produceOutputs(t *workers.Task[item], i int, ep *epoch, it *item, outs []*kgo.Record) {
	st := it.st
	if st == nil {
		st = &retryState{ep: ep, seq: it.seq}
	}
	st.pending, st.outErr = len(outs), nil
	e.park(t, i, ep, it, st, stageOutputs, 0)
	for _, out := range outs {
		e.side.Produce(context.Background(), out, func(_ *kgo.Record, err error) { e.outputDone(st, err) })
	}
}

func (e *Engine) outputDone(st *retryState, err error) {
	st.mu.Lock()
	st.pending--
	if err != nil && st.outErr == nil {
		st.outErr = fmt.Errorf("write an output: %w", err)
	}
	last, failed := st.pending == 0, st.outErr != nil
	st.mu.Unlock()
	if !last {
		return
	}
	if failed {
		e.unpark(st)
		return
	}
	e.counts.outputs.Add(1)
	e.complete(st, settledHandled)
}

// flush waits for what is still being produced, for CommitTimeout at most.
func (e *Engine) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.CommitTimeout)
	defer cancel()
	if err := e.side.Flush(ctx); err != nil {
		e.emit(Event{Name: EventFlushFailed, Err: err, Partition: -1, Took: e.cfg.CommitTimeout, Hint: "outputs of records that are not settled were not written"})
	}
}
