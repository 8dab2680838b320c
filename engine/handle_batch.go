package engine

import (
	"github.com/gaplesshq/gapless/dedupe"
	"github.com/twmb/franz-go/pkg/kgo"
)

// handleBatch is handle for a batch.
func (e *Engine) handleBatch(t *task, ep *epoch) {
	w := e.local(t.Worker())
	n := t.Len()
	if ep.suspected && n > 1 { // one at a time
		t.Return(1)
		n = 1
	}
	b := &w.batch
	b.Topic, b.Partition = ep.topic, ep.partition
	if cap(w.recs) < n {
		w.recs, w.owns = make([]Record, n), make([]kgo.Record, n)
	}
	w.recs, w.owns = w.recs[:n], w.owns[:n]
	defer clear(w.owns)
	b.Records, b.errs = b.Records[:0], append(b.errs[:0], make([]error, n)...)
	// Records that were parked for their outputs or their dead letter go on where they were; only the rest is handled.
	idx := make([]int, 0, n)
	w.held = w.held[:0]
	for i := range n {
		it := itemOf(t.Look(i))
		if it.st != nil && e.resumeStage(t, i, ep, &it) {
			if e.cfg.Order == OrderPartition { // it failed, so what follows it must wait
				if i+1 < n {
					t.Return(i + 1)
				}
				break
			}
			continue
		}
		if e.cfg.DeadLetter.AfterKey != KeyContinues && e.bySpoiltKey(t, i, ep, &it) {
			continue
		}
		if ep.suspected && !e.mayStart(t, i, ep, &it) {
			continue
		}
		var claim dedupe.Claim
		if ep.keyed {
			var res reserved
			byPartition := e.cfg.Order == OrderPartition
			if claim, res = e.reserve(t, i, ep, &it, w, byPartition && len(idx) > 0); res != toRun {
				if byPartition && res != passed { // what follows it must wait
					if res == waiting && i+1 < n {
						t.Return(i + 1)
					}
					break
				}
				continue
			}
		}
		w.held = append(w.held, claim)
		r := &w.recs[len(idx)]
		w.owns[len(idx)] = *it.rec
		*r = Record{Record: &w.owns[len(idx)], ep: ep, Attempt: it.st.attempt()}
		b.Records = append(b.Records, r)
		idx = append(idx, i)
	}
	if len(idx) == 0 {
		return
	}
	b.errs = b.errs[:len(idx)]
	ctx := ep.ctx.Load()
	err := e.call(ctx, ep, nil, b)
	if ep.is(phaseClosed) { // C3: its outcome is up to the next owner
		e.counts.stale.Add(int64(len(idx)))
		ok := err == nil
		for j, i := range idx {
			it := itemOf(t.Look(i))
			e.orphan(ep, &it, w.held[j], ok && b.errs[j] == nil && len(w.recs[j].outs) == 0)
			if b.errs[j] != nil && e.cfg.Order == OrderPartition { // the first failure ends the batch: what follows was not handled
				ok = false
			}
		}
		clear(w.recs)
		return
	}
	for j, i := range idx {
		it := itemOf(t.Look(i))
		rerr := b.errs[j]
		if rerr == nil {
			rerr = err
		}
		outs := w.recs[j].outs
		w.recs[j] = Record{}
		switch {
		case rerr != nil:
			e.unclaim(w.held[j])
			e.failed(ctx, t, i, ep, &it, rerr)
			if e.cfg.Order == OrderPartition { // the first failure ends the batch
				for _, c := range w.held[j+1:] {
					e.unclaim(c)
				}
				if i+1 < n {
					t.Return(i + 1)
				}
				return
			}
		case len(outs) > 0:
			e.produceOutputs(t, i, ep, &it, outs, w.held[j])
		case w.held[j].Held():
			e.mark(ep, &it, w.held[j])
		case ep.suspected: // as in handle
			e.settle(ep, &it, settledHandled)
		default:
			t.Mark(i)
		}
	}
}
