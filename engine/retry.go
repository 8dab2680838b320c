package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/tracker"
	"github.com/gaplesshq/gapless/workers"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stage is what a parked record waits for.
type stage uint8

const (
	stageRetry      stage = iota // its next attempt
	stageOutputs                 // its outputs' acknowledgements
	stageDeadLetter              // its dead letter's acknowledgement
	stageHeld                    // an operator
	stageDuplicate               // the record that holds its business key
)

// retryState is what is known of a record beyond its first, successful attempt. It belongs to whoever works on the record: the
// worker that has it in hand, or the callback that its stage waits for. Fields under mu are shared with a drain.
type retryState struct {
	ep       *epoch
	seq      tracker.Seq
	attempts atomic.Int32 // that have failed; the watchdog looks, too
	lastErr  error
	rec      *kgo.Record // its own copy, while parked
	tries    int         // of writing what it waits for, that have failed
	failing  bool        // counted in its epoch's writeFailure; under ep.mu

	claim       dedupe.Claim // of its business key, while its outputs are being written
	key         dedupe.Key   // that another record holds
	fingerprint uint64
	waiter      uint64 // under which it waits for that; under marks.mu

	mu        sync.Mutex
	stage     stage
	ticket    workers.Ticket
	timer     *time.Timer
	outs      []*kgo.Record // outputs that are to be written
	pending   int           // outputs that have not been answered
	outErr    error
	outFailed []bool                  // which of outs; nil = none
	writing   bool                    // its outputs or its dead letter are being written
	cancel    context.CancelCauseFunc // ends that
	admitted  bool                    // the breaker let its dead letter pass
	omit      bool                    // the dead letter goes without key and value
	gone      bool                    // given up, or resumed: a timer or an acknowledgement that comes late does nothing
}

// attempt is the number of the attempt that begins now.
func (st *retryState) attempt() int {
	if st == nil {
		return 1
	}
	return int(st.attempts.Load()) + 1
}

// acking says whether the record's work is done but for an acknowledgement: a drain waits for that.
func (st *retryState) acking() bool { return st.stage == stageOutputs || st.stage == stageDeadLetter }

// underway says whether that acknowledgement is on its way: the write may also wait for its next try, or for a breaker.
func (st *retryState) underway() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.acking() && st.writing
}

// waitsFor names the acknowledgement that is the last thing the record waits for; "" = it waits for something else.
func (st *retryState) waitsFor() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.stage == stageOutputs:
		return WaitsForOutputs
	case st.stage == stageDeadLetter && st.admitted:
		return WaitsForDeadLetter
	}
	return ""
}

// delay is the time before the next attempt after n failed ones.
func (r *Retry) delay(n int) time.Duration {
	d := r.Base
	for i := 1; i < n && d < r.Max; i++ {
		d *= 2
	}
	d = min(d, r.Max)
	if r.Jitter > 0 {
		d -= time.Duration(rand.Float64() * r.Jitter * float64(d))
	}
	return max(d, 1)
}

// park takes a record off its worker. It keeps its place in the tracker and its key, and gets memory of its own: one kept
// record would pin its whole fetch.
func (e *Engine) park(t *task, i int, ep *epoch, it *item, st *retryState, what stage, wait time.Duration) {
	old := it.rec
	if old.Context != nil || st.rec == nil {
		st.rec = cloneRecord(old)
	}
	st.mu.Lock()
	st.stage, st.gone, st.tries = what, false, 0
	st.ticket = t.Hold(i, st.rec, st)
	st.mu.Unlock()
	if old != st.rec {
		e.records.ReleaseOne(old)
	}
	if !ep.hold(st) {
		e.letGo(st)
		return
	}
	switch what {
	case stageRetry:
		e.later(st, wait)
	case stageOutputs, stageDeadLetter:
		e.write(st)
	case stageDuplicate:
		e.subscribe(st)
	}
}

