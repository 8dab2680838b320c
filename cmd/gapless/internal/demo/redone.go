package demo

import (
	"cmp"
	"slices"
	"time"
)

// What a kill may cost, counted from the records.
//
// A record is *redone* if a handler got it again after a kill, though the member that was killed had finished it or was in the
// middle of it. For each kill and each partition that was the member's, what may be redone is
//
//	in flight           begun, and without an end when the process was gone
//	not yet durable     where the same member goes on, with its store: finished, but the order has no mark in a copy of the store
//	                    that was made when the process was gone
//	not yet committed   where another member goes on, which has another store: finished, but not said to be by the commit that the
//	                    group held when the process was gone
//
// The first two and what the commit says are facts from outside of the engine. That a mark or a commit is missing is the engine's
// doing, though, so it is an excuse only as far as the engine's promises go: no more marks wait than Dedupe.MaxPending, and
// what was finished settleWithin ago has been committed, unless the commit's window was too long for the broker and says so.
//
// Each record that was redone must be one of these. The number of all of them is redone_allowed: most of them would be redone by an
// engine that keeps its promises and no others, so the two are close.

// settleWithin is the time until what was finished must stand in a commit: until the mark is durable, and then the commit interval.
// It is ten times what this takes on a machine that is not busy; what the machine itself is late comes on top, see kill.gap.
const settleWithin = 2 * time.Second

// run is what one life did with one record, until another life went on with it.
type run struct {
	life     string
	start    int64
	at       time.Duration // when its last attempt ended
	outcome  outcome       // of the last attempt
	attempts int
	oks      int
	killed   *kill // the life, in the middle of it or later
}

func (r *run) finished() bool { return r.oks > 0 || r.outcome == outcomeGivenUp }

// runsOf divides the handlings of each record by who did them.
func (c *dossier) runsOf(kills []*kill) [][]run {
	killed := killsOf(kills)
	runs := make([][]run, len(c.facts))
	for i := range c.facts {
		for _, n := range c.facts[i].handlings { // in the order of their starts
			h := &c.handlings[n]
			if last := len(runs[i]); last == 0 || runs[i][last-1].life != h.Life {
				runs[i] = append(runs[i], run{life: h.Life, start: h.Start, killed: killed[h.Life]})
			}
			r := &runs[i][len(runs[i])-1]
			r.attempts++
			r.at, r.outcome = h.At+h.Took, h.Outcome
			if h.ok() {
				r.oks++
			}
		}
	}
	return runs
}

// killsOf finds kills by whose life they ended.
func killsOf(kills []*kill) map[string]*kill {
	of := map[string]*kill{}
	for _, k := range kills {
		of[k.life] = k
	}
	return of
}

// loss is what a kill cost.
type loss struct {
	life                         string
	same, moved                  int // partitions: the same member went on, or another
	inFlight                     int
	notDurable, notSaid, dropped int
	redone, unexcused            int
}

func (l *loss) allowed() int { return l.inFlight + l.notDurable + l.notSaid + l.dropped }

// losses judges all kills. It counts as duplicates what was finished twice without one.
func (c *dossier) losses(ev *evidence, runs [][]run) (losses []loss, duplicates int) {
	allowed := map[*kill]map[int]bool{}
	for _, k := range ev.kills {
		l := loss{life: k.life}
		allowed[k] = c.excuse(ev, k, runs, &l)
		losses = append(losses, l)
	}
	for i, rs := range runs {
		letters := 1
		for n := range rs {
			again := &rs[n]
			duplicates += max(again.oks-1, 0)
			if n == 0 {
				continue
			}
			last := &rs[n-1]
			k := last.killed
			if k == nil || again.start < k.clock { // there was no kill in between
				if last.oks > 0 && again.oks > 0 {
					duplicates++
				}
				continue
			}
			if !last.finished() && last.outcome != outcomeKilled { // it waited for its next attempt: nothing is done twice
				continue
			}
			letters++
			l := &losses[slices.Index(ev.kills, k)]
			l.redone++
			if !allowed[k][i] {
				l.unexcused++
				c.odd("%v was handled again by %s, and %s had finished it %v before it was killed", c.facts[i].placed, again.life, last.life, (k.at - last.at).Round(time.Millisecond))
			}
		}
		if x := &c.facts[i]; x.letters > letters {
			c.odd("%v was dead-lettered %d times", x.placed, x.letters)
		}
	}
	return losses, duplicates
}

