package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/tracker"
	"github.com/gaplesshq/gapless/workers"
	"github.com/twmb/franz-go/pkg/kgo"
)

// workerState is what one worker needs at hand, so that a record costs no allocation.
type workerState struct {
	rec   Record
	own   kgo.Record // what rec points at: a handler may change its fields, the lane's record stays what it was
	batch Batch
	recs  []Record
	owns  []kgo.Record
	key   []byte         // of the record in hand
	held  []dedupe.Claim // of the batch in hand
	_     [64]byte       // no false sharing with the next worker's
}

// local returns the state of worker n.
func (e *Engine) local(n int) *workerState {
	if all := e.scratchP.Load(); all != nil && n < len(*all) {
		return (*all)[n]
	}
	e.growMu.Lock()
	defer e.growMu.Unlock()
	for len(e.scratch) <= n {
		e.scratch = append(e.scratch, &workerState{})
	}
	grown := e.scratch
	e.scratchP.Store(&grown)
	return e.scratch[n]
}

// handle is what a worker does with what it claimed: a record, or a batch.
func (e *Engine) handle(t *task) {
	ep := t.Lane().Owner().(*epoch)
	if ep.batch != nil {
		e.handleBatch(t, ep)
		return
	}
	w := e.local(t.Worker())
	it := itemOf(t.Look(0))
	if it.st != nil && e.resumeStage(t, 0, ep, &it) {
		return
	}
	if e.cfg.DeadLetter.AfterKey != KeyContinues && e.bySpoiltKey(t, 0, ep, &it) {
		return
	}
	if ep.suspected && !e.mayStart(t, 0, ep, &it) {
		return
	}
	var claim dedupe.Claim
	if ep.keyed {
		var res reserved
		if claim, res = e.reserve(t, 0, ep, &it, w, false); res != toRun {
			return
		}
	}
	r := &w.rec
	lend(&w.own, it.rec)
	r.Record, r.Attempt = &w.own, it.st.attempt()
	if r.ep != ep { // a store of a pointer is not free
		r.ep = ep
	}
	ctx := ep.ctx.Load()
	err := e.call(ctx, ep, r, nil)
	outs := r.outs
	if outs != nil {
		r.outs = nil
	}
	if ep.is(phaseClosed) { // C3: its outcome is up to the next owner
		e.counts.stale.Add(1)
		e.orphan(ep, &it, claim, err == nil && len(outs) == 0)
		return
	}
	switch {
	case err != nil:
		e.unclaim(claim)
		e.failed(ctx, t, 0, ep, &it, err)
	case len(outs) > 0:
		e.produceOutputs(t, 0, ep, &it, outs, claim)
	case claim.Held():
		e.mark(ep, &it, claim)
	default:
		t.Mark(0)
	}
}

// orphan does what is still right for a record whose epoch has ended: work that is done is marked, so that this host does not do
// it again.
func (e *Engine) orphan(ep *epoch, it *item, c dedupe.Claim, done bool) {
	switch {
	case !c.Held():
	case done:
		e.mark(ep, it, c)
	default:
		e.marks.store.Release(c)
	}
}

// unclaim lets another record with the same business key run.
func (e *Engine) unclaim(c dedupe.Claim) {
	if c.Held() {
		e.marks.store.Release(c)
	}
}

var errGoexit = errors.New("gapless: a handler ended its goroutine (runtime.Goexit, or testing's FailNow); return an error instead")

// call runs the handler on one record, or on a batch.
func (e *Engine) call(ctx context.Context, ep *epoch, r *Record, b *Batch) (err error) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		} else if !returned {
			e.fail(errGoexit) // nobody would settle the record, and nobody would know
		}
	}()
	if e.cfg.HandlerTimeout > 0 {
		c, cancel := context.WithTimeoutCause(ctx, e.cfg.HandlerTimeout, fmt.Errorf("gapless: the handler ran longer than HandlerTimeout (%v)", e.cfg.HandlerTimeout))
		defer cancel()
		ctx = c
	}
	if b != nil {
		err = ep.batch.HandleBatch(ctx, b)
	} else {
		err = ep.single.Handle(ctx, r)
	}
	returned = true
	return err
}

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
		default:
			t.Mark(i)
		}
	}
}

