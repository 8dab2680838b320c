package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// roomWait is how long a record's outputs or its dead letter wait for room in the producer's buffer; then they are tried again
// later.
const roomWait = 5 * time.Second

// outputLinger is how long an output waits for others that go with it.
const outputLinger = 5 * time.Millisecond

// writeBackoffMax bounds the time between two tries of a write, and so how long its partition holds once the topic is back.
const writeBackoffMax = 5 * time.Second

var errNoRoom = fmt.Errorf("the producer's buffer has been full for %v", roomWait)

// forRoom is a context to produce under. It ends after roomWait unless entered is called before: everything is in the buffer.
func forRoom() (ctx context.Context, cancel context.CancelCauseFunc, entered func() bool) {
	ctx, cancel = context.WithCancelCause(context.Background())
	return ctx, cancel, time.AfterFunc(roomWait, func() { cancel(errNoRoom) }).Stop
}

// orNoRoom is err, or that there was no room where that is what ended ctx.
func orNoRoom(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errNoRoom) {
		return errNoRoom
	}
	return err
}

// writeFailure is what of an epoch can't be written now, be it outputs or dead letters.
type writeFailure struct {
	n   int // records that wait for the next try
	err error
}

// produceOutputs writes what a handler emitted. The record is parked until all of it is acknowledged: it keeps its key, not
// its worker.
func (e *Engine) produceOutputs(t *task, i int, ep *epoch, it *item, outs []*kgo.Record, claim dedupe.Claim) {
	st := it.state(ep)
	st.outs, st.outErr, st.claim = outs, nil, claim
	e.park(t, i, ep, it, st, stageOutputs, 0)
}

// writeOutputs writes those outputs of a parked record that are still to be written.
func (e *Engine) writeOutputs(st *retryState) {
	st.mu.Lock()
	if st.gone || st.writing {
		st.mu.Unlock()
		return
	}
	ctx, cancel, entered := forRoom()
	outs := st.outs
	st.outFailed, st.outErr, st.pending = nil, nil, len(outs)
	st.writing, st.cancel = true, cancel
	st.mu.Unlock()
	cl, err := e.outs.get(&e.cfg)
	for i, out := range outs {
		if err != nil {
			e.outputDone(st, i, err)
			continue
		}
		if ctx.Err() != nil { // none may overtake an earlier one
			e.outputDone(st, i, context.Cause(ctx))
			continue
		}
		c := *out // what the client notes in a record must not show in the next try
		if c.Context != nil {
			c.Context = context.WithoutCancel(c.Context) // the handler's ends with the handler
		}
		cl.Produce(ctx, &c, func(_ *kgo.Record, err error) {
			e.outs.failed(cl, err)
			e.outputDone(st, i, refusedWrite("output topic", out.Topic, orNoRoom(ctx, err)))
		})
	}
	entered()
}

// outputDone notes the answer to the i-th output that is being written.
func (e *Engine) outputDone(st *retryState, i int, err error) {
	st.mu.Lock()
	st.pending--
	if err != nil {
		if st.outFailed == nil {
			st.outFailed = make([]bool, len(st.outs))
		}
		st.outFailed[i] = true
		if st.outErr == nil || passes(st.outErr) {
			st.outErr = err
		}
	}
	last := st.pending == 0
	if last {
		st.writing = false
		st.outs = toRewrite(st.outs, st.outFailed)
	}
	err = st.outErr
	st.mu.Unlock()
	switch {
	case !last:
	case err == nil:
		e.complete(st, settledHandled)
	case passes(err):
		e.writeFailed(st, err)
	default:
		e.unpark(st)
	}
}

// outputPlace is where the order of a record's outputs is promised: a key of a topic, or what of a topic has no key.
type outputPlace struct {
	topic, key string
	keyed      bool
}

// toRewrite lists, in the order in which they were emitted, the outputs that failed and those that follow one that did to the same
// place. The latter are there already, before it, so they are written once more behind it: a reader may see them twice, but what it sees
// last is what was emitted last.
func toRewrite(outs []*kgo.Record, failed []bool) (again []*kgo.Record) {
	if failed == nil {
		return nil
	}
	behind := map[outputPlace]bool{}
	for i, out := range outs {
		at := outputPlace{out.Topic, string(out.Key), out.Key != nil}
		if behind[at] = behind[at] || failed[i]; behind[at] {
			again = append(again, out)
		}
	}
	return again
}

// forbidden says whether a right is missing for a write, of which the broker refuses the record or already the producer's id.
func forbidden(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed)
}

