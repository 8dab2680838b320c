package workers

// What these tests can see. Each of these changes was made to the package for a moment, and the tests named failed
// (R: TestRandomSchedules, with the race detector):
//
//   - the key table trusts the hash and compares no bytes: SlowKeyHoldsUpNoOther
//   - an item joins a chunk if its key's last item is claimed by any worker, not by this one: DecidedBeforeReturn
//   - recall gives items back as ready although an earlier one of their key runs on: HeldItemKeepsItsKeyAndNoWorker, Pause
//   - the monitor recalls nothing: EachRunning, and StuckRecordHoldsUpNothing hangs
//   - recall does not complete what has been run: HeldItemHoldsThePartition, R
//   - Close frees the keys that still run: KeysOutliveTheirLane, R
//   - Close does not recall chunks: ClosedLaneStartsNothing, R
//   - Hold lets the rest of the chunk go on: HeldItemKeepsItsKeyAndNoWorker, HeldItemHoldsThePartition, R
//   - no limit per lane: LimitsUpAndDown, R; workers over the limit stay: LimitsUpAndDown
//   - SetLimit does not recall chunks: LoweredLimitStopsChunks
//   - Resume and Finish list no lane (a lost wake-up): HeldItemKeepsItsKeyAndNoWorker, ManyFailures, R and more
//   - a held item does not hold its partition: HeldItemHoldsThePartition, KeysOutliveTheirLane, R
//   - a resumed item goes behind the others of its partition: BatchByPartitionFails, HeldItemHoldsThePartition, R
//   - a worker stays with a lane until it is empty: DeepLaneDoesNotStarveOthers, ManyLanesShareOneWorker
//   - a worker that arrives does not hire the next: LimitsUpAndDown
//   - an item that is finished early is released twice: DecidedBeforeReturn, R
//   - an item is released under the lock, before its key is free: hangs
//   - batches do not linger: BatchSizeOrLinger
//   - the monitor never rests: MonitorRests
//   - an idle lane keeps its memory: IdleLanesAreCheap, ManyFailures; slots are not used again: StuckHeadCostsNoMemory
//   - Low is called again and again: Marks, R
//   - nil is a key, or an empty key is none: NoKeyAndEmptyKey
//   - what a recall takes back of a run goes behind the others, or is numbered anew; a run is taken by key: R and more
//   - marks of an earlier chunk count, or those of items that a closed lane gives up: Completed, R
//   - an item of a run that is held is shown as it was pushed: HoldReplacesTheItem
//   - a lane opened with another order does not wait for the old items: KeysOutliveTheirLane

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestRandomSchedules (C6, C7, C8) drives a pool with random steps and compares what it does with a plain oracle:
//
//   - every pushed item is handled to its end exactly once or released without, and released exactly once;
//   - the items of a key start in push order and never overlap, holds, returns and reopened lanes included;
//   - what a handler marked, and neither held nor gave back, Completed is told of once, before its release;
//   - nothing is read after its release (Release spoils the record, so the race detector sees a late read);
//   - Total and PerLane are not exceeded, and paused or closed lanes start nothing;
//   - Len is exact at rest, Drained is closed exactly when it should be, and at the end nothing is left.
//
// GAPLESS_SEED repeats a run.
func TestRandomSchedules(t *testing.T) {
	seed, rounds := uint64(time.Now().UnixNano()), 200
	if s := os.Getenv("GAPLESS_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("GAPLESS_SEED: %v", err)
		}
		seed, rounds = n, 1
	}
	for i := range uint64(rounds) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("repeat with GAPLESS_SEED=%d", seed+i)
				}
			}()
			newOracle(t, seed+i).run()
		})
	}
}

func (o *oracle) run() {
	for _, p := range o.parts {
		o.open(p)
	}
	for range 50 + o.rnd.IntN(250) {
		o.step()
	}
	o.finishAll()
	o.report()
}

