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

// Business keys: a record whose key was handled before, at whatever offset, is settled without its handler. A key is claimed
// before the handler runs and marked after it has succeeded; the record is settled once the mark is durable (C5).

// PayloadError is why a record was given up whose business key had been handled with another payload. With Config.HideKeys, Key is a
// stand-in.
type PayloadError struct{ Key []byte }

// Error implements error.
func (e *PayloadError) Error() string {
	return fmt.Sprintf("the business key %q was handled before with another payload", e.Key)
}

// RecordKey is a Dedupe.Key that takes the record's own key. Records without one, or with an empty one, have no business key.
func RecordKey(dst []byte, r *kgo.Record) []byte {
	if len(r.Key) == 0 {
		return nil
	}
	return append(dst, r.Key...)
}

// HeaderKey is a Dedupe.Key that takes the value of a header, the last one of that name. Records without it, or where it is
// empty, have no business key.
func HeaderKey(name string) func(dst []byte, r *kgo.Record) []byte {
	return func(dst []byte, r *kgo.Record) []byte {
		for i := len(r.Headers) - 1; i >= 0; i-- {
			if r.Headers[i].Key != name {
				continue
			}
			if len(r.Headers[i].Value) == 0 {
				return nil
			}
			return append(dst, r.Headers[i].Value...)
		}
		return nil
	}
}

// ended is a context that has ended: with it Room only looks.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// soon is how long a record waits that can't be looked up now.
const soon = 100 * time.Millisecond

// reserved is what became of a record's claim to its business key.
type reserved uint8

const (
	toRun    reserved = iota // its handler is to run
	passed                   // settled without it
	waiting                  // parked
	wentBack                 // it is behind another one of its batch that is to be settled first
)

// reserve claims a record's business key. behind says that it must not wait on its own, because an earlier record of its batch is to
// be settled first: then it goes back with what follows it.
func (e *Engine) reserve(t *task, i int, ep *epoch, it *item, w *workerState, behind bool) (dedupe.Claim, reserved) {
	s := e.marks.store
	if s.Room(ended) != nil && (s.Room(ep.business.starting) != nil || e.stopped(ep)) {
		if behind {
			t.Return(i)
			return dedupe.Claim{}, wentBack
		}
		e.park(t, i, ep, it, it.state(ep), stageRetry, soon)
		return dedupe.Claim{}, waiting
	}
	key, err := e.businessKey(w.key[:0], it.rec)
	switch {
	case err != nil && behind:
		t.Return(i)
		return dedupe.Claim{}, wentBack
	case err != nil:
		e.failed(ep.ctx.Load(), t, i, ep, it, err)
		return dedupe.Claim{}, waiting
	case len(key) == 0:
		e.noKey(ep, it)
		return dedupe.Claim{}, toRun
	}
	w.key = key
	k, fp := ep.business.scope.Key(key), s.Fingerprint(it.rec.Value)
	c, v, err := e.claimKey(ep, it.rec.Offset, k, fp, dedupe.Tag{})
	if behind && (err != nil || v != dedupe.Mine && (v != dedupe.Differs || e.cfg.Dedupe.OnDiffer != DifferRun)) {
		s.Release(c)
		t.Return(i)
		return dedupe.Claim{}, wentBack
	}
	switch {
	case errors.Is(err, dedupe.ErrUnavailable), errors.Is(err, dedupe.ErrClosed), errors.Is(err, dedupe.ErrFatal):
		e.park(t, i, ep, it, it.state(ep), stageRetry, soon)
	case err != nil: // nobody knows whether it was handled, so it is neither run nor passed
		st := it.state(ep)
		st.lastErr = err
		e.holdPartition(t, i, ep, it, st, fmt.Errorf("look up the business key: %w", err))
	case v == dedupe.Mine:
		return c, toRun
	case v == dedupe.Seen:
		e.marks.duplicates.Add(1)
		e.settle(ep, it, settledDuplicate)
		return dedupe.Claim{}, passed
	case v == dedupe.Busy:
		e.marks.waits.Add(1)
		st := it.state(ep)
		st.key, st.fingerprint = k, fp
		e.park(t, i, ep, it, st, stageDuplicate, 0)
	default:
		return e.differs(t, i, ep, it, c, key)
	}
	return dedupe.Claim{}, waiting
}

// stopped says whether anything has come up while a record waited for room that keeps it from starting.
func (e *Engine) stopped(ep *epoch) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.stops&stopsWork != 0 || e.clock.suspended.Load()
}

// state is what is known of a record, made where nothing was yet.
func (it *item) state(ep *epoch) *retryState {
	if it.st != nil {
		return it.st
	}
	return &retryState{ep: ep, seq: it.seq}
}

