package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/twmb/franz-go/pkg/kgo"
)

// workerState is what one worker needs at hand, so that a record costs no allocation.
type workerState struct {
	rec Record
	own kgo.Record // what rec points at: a handler may change its fields, the lane's record stays what it was
	key []byte     // of the record in hand
	batchState
	_ [64]byte // no false sharing with the next worker's
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

// handle is what a worker does with what it claimed: records, one after the other, or a batch.
func (e *Engine) handle(t *task) {
	ep := t.Lane().Owner().(*epoch)
	if ep.batch != nil {
		e.handleBatch(t, ep)
		return
	}
	w := e.local(t.Worker())
	r := &w.rec
	a := attempt{t: t, ep: ep, r: r}
	defer e.recovered(&a) // one for all of them: it costs as much as a handler that does little
	plain := ep.plain()
	for more := true; more; more = t.Next() {
		a.it = itemOf(t.Look(0))
		if a.claim.Held() {
			a.claim = dedupe.Claim{}
		}
		if (!plain || a.it.st != nil) && !e.cleared(&a, w) {
			continue
		}
		lend(&w.own, a.it.rec)
		if r.Record != &w.own || r.ep != ep { // a store of a pointer is not free, and a handler may have changed them
			r.Record, r.ep = &w.own, ep
		}
		r.Attempt = a.it.st.attempt()
		a.ctx = ep.ctx.Load()
		a.running = true
		var err error
		if e.cfg.HandlerTimeout > 0 {
			err = e.callWithin(a.ctx, func(ctx context.Context) error { return ep.single.Handle(ctx, r) })
		} else {
			err = ep.single.Handle(a.ctx, r)
		}
		a.running = false
		if plain && err == nil && r.outs == nil && !ep.is(phaseClosed) { // what conclude would do, for nearly all
			t.Mark(0)
			continue
		}
		e.conclude(&a, err)
	}
}

// plain says that a record of the epoch that comes for the first time may be handled, and is settled once it has been.
func (ep *epoch) plain() bool { return ep.keys == nil && !ep.keyed && !ep.suspected }

// attempt is the call of the handler that a worker is at.
type attempt struct {
	t       *task
	ep      *epoch
	r       *Record
	it      item
	claim   dedupe.Claim
	ctx     context.Context
	running bool // the handler has not returned
}

// cleared says whether the record may be handled now. What becomes of it otherwise is settled.
func (e *Engine) cleared(a *attempt, w *workerState) bool {
	ep := a.ep
	if a.it.st != nil && e.resumeStage(a.t, 0, ep, &a.it) {
		return false
	}
	if ep.keys != nil && e.bySpoiltKey(a.t, 0, ep, &a.it) {
		return false
	}
	if ep.suspected && !e.mayStart(a.t, 0, ep, &a.it) {
		return false
	}
	if ep.keyed {
		var res reserved
		a.claim, res = e.reserve(a.t, 0, ep, &a.it, w, false)
		return res == toRun
	}
	return true
}

// conclude decides what becomes of a record after an attempt.
func (e *Engine) conclude(a *attempt, err error) {
	t, ep, outs := a.t, a.ep, a.r.outs
	if outs != nil {
		a.r.outs = nil
	}
	if ep.is(phaseClosed) { // C3: its outcome is up to the next owner
		e.counts.stale.Add(1)
		e.orphan(ep, &a.it, a.claim, err == nil && len(outs) == 0)
		return
	}
	switch {
	case err != nil:
		e.unclaim(a.claim)
		e.failed(a.ctx, t, 0, ep, &a.it, err)
	case len(outs) > 0:
		e.produceOutputs(t, 0, ep, &a.it, outs, a.claim)
	case a.claim.Held():
		e.mark(ep, &a.it, a.claim)
	case ep.suspected: // now: the announcement of the next record is to say it, and not the chunk's end
		e.settle(ep, &a.it, settledHandled)
	default:
		t.Mark(0)
	}
}

// recovered takes up a record whose handler panicked; the worker goes on with the next one. It is to be deferred.
func (e *Engine) recovered(a *attempt) {
	if !a.running {
		return
	}
	p := recover()
	if p == nil {
		a.r.outs = nil    // the worker goes on with it
		e.fail(errGoexit) // nobody would settle the record, and nobody would know
		return
	}
	a.running = false
	e.conclude(a, &PanicError{Value: p, Stack: debug.Stack()})
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

// callBatch runs the handler on a batch.
func (e *Engine) callBatch(ctx context.Context, ep *epoch, b *Batch) (err error) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		} else if !returned {
			e.fail(errGoexit)
		}
	}()
	if e.cfg.HandlerTimeout > 0 {
		err = e.callWithin(ctx, func(ctx context.Context) error { return ep.batch.HandleBatch(ctx, b) })
	} else {
		err = ep.batch.HandleBatch(ctx, b)
	}
	returned = true
	return err
}

// callWithin calls with a context that ends after HandlerTimeout.
func (e *Engine) callWithin(ctx context.Context, call func(context.Context) error) error {
	c, cancel := context.WithTimeoutCause(ctx, e.cfg.HandlerTimeout, fmt.Errorf("gapless: the handler ran longer than HandlerTimeout (%v)", e.cfg.HandlerTimeout))
	defer cancel()
	return call(c)
}

// turn hears from a worker after each chunk: two clock reads serve up to 64 records.
func (e *Engine) turn(_ int, _ *lane, n int, elapsed time.Duration) {
	e.lat.observe(n, elapsed)
	e.sizes.observe(elapsed)
}

// left hears that a worker has nothing to do and goes. What it keeps must not pin its last fetch.
func (e *Engine) left(worker int) {
	w := e.local(worker)
	w.own = kgo.Record{}
	clear(w.owns[:w.lent])
	w.lent = 0
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
	st.lastErr = e.hide(err)
	if v, _ := steerOf(err); ctx.Err() != nil && v != verdictEnd {
		// The engine ended the attempt (drain, loss, suspension), so whatever the handler made of that is not the record's fault
		// and does not count. The record stays unsettled; if the epoch lives on (a suspension that ends) it is tried again.
		st.attempts.Add(-1)
		e.park(t, i, ep, it, st, stageRetry, 0)
		return
	}
	e.counts.failures.Add(1)
	ep.failures.Add(1)
	err = e.hide(e.classify(err))
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