func (o *oracle) step() {
	p := o.parts[o.rnd.IntN(len(o.parts))]
	l := p.lane
	switch n := o.rnd.IntN(100); {
	case n < 4 && l == nil:
		o.open(p)
	case n < 8 && l != nil:
		o.close(l)
		if o.rnd.IntN(2) == 0 {
			o.open(p)
		}
	case n < 40 && l != nil:
		o.push(l, o.rnd.IntN(1+o.rnd.IntN(80)))
	case n < 55:
		o.openGates(1 + o.rnd.IntN(3))
	case n < 65:
		o.decideSome(1 + o.rnd.IntN(3))
	case n < 69:
		total, perLane := 1+o.rnd.IntN(12), o.rnd.IntN(6)
		o.mu.Lock()
		o.limit(total, perLane)
		o.mu.Unlock()
		o.pool.SetLimit(total, perLane)
	case n < 73 && l != nil:
		o.pause(l, !l.paused)
	case n < 82:
		time.Sleep(time.Duration(o.rnd.IntN(8000)) * time.Microsecond) // virtual: monitor and linger get their ticks
	case n < 90:
		o.rest()
	default:
		o.look(p)
	}
}

func (o *oracle) open(p *simPart) {
	l := &simLane{part: p, pushed: map[string]int{}, next: map[string]int{}, told: map[uint64]int{}}
	o.mu.Lock()
	p.lane = l
	o.lanes = append(o.lanes, l)
	o.mu.Unlock()
	l.Lane = o.pool.Open(p.id, p.order, l, 50, 20)
}

func (o *oracle) close(l *simLane) {
	o.mu.Lock()
	l.part.lane, l.closed = nil, true
	o.mu.Unlock()
	l.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, it := range l.items {
		// What never ran is dropped before Close returns.
		if it.runs == 0 && it.released == 0 && !l.maybeStarting() {
			o.violation("Close left an item")
		}
	}
}

// maybeStarting: a handler may have been entered without the oracle knowing yet.
func (l *simLane) maybeStarting() bool {
	_, running, _ := l.Len()
	return running > l.tasks
}

func (o *oracle) push(l *simLane, n int) {
	recs := make([]*simRec, n)
	o.mu.Lock()
	l.number += uint64(o.rnd.IntN(2)) // the engine's numbers have holes, where a marker is no item
	first := l.number
	l.number += uint64(n)
	for i := range recs {
		it := &simItem{lane: l, number: first + uint64(i), allowed: 1}
		if l.part.order != ByPartition {
			k := o.rnd.IntN(1 + o.rnd.IntN(12))
			it.noKey = k == 11
			it.key = []string{"", "a", "b", "c", "dd", "ee", "ff", "gg", "hhh", "iii", "jjj", "none"}[k]
		}
		it.n = l.pushed[it.key]
		l.pushed[it.key]++
		l.items = append(l.items, it)
		recs[i] = o.give(it)
	}
	o.mu.Unlock()
	if o.quick && o.batch == 1 { // as if all of the lane's items had been quick
		l.Lane.part.mu.Lock()
		l.chunk = maxChunk
		l.Lane.part.mu.Unlock()
	}
	full := l.Push(first, recs)
	if full {
		o.mu.Lock()
		l.fulls++
		o.mu.Unlock()
	}
}

func (o *oracle) openGates(n int) (opened bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ; n > 0 && len(o.gates) > 0; n-- {
		i := o.rnd.IntN(len(o.gates))
		close(o.gates[i])
		o.gates = slices.Delete(o.gates, i, i+1)
		opened = true
	}
	return opened
}

func (o *oracle) decideSome(n int) (decided bool) {
	for ; n > 0; n-- {
		o.mu.Lock()
		if len(o.tickets) == 0 {
			o.mu.Unlock()
			return decided
		}
		i := o.rnd.IntN(len(o.tickets))
		t := o.tickets[i]
		o.tickets = slices.Delete(o.tickets, i, i+1)
		o.mu.Unlock()
		o.decide(t, o.rnd.IntN(2) == 0)
		decided = true
	}
	return decided
}

func (o *oracle) pause(l *simLane, pause bool) {
	o.mu.Lock()
	l.paused = pause
	if !pause {
		l.resting = false
	}
	o.mu.Unlock()
	if pause {
		l.Pause()
	} else {
		l.Unpause()
	}
}