// later resumes a parked record after a time.
func (e *Engine) later(st *retryState, wait time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.gone {
		return
	}
	st.timer = time.AfterFunc(wait, func() { e.unpark(st) })
}

// take makes the caller the one who decides what becomes of a parked record; false = somebody else was first.
func (st *retryState) take() (workers.Ticket, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.gone {
		return workers.Ticket{}, false
	}
	st.gone = true
	return st.ticket, true
}

func (st *retryState) isGone() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.gone
}

// unpark lets a parked record run again.
func (e *Engine) unpark(st *retryState) {
	ticket, ok := st.take()
	if !ok {
		return
	}
	e.unclaim(st.claim) // its outputs have failed; should its lane close before it runs, nobody else would
	st.claim = dedupe.Claim{}
	e.unhold(st)
	e.pool.Resume(ticket)
}

// complete settles a parked record and frees its key.
func (e *Engine) complete(st *retryState, how settled) {
	ticket, ok := st.take()
	if !ok {
		return
	}
	e.unhold(st)
	e.settle(st.ep, &item{rec: st.rec, seq: st.seq, st: st}, how)
	e.pool.Finish(ticket)
}

// unhold takes a record off its epoch's list of what is parked.
func (e *Engine) unhold(st *retryState) {
	if st.ep.unhold(st) {
		e.touch(st.ep)
		e.wakeFlow()
	}
}

// letGo gives a parked record up, unsettled: it is delivered again, here or elsewhere.
func (e *Engine) letGo(st *retryState) {
	ticket, ok := st.take()
	if !ok {
		return
	}
	st.mu.Lock()
	if st.timer != nil {
		st.timer.Stop()
	}
	if st.cancel != nil {
		st.cancel(nil)
	}
	st.mu.Unlock()
	e.unclaim(st.claim)
	e.unsubscribe(st)
	if st.waitsFor() != "" {
		e.gaveUp(st)
	}
	e.unhold(st)
	e.pool.Finish(ticket)
}

// gaveUp keeps, at a stop, which records it left behind although their handlers were done.
func (e *Engine) gaveUp(st *retryState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		e.givenUp = append(e.givenUp, st.abandoned())
	}
}

func (st *retryState) abandoned() Abandoned {
	return Abandoned{Topic: st.ep.topic, Partition: st.ep.partition, Offset: st.rec.Offset, For: st.waitsFor()}
}

// parkedAt lists what is parked at a stage.
func (ep *epoch) parkedAt(s stage) (parked []*retryState) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for st := range ep.held {
		if st.stage == s {
			parked = append(parked, st)
		}
	}
	return parked
}

// giveUpParked lets go of what waits for a retry or an operator, and, once the epoch is closed or a stop's deadline has come, also
// of what waits for an acknowledgement: a drain waits for outputs, not for parked work (C8).
func (e *Engine) giveUpParked(ep *epoch) {
	closed := ep.is(phaseClosed) || isClosed(e.hardC)
	ep.mu.Lock()
	var waiting []*retryState
	for st := range ep.held {
		if closed || !st.underway() {
			waiting = append(waiting, st)
		}
	}
	ep.mu.Unlock()
	for _, st := range waiting {
		e.letGo(st)
	}
}

// resumeStage goes on with a record that was parked for something else than its next attempt. It says whether it did.
func (e *Engine) resumeStage(t *task, i int, ep *epoch, it *item) bool {
	switch it.st.stage {
	case stageOutputs: // they could not be written: the attempt failed
		err := &ownError{fmt.Errorf("write an output: %w", it.st.outErr)}
		it.st.outErr = nil
		e.failed(context.Background(), t, i, ep, it, err)
		return true
	case stageHeld: // an operator lets it try again, with all its attempts
		it.st.attempts.Store(0)
		it.st.stage = stageRetry
		ep.crash.forgive(it.rec.Offset)
		return false
	}
	return false
}
