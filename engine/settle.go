package engine

import (
	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/tracker"
	"github.com/gaplesshq/gapless/workers"
)

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

// settle, with settleChunk and settleMarked, is the one place where a record is completed (design section 3): its handler returned nil and
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