// turn hears from a worker after each chunk: two clock reads serve up to 64 records.
func (e *Engine) turn(worker int, _ *lane, n int, elapsed time.Duration) {
	e.local(worker).own = kgo.Record{} // or an idle worker would pin its last fetch
	e.lat.observe(worker, n, elapsed)
}

// settled says how a record came to its end.
type settled uint8

const (
	settledHandled settled = iota
	settledDeadLettered
	settledSkipped
	settledEarlier   // redelivered: an earlier owner has settled it
	settledDuplicate // its business key was handled before
)

// settleChunk settles what handlers have just finished without anything left to wait for, a chunk at a time: neighbours in
// delivery order cost one operation together. A chunk that hangs at a stuck record is told of what ran before it.
func (e *Engine) settleChunk(l *lane, done []workers.Span) {
	ep := l.Owner().(*epoch)
	settled := 0
	for _, s := range done {
		newly := ep.tr.DoneRange(tracker.Seq(s.First), s.N)
		if stale := s.N - newly; stale > 0 {
			e.counts.stale.Add(int64(stale))
		}
		settled += newly
	}
	e.countHandled(ep, settled)
	e.touchRow(ep)
	e.countTowardsCommit(settled)
}

// settleMarked settles records whose marks are durable; nil stands for an epoch that has ended.
func (e *Engine) settleMarked(ep *epoch, tags []dedupe.Tag) {
	settled := 0
	for i := range tags {
		if ep != nil && ep.tr.Done(tracker.Seq(tags[i].Seq)) {
			settled++
		}
	}
	if stale := len(tags) - settled; stale > 0 {
		e.counts.stale.Add(int64(stale))
	}
	if settled > 0 {
		e.countHandled(ep, settled)
		e.touchRow(ep)
		e.countTowardsCommit(settled)
	}
}

// countHandled counts records that handlers have settled.
func (e *Engine) countHandled(ep *epoch, n int) {
	ep.handled.Add(int64(n))
	ep.settled.handled.Add(int64(n))
}

// settle, with settleChunk, is the one place where a record is completed (design section 3): its handler returned nil and
// its outputs are acknowledged, or its dead letter is, or a policy skipped it. The completion of a dead epoch changes nothing but a
// counter.
func (e *Engine) settle(ep *epoch, it *item, how settled) {
	if it.st != nil && it.st.claim.Held() {
		c := it.st.claim
		it.st.claim = dedupe.Claim{}
		if how == settledHandled { // once its mark is durable
			e.mark(ep, it, c)
			return
		}
		e.marks.store.Release(c) // a dead letter leaves no mark, so that what is sent again runs
	}
	if !ep.tr.Done(it.seq) {
		e.counts.stale.Add(1)
		return
	}
	switch how {
	case settledHandled:
		e.countHandled(ep, 1)
	case settledDeadLettered:
		e.counts.deadLettered.Add(1)
	case settledSkipped:
		e.counts.skipped.Add(1)
	case settledEarlier:
		e.counts.passed.Add(1)
		ep.passed.Add(1)
	}
	e.touchRow(ep)
	e.countTowardsCommit(1)
}

// countTowardsCommit asks for a commit where settled records are a reason for one.
func (e *Engine) countTowardsCommit(settled int) {
	if records := int64(e.cfg.Commit.Records); records > 0 && e.counts.sinceCommit.Add(int64(settled)) >= records {
		e.counts.sinceCommit.Store(0)
		e.wakeCommit()
	}
	if e.cfg.Commit.Each {
		e.wakeCommit()
	}
}