// claimKey claims a key, or claims it anew where an operator has had the marks below an offset forgotten.
func (e *Engine) claimKey(ep *epoch, offset int64, k dedupe.Key, fp uint64, waiter dedupe.Tag) (dedupe.Claim, dedupe.Verdict, error) {
	if offset < ep.bypassBelow {
		return e.marks.store.ClaimAnew(k, fp, waiter)
	}
	return e.marks.store.Claim(k, fp, waiter)
}

// businessKey calls Dedupe.Key, whose panic is an error of the attempt.
func (e *Engine) businessKey(dst []byte, r *kgo.Record) (key []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return e.cfg.Dedupe.Key(dst, r), nil
}

// noKey counts a record that has no business key, and says so of the first one of a topic: a mistyped header or path would
// otherwise let every duplicate through unseen.
func (e *Engine) noKey(ep *epoch, it *item) {
	e.marks.unkeyed.Add(1)
	if ep.unkeyed.Load() || !ep.unkeyed.CompareAndSwap(false, true) {
		return
	}
	e.once("unkeyed "+ep.topic, Event{Name: EventUnkeyed, Topic: ep.topic, Partition: ep.partition, Offset: it.rec.Offset,
		Hint: "the record has no business key (see Dedupe.Key): it is handled whether it is a duplicate or not, and so are others like it. /status and the series dedupe_unkeyed_total count them"})
}

// differs does what Dedupe.OnDiffer says with a record whose key was handled with another payload: it is never passed over
// silently.
func (e *Engine) differs(t *task, i int, ep *epoch, it *item, c dedupe.Claim, key []byte) (dedupe.Claim, reserved) {
	e.marks.differing.Add(1)
	err := &PayloadError{Key: append([]byte(nil), key...)}
	if e.hider != nil {
		err.Key = []byte(e.hider.hide(key))
	}
	if e.cfg.Dedupe.OnDiffer == DifferRun {
		return c, toRun
	}
	e.marks.store.Release(c)
	st := it.state(ep)
	st.lastErr = err
	if e.cfg.Dedupe.OnDiffer == DifferHold {
		e.holdPartition(t, i, ep, it, st, err)
	} else {
		e.giveUp(t, i, ep, it, st, err)
	}
	return dedupe.Claim{}, waiting
}

// subscribe waits for the record that holds a parked record's key. The key may have come free since.
func (e *Engine) subscribe(st *retryState) {
	m := &e.marks
	m.mu.Lock()
	if m.waiting == nil {
		m.waiting = map[uint64]*retryState{}
	}
	m.waiters++
	id := m.waiters
	m.waiting[id] = st
	st.waiter = id
	m.mu.Unlock()
	if st.isGone() { // given up before it could be forgotten
		e.unsubscribe(st)
		return
	}
	c, v, err := e.claimKey(st.ep, st.rec.Offset, st.key, st.fingerprint, dedupe.Tag{Seq: id})
	if err == nil && v == dedupe.Busy {
		return
	}
	m.mu.Lock()
	delete(m.waiting, id)
	m.mu.Unlock()
	m.store.Release(c)
	if err != nil {
		e.later(st, soon)
		return
	}
	e.unpark(st)
}

// unsubscribe forgets a record that is given up: its key may stay held for long.
func (e *Engine) unsubscribe(st *retryState) {
	m := &e.marks
	if m.store == nil {
		return
	}
	m.mu.Lock()
	delete(m.waiting, st.waiter)
	m.mu.Unlock()
}

// freed hears from the store that keys are free: who waited claims again.
func (e *Engine) freed(tags []dedupe.Tag) {
	m := &e.marks
	for _, tag := range tags {
		m.mu.Lock()
		st := m.waiting[tag.Seq]
		delete(m.waiting, tag.Seq)
		m.mu.Unlock()
		if st != nil {
			e.unpark(st)
		}
	}
}

// mark asks for the durable mark of a record whose work is done.
func (e *Engine) mark(ep *epoch, it *item, c dedupe.Claim) {
	e.marks.store.Mark([]dedupe.Completion{{Claim: c, Tag: dedupe.Tag{Owner: ep.owner.Sequence, Seq: uint64(it.seq)}}})
}

// marked hears from the store that marks are durable: now, and not before, their records are settled. After an error they never
// will be in this process; they stay unsettled.
func (e *Engine) marked(tags []dedupe.Tag, err error) {
	if err != nil {
		return
	}
	for len(tags) > 0 {
		n := 1
		for n < len(tags) && tags[n].Owner == tags[0].Owner {
			n++
		}
		e.marks.mu.Lock()
		ep := e.marks.owners[tags[0].Owner]
		e.marks.mu.Unlock()
		e.settleMarked(ep, tags[:n])
		tags = tags[n:]
	}
}
