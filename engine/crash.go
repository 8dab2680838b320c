package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
)

// uncleanLimit is how many assignments in a row must have ended uncleanly at one frontier before its records are suspected. One
// happens: a node is lost, memory was short.
const uncleanLimit = 2

// crashes is what a partition's commits say of assignments that did not end cleanly (design section 7). A record that ends the
// process would otherwise be redelivered to the next process for ever. So the claim of an assignment counts itself as unclean
// until a clean end takes that back, and where too many were left at the same frontier the unfinished records run one at a
// time, each announced by an acknowledged commit before it starts.
type crashes struct {
	mu      sync.Mutex
	unclean uint32 // claims at this frontier, this assignment's own included
	tries   uint32 // how often trying was announced
	from    int64  // the frontier at the claim
	trying  int64  // announced last, here or by an earlier owner; -1 = none
	started int64  // announced here; -1 = none
	reach   int64  // records below it are suspected
	asked   bool   // for the end of the investigation
}

// find takes over what the group's commit says. It precedes begin.
func (c *crashes) find(w *window.Window) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unclean, c.trying, c.tries = w.Unclean, w.Trying, w.Tries
}

// begin counts the assignment in, and says whether the records from its start on are suspected. What was under way when the
// process ended lies below reach.
func (c *crashes) begin(from, reach int64) (suspected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tries == 0 || c.trying < from {
		c.trying, c.tries = -1, 0
	}
	c.from, c.started = from, -1
	if c.unclean >= uncleanLimit && reach > from {
		c.reach = reach
	}
	c.unclean++
	return c.reach > 0
}

// goOn begins another epoch of the same assignment, where suspicion goes on if it has not been lifted.
func (c *crashes) goOn(from int64, old *crashes, lifted bool) (suspected bool) {
	old.mu.Lock()
	defer old.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.from, c.unclean, c.started, c.trying = from, old.unclean, -1, -1
	if from > old.from {
		c.unclean = 1
	}
	if !lifted {
		c.trying, c.tries, c.started, c.reach = old.trying, old.tries, old.started, old.reach
	}
	return c.reach > 0
}

// tell adds to a window what the next owner is to know. A clean end clears the count; progress begins it anew.
func (c *crashes) tell(w *window.Window, clean bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case clean:
		return
	case w.Frontier > c.from:
		w.Unclean = min(c.unclean, 1)
	default:
		w.Unclean = c.unclean
	}
	if c.tries > 0 && c.trying >= w.Frontier {
		w.Trying, w.Tries = c.trying, c.tries
	}
}

// announce notes that a record is about to start, unless it was announced here before. It says how often earlier processes have
// announced it.
func (c *crashes) announce(offset int64) (fresh bool, before uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset >= c.reach || offset == c.started {
		return false, 0
	}
	if offset == c.trying {
		return true, c.tries
	}
	return true, 0
}

func (c *crashes) announced(offset int64, tries uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trying, c.tries = offset, tries
}

// forgive lets a record be announced as often as if it never had been.
func (c *crashes) forgive(offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trying == offset {
		c.tries = 0
	}
}

func (c *crashes) start(offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = offset
}

// passed says whether everything that was suspected is settled.
func (c *crashes) passed(frontier int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return frontier >= c.reach
}

// mayEnd says, once, that the record about to start is not suspected and that everything that was is settled.
func (c *crashes) mayEnd(offset, frontier int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked || offset < c.reach || frontier < c.reach {
		return false
	}
	c.asked = true
	return true
}

func (c *crashes) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.unclean)
}

// CrashLoopError is why a record was given up that had been announced too often: each time the process ended while it was being
// handled.
type CrashLoopError struct {
	Times int // how often its handler was started and the process ended
}

// Error implements error.
func (e *CrashLoopError) Error() string {
	return fmt.Sprintf("the process ended %d times while this record was being handled", e.Times)
}

