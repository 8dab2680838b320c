package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// drain gives up what has not started, waits for running handlers and their outputs up to DrainTimeout, commits, and ends the
// epochs.
func (e *Engine) drain(ctx context.Context, eps []*epoch, why string) {
	if len(eps) == 0 {
		return
	}
	slices.SortFunc(eps, byName)
	begun := time.Now()
	deadline := begun.Add(e.cfg.DrainTimeout)
	var drained, elsewhere []*epoch
	for _, ep := range eps {
		if !ep.advance(phaseDraining) {
			elsewhere = append(elsewhere, ep) // a stop and a rebalance at once: the other one drains it, or it is lost
			continue
		}
		drained = append(drained, ep)
		ep.noStarts()
		if lane := ep.opened(); lane != nil {
			lane.Close()
		}
		e.giveUpParked(ep)
	}
	late := e.awaitDrained(ctx, drained, deadline)
	for _, ep := range late {
		ep.endCtx(errDrained)
	}
	for _, ep := range drained {
		ep.drained.Store(true)
	}
	// Both within the time that a commit may take: the group waits for a member's hand-over only so long.
	last, cancel := context.WithTimeout(ctx, e.cfg.CommitTimeout)
	defer cancel()
	if n := e.flushStore(last, e.cfg.CommitTimeout/2); n > 0 && why == "stop" {
		e.noteLastCommit(fmt.Errorf("the handlers of %d records are done, and the dedupe store could not make that durable", n))
	}
	unsaved := slices.ContainsFunc(drained, (*epoch).unsaved)
	if err := e.lastCommit(last, drained); err != nil {
		if why == "stop" && unsaved {
			e.noteLastCommit(err)
		}
		e.emit(Event{Name: EventCommitFailed, Err: err, Partition: -1, Hint: "on " + why + ": what was settled since the last commit is delivered again"})
	}
	for _, ep := range drained {
		offset := ep.frontier()
		acked := ep.committed()
		zombie := ep.running()
		e.end(ep, errDrained)
		name := EventRevoked
		if why == "stop" {
			name = EventReleased
		}
		ev := Event{Name: name, Topic: ep.topic, Partition: ep.partition, Offset: acked, Owner: ep.owner, Took: time.Since(begun)}
		if zombie {
			ev.Hint = fmt.Sprintf("handlers outlived the drain of %v; their records are delivered again", e.cfg.DrainTimeout)
			if isClosed(e.hardC) {
				ev.Hint = "stopped at once: handlers were still running; their records are delivered again"
			}
		}
		if acked < offset {
			ev.Hint += " the last commit was not acknowledged"
		}
		e.emit(ev)
	}
	e.awaitEnded(elsewhere, deadline.Add(e.cfg.CommitTimeout))
}

// unsaved says whether something was settled that is not committed; a start that is to be claimed is none.
func (ep *epoch) unsaved() bool {
	offset := ep.frontier()
	return offset > max(ep.committed(), 0)
}

// lastCommit commits for the last time. It tries again where the group is between two generations: there is no later commit
// that would make up for it.
func (e *Engine) lastCommit(ctx context.Context, eps []*epoch) error {
	for {
		err := e.commit(ctx, eps, e.cfg.CommitTimeout)
		if !errors.Is(err, kerr.RebalanceInProgress) && !errors.Is(err, kerr.IllegalGeneration) {
			return err
		}
		tick, stop := after(100 * time.Millisecond)
		select {
		case <-tick:
		case <-ctx.Done():
			stop()
			return err
		}
	}
}

// awaitEnded waits for epochs that another drain ends. A revoke that returned before would let the next owner begin, and the
// other drain's commit would rewind it.
func (e *Engine) awaitEnded(eps []*epoch, deadline time.Time) {
	timeout, stop := after(time.Until(deadline))
	defer stop()
	for _, ep := range eps {
		select {
		case <-ep.over():
		case <-timeout:
			for _, ep := range eps {
				e.end(ep, errDrained)
			}
			return
		}
	}
}

// awaitDrained waits for all lanes together, and returns the epochs that were not drained by the deadline.
func (e *Engine) awaitDrained(ctx context.Context, eps []*epoch, deadline time.Time) (late []*epoch) {
	timeout, stop := after(time.Until(deadline))
	defer stop()
	expired := false
	for _, ep := range eps {
		lane := ep.opened()
		if lane == nil {
			continue
		}
		if !expired {
			select {
			case <-lane.Drained():
				continue
			case <-timeout:
			case <-e.hardC:
			case <-ctx.Done():
			}
			expired = true
		}
		select {
		case <-lane.Drained():
		default:
			late = append(late, ep)
		}
	}
	return late
}

// abandoned lists what a stop leaves behind: the records that wait for nothing but an acknowledgement, or were given up as they
// did, and those whose handlers still run, over all epochs, ended ones as well.
func (e *Engine) abandoned() *AbandonedError {
	e.mu.Lock()
	left := slices.Clone(e.givenUp)
	e.mu.Unlock()
	for _, ep := range e.allEpochs() {
		ep.mu.Lock()
		for st := range ep.held {
			if st.waitsFor() != "" {
				left = append(left, st.abandoned())
			}
		}
		ep.mu.Unlock()
	}
	parked := len(left)
	e.pool.EachRunning(func(l *lane, in look, since time.Duration) {
		ep, it := l.Owner().(*epoch), itemOf(in)
		a := Abandoned{Topic: ep.topic, Partition: ep.partition, Offset: it.rec.Offset, For: WaitsForHandler, Running: since}
		if !slices.ContainsFunc(left[:parked], a.same) { // else its handler is done, and its worker about to leave it
			left = append(left, a)
		}
	})
	if len(left) == 0 {
		return nil
	}
	return &AbandonedError{Records: left}
}