// failed decides what becomes of a record whose attempt failed. ctx is what the attempt ran under, its own timeout aside.
func (e *Engine) failed(ctx context.Context, t *task, i int, ep *epoch, it *item, err error) {
	st := it.st
	if st == nil {
		st = &retryState{ep: ep, seq: it.seq}
	}
	e.unclaim(st.claim) // another record with its business key may run while this one waits
	st.claim = dedupe.Claim{}
	err = tame(err)
	attempts := int(st.attempts.Add(1))
	st.lastErr = err
	if v, _ := steerOf(err); ctx.Err() != nil && v != verdictEnd {
		// The engine ended the attempt (drain, loss, suspension), so whatever the handler made of that is not the record's fault
		// and does not count. The record stays unsettled; if the epoch lives on (a suspension that ends) it is tried again.
		st.attempts.Add(-1)
		e.park(t, i, ep, it, st, stageRetry, 0)
		return
	}
	e.counts.failures.Add(1)
	ep.failures.Add(1)
	err = e.classify(err)
	verdict, wait := steerOf(err)
	switch {
	case verdict == verdictSkip:
		e.emit(Event{Name: EventSkipped, Topic: ep.topic, Partition: ep.partition, Offset: it.rec.Offset, Err: err, Count: int64(st.attempts.Load())})
		e.settle(ep, it, settledSkipped)
	case verdict == verdictEnd:
		offset := it.rec.Offset
		e.park(t, i, ep, it, st, stageHeld, 0)
		e.fail(fmt.Errorf("gapless: %s[%d]@%d: the handler ended the engine: %w", ep.topic, ep.partition, offset, err))
	case verdict == verdictHold:
		e.holdPartition(t, i, ep, it, st, err)
	case verdict == verdictRetry && attempts < e.cfg.Retry.Attempts:
		if wait > 0 {
			wait = min(wait, e.cfg.Retry.MaxRetryAfter)
		} else {
			wait = e.cfg.Retry.delay(attempts)
		}
		e.counts.retries.Add(1)
		e.log.Debug().Str("topic", ep.topic).Int32("partition", ep.partition).Int64("offset", it.rec.Offset).Int("attempt", attempts).Dur("wait", wait).Err(err).Msg("retry")
		e.park(t, i, ep, it, st, stageRetry, wait)
	default:
		e.giveUp(t, i, ep, it, st, err)
	}
}

// classify lets Retry.Classify have its say.
func (e *Engine) classify(err error) (out error) {
	if e.cfg.Retry.Classify == nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			out = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if out = e.cfg.Retry.Classify(err); out == nil {
		return err
	}
	return tame(out)
}

// tame makes sure that the text of a handler's error can be had: a typed nil would panic wherever it is logged.
func tame(err error) (out error) {
	defer func() {
		if p := recover(); p != nil {
			out = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	_ = err.Error()
	return err
}

// giveUp does what DeadLetter.GiveUp says with a record whose attempts are spent.
func (e *Engine) giveUp(t *task, i int, ep *epoch, it *item, st *retryState, err error) {
	e.emit(Event{Name: EventRetryExhausted, Topic: ep.topic, Partition: ep.partition, Offset: it.rec.Offset, Err: err, Count: int64(st.attempts.Load())})
	switch e.cfg.DeadLetter.GiveUp {
	case GiveUpSkip:
		e.emit(Event{Name: EventSkipped, Topic: ep.topic, Partition: ep.partition, Offset: it.rec.Offset, Err: err, Count: int64(st.attempts.Load())})
		e.settle(ep, it, settledSkipped)
	case GiveUpHold:
		e.holdPartition(t, i, ep, it, st, err)
	default:
		e.rememberKey(ep, it)
		e.park(t, i, ep, it, st, stageDeadLetter, 0)
	}
}

// holdPartition stops the partition at this record.
func (e *Engine) holdPartition(t *task, i int, ep *epoch, it *item, st *retryState, err error) {
	offset := it.rec.Offset
	e.park(t, i, ep, it, st, stageHeld, 0)
	e.stop(ep, stopHold, err)
	e.emit(Event{Name: EventHeld, Topic: ep.topic, Partition: ep.partition, Offset: offset, Err: err,
		Hint: "nothing of the partition starts until Engine.Unhold or a restart"})
}