// suspect begins a crash loop's investigation where the commits give a reason for it.
func (e *Engine) suspect(ep *epoch, from int64) {
	reach := from
	if w := ep.before.Load(); w != nil {
		reach = max(reach, w.Highest+1)
	}
	reach = min(reach+int64(e.cfg.PartitionRecords), ep.hwm.Load())
	if ep.suspected = ep.crash.begin(from, reach); ep.suspected {
		e.emit(Event{Name: EventCrashLoop, Topic: ep.topic, Partition: ep.partition, Offset: from, Count: int64(ep.crash.count() - 1),
			Hint: "assignments that began here ended without a clean stop: up to the last record that may have been under way, records now run one at a time, each announced before it starts; one that ends the process again and again is given up"})
	}
}

// mayStart says whether a suspected record may be handled now. It is announced first, and a record that has been announced as
// often as Retry.Attempts allows is given up instead.
func (e *Engine) mayStart(t *task, i int, ep *epoch, it *item) bool {
	offset := it.rec.Offset
	fresh, before := ep.crash.announce(offset)
	if !fresh && !ep.crash.mayEnd(offset, ep.frontier()) {
		return true
	}
	st := it.st
	if st == nil {
		st = &retryState{ep: ep, seq: it.seq}
	}
	if !fresh {
		e.park(t, i, ep, it, st, stageRetry, liftWithin) // a start now would be cut short by it
		e.late.lift(ep)
		return false
	}
	if int(before) >= e.cfg.Retry.Attempts {
		st.lastErr = &CrashLoopError{Times: int(before)}
		st.attempts.Store(int32(before))
		e.giveUp(t, i, ep, it, st, st.lastErr)
		return false
	}
	ep.crash.announced(offset, before+1)
	ctx := ep.ctx.Load()
	err := e.makeDurable(ctx)
	if err == nil {
		err = e.commit(ctx, []*epoch{ep}, e.cfg.CommitTimeout)
	}
	if err == nil && ep.is(phaseClosed) { // nothing was sent
		err = errLost
	}
	if err != nil {
		ep.crash.announced(offset, before) // it has not started
		if ctx.Err() == nil {
			e.log.Debug().Str("topic", ep.topic).Int32("partition", ep.partition).Int64("offset", offset).Err(err).Msg("announce")
		}
		e.park(t, i, ep, it, st, stageRetry, time.Second)
		return false
	}
	if !ep.told(offset) { // the commit went out without its metadata
		e.once("announce:"+ep.topic, Event{Name: EventCrashLoop, Topic: ep.topic, Partition: ep.partition, Offset: offset,
			Hint: "the broker does not keep the metadata of commits, so a record that ends the process can't be told from the others"})
	}
	ep.crash.start(offset)
	return true
}

// makeDurable has what ended before be in the commit that announces a record. Else the next process would handle it again first, and
// its announcement would take the place of that of the record which ends the process.
func (e *Engine) makeDurable(ctx context.Context) error {
	if e.marks.store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.CommitTimeout)
	defer cancel()
	return e.marks.store.Flush(ctx)
}

// told says whether the group's commit names the record that is about to start.
func (ep *epoch) told(offset int64) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.said.trying == offset
}

// lift ends the investigation where everything suspected is settled: a new epoch goes on in the configured order. It is part of the
// fetch loop, as the records come that it is for, or once the lane has come to what is not suspected: much may wait there.
func (e *Engine) lift(ep *epoch) (next *epoch, again bool) {
	frontier := ep.frontier()
	if !ep.crash.passed(frontier) {
		return ep, false
	}
	_, at := ep.tr.Next()
	return e.renew(ep, at, -1, renewedCleared)
}

// liftWithin is how long the first record that is not suspected waits for the fetch loop to lift the suspicion; it then runs as those
// before it did.
const liftWithin = time.Second

// renewedCleared is the reason for an epoch that follows a crash loop's investigation.
const renewedCleared = "nothing suspected is left"