// rest waits until nothing moves and checks what can be checked then.
func (o *oracle) rest() {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running <= o.total {
		o.mostTotal = o.total
	}
	o.mostLane = o.perLane
	for _, l := range o.lanes {
		o.mostLane = max(o.mostLane, l.tasks)
		l.resting = l.paused || l.closed
		running, held, waiting := 0, 0, 0
		for _, it := range l.items {
			switch {
			case it.running:
				running++
			case it.held && !it.resumed:
				held++
			case it.released == 0 && !it.done:
				waiting++
			}
		}
		if w, r, h := l.Len(); w != waiting || r != running || h != held {
			o.violation("Len is %d, %d, %d, want %d waiting, %d running, %d held", w, r, h, waiting, running, held)
		}
		select {
		case <-l.Drained():
			if !l.closed || running+held > 0 {
				o.violation("drained, closed %v, %d run, %d are held", l.closed, running, held)
			}
		default:
			if l.closed && running+held == 0 {
				o.violation("closed and at rest, and not drained")
			}
		}
	}
}

// look uses what status pages use, and replaces waiting items as an engine does that copies leftovers.
func (o *oracle) look(p *simPart) {
	s := o.pool.Stats()
	if s.Goroutines < 0 || s.Running > s.Peak {
		o.t.Errorf("odd numbers: %+v", s)
	}
	o.pool.EachRunning(func(l *Lane[*simRec], r Look[*simRec], since time.Duration) {
		_ = o.key(r.Item)
		if it := (*r.Item).item; it.lane != l.Owner() || it.number != r.Number || since < 0 {
			o.t.Errorf("an item that is not of this lane, or number %d, or runs since %v", r.Number, since)
		}
	})
	l := p.lane
	if l == nil {
		return
	}
	last := 1 << 30
	l.BusyKeys(3, func(_ []byte, waiting int) {
		if waiting > last || waiting < 1 {
			o.t.Error("the busiest key is not the first")
		}
		last = waiting
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	l.EachWaiting(func(r Look[*simRec]) {
		old := *r.Item
		if old.item.number != r.Number || r.Memo != old.item.memo() {
			o.t.Errorf("item %d is shown with number %d and memo %v", old.item.number, r.Number, r.Memo)
		}
		*r.Item = o.give(old.item)
		old.key = []byte("spoilt by its owner")
	})
}

// finishAll brings everything to its end and checks that it came to one.
func (o *oracle) finishAll() {
	o.mu.Lock()
	o.easy = true
	o.mu.Unlock()
	for _, p := range o.parts {
		if p.lane != nil {
			o.pause(p.lane, false)
		}
	}
	for again := true; again; {
		time.Sleep(20 * time.Millisecond) // virtual, beyond every linger
		synctest.Wait()
		again = o.openGates(1000)
		again = o.decideSome(1000) || again
	}
	o.rest()
	for _, p := range o.parts {
		if p.lane == nil {
			continue
		}
		if waiting, running, held := p.lane.Len(); waiting+running+held > 0 {
			o.violation("%d items wait, %d run, %d are held at the end", waiting, running, held)
		}
		p.lane.Close()
	}
	o.pool.Wait()
	for _, l := range o.lanes {
		<-l.Drained()
	}
	if s := o.pool.Stats(); s.Goroutines != 0 || s.Partitions != 0 {
		o.violation("left: %+v", s)
	}
}

func (o *oracle) report() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lanes {
		if l.lows > l.fulls || !l.closed && l.fulls > 0 && l.lows == 0 {
			o.violation("full %d times, low %d times", l.fulls, l.lows)
		}
		for _, it := range l.items {
			if it.released != 1 || !it.done && !l.closed {
				o.violation("key %q, item %d: released %d times, done %v, runs %d", it.key, it.n, it.released, it.done, it.runs)
			}
			if told := o.timesTold(it); told > 1 || it.marked != (told == 1) {
				o.violation("key %q, item %d: marked %v, Completed was told %d times", it.key, it.n, it.marked, told)
			}
		}
	}
	for _, v := range o.bad {
		o.t.Error(v)
	}
}