// refusedWrite names the right that is missing where that is why a write failed to a topic, which is of a kind.
func refusedWrite(kind, topic string, err error) error {
	if !forbidden(err) {
		return err
	}
	also := ""
	if errors.Is(err, kerr.ClusterAuthorizationFailed) {
		also = " (brokers before Kafka 3.0 want IDEMPOTENT_WRITE on the cluster, too)"
	}
	return fmt.Errorf("grant WRITE and DESCRIBE on %s %q to this user%s: %w", kind, topic, also, err)
}

// passes says whether an error of a write is about the topic, this user's rights or the brokers rather than about what is written:
// it is worth trying again for as long as it takes, and not the record's fault.
func passes(err error) bool {
	var network net.Error
	return kerr.IsRetriable(err) || forbidden(err) || errors.As(err, &network) || errors.Is(err, errNoRoom) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, kgo.ErrRecordTimeout) || errors.Is(err, kgo.ErrRecordRetries) || errors.Is(err, kgo.ErrMaxBuffered) ||
		errors.Is(err, kgo.ErrAborting) || errors.Is(err, kgo.ErrClientClosed)
}

// write writes what a parked record waits for.
func (e *Engine) write(st *retryState) {
	if st.stage == stageOutputs {
		e.writeOutputs(st)
		return
	}
	e.writeDeadLetter(st)
}

// writeFailed tries a write again later. Meanwhile the partition fetches nothing, and the engine is not healthy. st.writing is
// false by now, so that either this or a drain that has begun lets the record go.
func (e *Engine) writeFailed(st *retryState, err error) {
	wait := 100 * time.Millisecond
	if !errors.Is(err, context.Canceled) { // that comes of another record's end, which was in the same batch
		wait = e.noteWriteFailure(st, err)
	}
	if phase(st.ep.phase.Load()) >= phaseDraining { // a drain waits for acknowledgements, not for the next try
		e.letGo(st)
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.gone {
		st.timer = time.AfterFunc(wait, func() { e.write(st) })
	}
}

// noteWriteFailure makes a failed write visible, and returns the time before the next try.
func (e *Engine) noteWriteFailure(st *retryState, err error) time.Duration {
	ep := st.ep
	st.tries++
	ep.mu.Lock()
	if _, held := ep.held[st]; held {
		f, why := ep.writeFailure(st.stage)
		if !st.failing {
			st.failing = true
			f.n++
		}
		f.err = err
		ep.stops |= why
		ep.trouble().stopErr = err
	}
	ep.mu.Unlock()
	e.touch(ep)
	ev := Event{Name: EventOutputFailed, Topic: ep.topic, Partition: ep.partition, Offset: st.rec.Offset, Err: err, Count: int64(st.tries),
		Hint: "the partition holds and the write is tried again with backoff; check the topic that the outputs go to, and this user's rights to it"}
	if st.stage == stageDeadLetter {
		e.counts.deadLetterFailures.Add(1)
		ev.Name, ev.Hint = EventDeadLetterFailed, "the partition holds and the write is tried again with backoff; check the dead-letter topic, its ACLs and its size limit"
	}
	if st.tries == 1 || st.tries%10 == 0 {
		e.emit(ev)
	}
	e.flowNow()
	return min(time.Second<<min(st.tries-1, 3), writeBackoffMax)
}

// writeFailure is where the failures of a stage are noted, and the reason to pause that goes with them. ep.mu is held.
func (ep *epoch) writeFailure(s stage) (*writeFailure, stopReason) {
	if s == stageOutputs {
		return &ep.trouble().outputs, stopOutputs
	}
	return &ep.trouble().deadLetters, stopDeadLetter
}

// written forgets that a record's write was failing, where it was. It says whether that was the last such record, so that
// fetching may go on. ep.mu is held.
func (ep *epoch) written(st *retryState) (last bool) {
	if !st.failing {
		return false
	}
	st.failing = false
	f, why := ep.writeFailure(st.stage)
	if f.n--; f.n > 0 {
		return false
	}
	f.err = nil
	ep.stops &^= why
	return true
}

// flush waits for what is still being produced, for CommitTimeout at most.
func (e *Engine) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.CommitTimeout)
	defer cancel()
	if err := e.flushAll(ctx); err != nil {
		e.emit(Event{Name: EventFlushFailed, Err: err, Partition: -1, Took: e.cfg.CommitTimeout, Hint: "outputs of records that are not settled were not written"})
	}
}