// excuse says which records may be redone after a kill.
func (c *dossier) excuse(ev *evidence, k *kill, runs [][]run, l *loss) map[int]bool {
	excused := map[int]bool{}
	for p, from := range c.starts {
		to := from
		for to < len(c.facts) && c.facts[to].partition == p {
			to++
		}
		next, was := c.heir(runs[from:to], k)
		if !was {
			continue
		}
		same := next == memberOf(k.life)
		if same {
			l.same++
		} else {
			l.moved++
		}
		said := k.committed[p]
		for i := from; i < to; i++ {
			for n := range runs[i] {
				r := &runs[i][n]
				if r.life != k.life {
					continue
				}
				lately := k.at-r.at < settleWithin+k.gap
				offset := c.facts[i].offset
				switch {
				case r.outcome == outcomeKilled:
					l.inFlight++
				case !r.finished():
					continue
				case r.outcome == outcomeGivenUp && same: // a dead letter leaves no mark: the store knows it by its window only
					if !lately || said.says(offset) {
						continue
					}
					l.notDurable++
				case r.outcome == outcomeOK && k.copied != "" && !k.durable[c.facts[i].order]: // so it was not settled, and no commit could say that it was
					if said.says(offset) {
						c.odd("the commit of %s said that %v was finished, and its mark was not durable", k.life, c.facts[i].placed)
						continue
					}
					l.notDurable++
				case same, said.says(offset):
					continue
				case said.dropped(offset):
					l.dropped++
				case lately:
					l.notSaid++
				default:
					continue
				}
				excused[i] = true
			}
		}
	}
	// A mark that is missing is an excuse up to this number only.
	if most := maxPending + ev.workers; l.notDurable > most {
		c.odd("%d records that %s had finished had no durable mark when it was killed: at most %d may wait for one", l.notDurable, k.life, most)
		l.notDurable = most
	}
	return excused
}

// heir is which member went on with a partition after a kill, and whether the partition was the killed one's at all: whether
// nobody else began anything in it between the last that this one began and the kill.
func (c *dossier) heir(runs [][]run, k *kill) (next string, was bool) {
	var mine, others int64
	first := int64(never)
	for _, rs := range runs {
		for i := range rs {
			r := &rs[i]
			switch {
			case r.life == k.life:
				mine = max(mine, r.start)
			case r.start < k.clock:
				others = max(others, r.start)
			case r.start < first:
				first, next = r.start, memberOf(r.life)
			}
		}
	}
	return next, mine > others
}

// copies is what became of what the producer sent twice.
type copies struct {
	passed    int // records of an order that no handler saw, because another record of the order had been handled
	elsewhere int // handled, by a member whose store did not know the order
	business  int // handled, though the order's mark was durable in the store of the member that handled it
}

// copiesOf looks at each order that was sent more than once. A life that handled an order once must not handle it again: its mark
// is durable before the first record is settled, and the others wait until then. A later life of the member has the store, so it must
// not either, unless the earlier one was killed before the mark was durable. Another member's store does not know the order.
func (c *dossier) copiesOf(kills []*kill) (n copies) {
	killed := killsOf(kills)
	for order, facts := range c.byOrder {
		if len(facts) < 2 {
			continue
		}
		var done []*handling // in the order of their starts, by record
		for _, i := range facts {
			x := &c.facts[i]
			if len(x.handlings) == 0 {
				n.passed++
			}
			for _, h := range x.handlings {
				if c.handlings[h].ok() {
					done = append(done, &c.handlings[h])
				}
			}
		}
		slices.SortFunc(done, func(a, b *handling) int { return cmp.Compare(a.Start, b.Start) })
		for i, again := range done {
			other, known, before := false, false, false
			for _, first := range done[:i] {
				if first.Offset == again.Offset && first.Partition == again.Partition { // redone
					before = true
					continue
				}
				other = true
				k := killed[first.Life]
				switch {
				case first.Life == again.Life:
					known = true
				case memberOf(first.Life) == memberOf(again.Life):
					known = known || k == nil || k.copied != "" && k.durable[order]
				}
			}
			switch {
			case known:
				n.business++
				c.odd("order %d was handled by %s again, which had its mark", order, again.Life)
			case other && !before:
				n.elsewhere++
			}
		}
	}
	return n
}
