package engine

import (
	"github.com/gaplesshq/gapless/dedupe"
	"github.com/twmb/franz-go/pkg/kgo"
)

// batchState is what one worker needs at hand for batches, so that one costs no allocation. A pointer is stored only where it differs
// from the one that is there: while the collector marks, it is told of each.
type batchState struct {
	batch  Batch
	recs   []Record
	refs   []*Record    // to recs: the batch's, which its handler may cut
	owns   []kgo.Record // what recs point at
	lent   int          // of owns, not forgotten
	at     []int        // by record of the batch: its place in the task
	claims []dedupe.Claim
}

// begin makes an empty batch with room for n records.
func (s *batchState) begin(ep *epoch, n int) {
	b := &s.batch
	b.Topic, b.Partition = ep.topic, ep.partition
	if len(s.owns) < n {
		s.recs, s.owns = make([]Record, n), make([]kgo.Record, n)
		s.refs, b.errs = make([]*Record, n), make([]error, n)
		s.at, s.claims = make([]int, n), make([]dedupe.Claim, n)
	}
	if b.failed {
		clear(b.errs[:cap(b.errs)])
		b.failed = false
	}
	s.at = s.at[:0]
}

// add gives a record to the handler.
func (s *batchState) add(ep *epoch, at int, it *item, c dedupe.Claim) {
	j := len(s.at)
	s.at = append(s.at, at)
	if ep.keyed {
		s.claims[j] = c
	}
	r, own := &s.recs[j], &s.owns[j]
	lend(own, it.rec)
	r.Attempt = it.st.attempt()
	if r.Record != own || r.ep != ep {
		r.Record, r.ep = own, ep
	}
	if r.outs != nil { // of a handler that ended its goroutine
		r.outs = nil
	}
	if s.refs[j] != r {
		s.refs[j] = r
	}
}

// filled forgets what is left of a longer batch before this one.
func (s *batchState) filled() {
	n := len(s.at)
	if n < s.lent {
		clear(s.owns[n:s.lent])
	}
	s.lent = n
	s.batch.Records, s.batch.errs = s.refs[:n], s.batch.errs[:n]
}

// handleBatch is handle for a batch.
func (e *Engine) handleBatch(t *task, ep *epoch) {
	w := e.local(t.Worker())
	s := &w.batchState
	n := t.Len()
	if ep.suspected && n > 1 { // one at a time
		t.Return(1)
		n = 1
	}
	s.begin(ep, n)
	e.gather(t, ep, w, n)
	s.filled()
	if len(s.at) == 0 {
		return
	}
	b := &s.batch
	ctx := ep.ctx.Load()
	err := e.callBatch(ctx, ep, b)
	if ep.is(phaseClosed) {
		e.orphanBatch(t, ep, s, err)
		return
	}
	for j, i := range s.at {
		rerr := err
		if b.failed && b.errs[j] != nil {
			rerr = b.errs[j]
		}
		outs := s.takeOuts(j)
		if rerr == nil && len(outs) == 0 && !ep.keyed && !ep.suspected {
			t.Mark(i)
			continue
		}
		it, c := itemOf(t.Look(i)), s.claim(ep, j)
		switch {
		case rerr != nil:
			e.unclaim(c)
			e.failed(ctx, t, i, ep, &it, rerr)
			if e.cfg.Order == OrderPartition { // the first failure ends the batch
				for k := j + 1; k < len(s.at); k++ {
					e.unclaim(s.claim(ep, k))
					s.takeOuts(k)
				}
				if i+1 < n {
					t.Return(i + 1)
				}
				return
			}
		case len(outs) > 0:
			e.produceOutputs(t, i, ep, &it, outs, c)
		case c.Held():
			e.mark(ep, &it, c)
		case ep.suspected: // as in handle
			e.settle(ep, &it, settledHandled)
		default:
			t.Mark(i)
		}
	}
}

// claim is that of record j of the batch.
func (s *batchState) claim(ep *epoch, j int) dedupe.Claim {
	if ep.keyed {
		return s.claims[j]
	}
	return dedupe.Claim{}
}

// takeOuts are the outputs of record j of the batch, which has none any more.
func (s *batchState) takeOuts(j int) []*kgo.Record {
	outs := s.recs[j].outs
	if outs != nil {
		s.recs[j].outs = nil
	}
	return outs
}

// gather fills the batch with the records of the task that may be handled now.
func (e *Engine) gather(t *task, ep *epoch, w *workerState, n int) {
	byPartition := e.cfg.Order == OrderPartition
	special := !ep.plain()
	for i := range n {
		it := itemOf(t.Look(i))
		var claim dedupe.Claim
		// Records that were parked for their outputs or their dead letter go on where they were; only the rest is handled.
		if it.st != nil && e.resumeStage(t, i, ep, &it) {
			if byPartition { // it failed, so what follows it must wait
				if i+1 < n {
					t.Return(i + 1)
				}
				return
			}
			continue
		}
		if special {
			var res reserved
			if claim, res = e.admit(t, i, ep, &it, w); res != toRun {
				if byPartition && res != passed { // what follows it must wait
					if res == waiting && i+1 < n {
						t.Return(i + 1)
					}
					return
				}
				continue
			}
		}
		w.add(ep, i, &it, claim)
	}
}

// admit says whether a record of a batch may be handled, where there are reasons that speak against it.
func (e *Engine) admit(t *task, i int, ep *epoch, it *item, w *workerState) (dedupe.Claim, reserved) {
	if ep.keys != nil && e.bySpoiltKey(t, i, ep, it) || ep.suspected && !e.mayStart(t, i, ep, it) {
		return dedupe.Claim{}, passed
	}
	if !ep.keyed {
		return dedupe.Claim{}, toRun
	}
	return e.reserve(t, i, ep, it, w, e.cfg.Order == OrderPartition && len(w.at) > 0)
}

// orphanBatch is orphan for a batch. C3: its outcome is up to the next owner.
func (e *Engine) orphanBatch(t *task, ep *epoch, s *batchState, err error) {
	e.counts.stale.Add(int64(len(s.at)))
	ok := err == nil
	for j, i := range s.at {
		it, outs := itemOf(t.Look(i)), s.takeOuts(j)
		e.orphan(ep, &it, s.claim(ep, j), ok && s.batch.errs[j] == nil && len(outs) == 0)
		if s.batch.errs[j] != nil && e.cfg.Order == OrderPartition { // the first failure ends the batch: what follows was not handled
			ok = false
		}
	}
}
