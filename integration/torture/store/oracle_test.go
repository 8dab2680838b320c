package store

// What this oracle catches is in integration/mutations/lists/torture.txt.

import (
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
)

// durableAfter is how long after its end a record of a killed process must be durable. The store takes some milliseconds; this is
// for machines with much else to do.
const durableAfter = 5 * time.Second

// oracle judges what the child did by the journal, a copy of its store, the group's commits, and what was produced.
type oracle struct {
	*source
	life    int
	wrong   []string
	wrongs  int
	totals  totals
	durable map[string]bool // business keys whose mark was seen in a copy of the store
	done    map[string]bool // business keys of which a copy has ended
	since   map[string]bool // the same, in this life
	running map[place]bool  // handlers of this life that have begun and neither ended nor failed
	busy    map[string]place
	lanes   map[string]*lane
	listed  []int         // how many records of a partition are in lanes
	passed  []int64       // by partition: what was checked to be settled below the committed offset
	allowed map[place]why // what may be handled again after the last kill
}

// why a record may be handled again.
type why byte

const (
	unfinished why = 'u' // it had begun and not ended
	undurable  why = 'd' // it had ended, and nothing that a kill leaves says so
)

// totals are what the summary says.
type totals struct {
	kills, records, lost, redone, allowed, duplicates int
	inFlight, notDurable, finishedAgain               int
	oldest                                            time.Duration // that had ended and was not durable
}

func (a *totals) add(b totals) {
	a.kills += b.kills
	a.records += b.records
	a.lost += b.lost
	a.redone += b.redone
	a.allowed += b.allowed
	a.duplicates += b.duplicates
	a.inFlight += b.inFlight
	a.notDurable += b.notDurable
	a.finishedAgain += b.finishedAgain
	a.oldest = max(a.oldest, b.oldest)
}

// lane is what order is promised in: its records, and how far they are settled.
type lane struct {
	offsets []int64
	next    int   // the first that is not settled
	last    int64 // begun last in this life
	busy    bool
}

func newOracle(s *source) *oracle {
	return &oracle{
		source: s, durable: map[string]bool{}, done: map[string]bool{}, lanes: map[string]*lane{},
		listed: make([]int, partitions), passed: []int64{-1, -1, -1, -1}, allowed: map[place]why{},
	}
}

func (o *oracle) fault(format string, args ...any) {
	if o.wrongs++; len(o.wrong) < 30 {
		o.wrong = append(o.wrong, fmt.Sprintf("life %d: ", o.life)+fmt.Sprintf(format, args...))
	}
}

func (o *oracle) at(p place) *record {
	if p.partition < 0 || p.partition >= partitions || p.offset < 0 || p.offset >= int64(len(o.records[p.partition])) {
		return nil
	}
	return o.records[p.partition][p.offset]
}

// begin is a new life.
func (o *oracle) begin() {
	o.life++
	o.since, o.running, o.busy = map[string]bool{}, map[place]bool{}, map[string]place{}
	for p, rs := range o.records {
		for ; o.listed[p] < len(rs); o.listed[p]++ {
			name := rs[o.listed[p]].lane
			if name == "" {
				continue
			}
			if o.lanes[name] == nil {
				o.lanes[name] = &lane{}
			}
			o.lanes[name].offsets = append(o.lanes[name].offsets, int64(o.listed[p]))
		}
	}
	for _, l := range o.lanes {
		l.last, l.busy = -1, false
	}
}

// hear follows the journal of a life, line by line.
func (o *oracle) hear(lines []line) {
	for i := range lines {
		l := &lines[i]
		r := o.at(l.place)
		if r == nil || l.topic != o.topic || l.id != r.id {
			o.fault("line %d is of %s %v %q, which was never produced", l.number, l.topic, l.place, l.id)
			continue
		}
		if l.word == 'b' {
			o.begins(l, r)
			continue
		}
		if !o.running[l.place] {
			o.fault("%v ended without having begun", l.place)
		}
		delete(o.running, l.place)
		if r.lane != "" {
			o.lanes[r.lane].busy = false
		}
		if r.id != "" {
			delete(o.busy, r.id)
		}
		if l.word != 'e' {
			continue
		}
		r.ended, r.endedAt, r.endedIn = true, l.nanos, o.life
		if r.id != "" {
			o.done[r.id], o.since[r.id] = true, true
		}
	}
}

func (o *oracle) begins(l *line, r *record) {
	if o.running[l.place] {
		o.fault("%v began while it ran", l.place)
	}
	o.running[l.place] = true
	if r.begun && r.life < o.life { // the first time in this life, and not the first of all
		o.totals.redone++
		if r.ended {
			o.totals.finishedAgain++
		}
		if o.allowed[l.place] == 0 {
			o.fault("redone: %v (key %q, ended %v) was handled again, though the kill left that it was settled", l.place, r.id, r.ended)
		}
	}
	r.begun, r.life = true, o.life
	if r.id != "" {
		switch other, busy := o.busy[r.id]; {
		case o.durable[r.id]:
			o.totals.duplicates++
			o.fault("duplicate: %v began with key %q, whose mark was in the store before this life", l.place, r.id)
		case o.since[r.id]:
			o.totals.duplicates++
			o.fault("duplicate: %v began with key %q, which had ended in this life", l.place, r.id)
		case busy:
			o.fault("overlap: %v began with key %q while %v ran with it", l.place, r.id, other)
		}
		o.busy[r.id] = l.place
	}
	if r.lane == "" {
		return
	}
	n := o.lanes[r.lane]
	for n.next < len(n.offsets) {
		before := o.records[l.place.partition][n.offsets[n.next]]
		if !before.ended && !o.done[before.id] {
			break
		}
		n.next++
	}
	switch {
	case n.busy:
		o.fault("order: %v began while %d of its key ran", l.place, n.last)
	case l.place.offset < n.last:
		o.fault("order: %v began after %d of its key", l.place, n.last)
	case n.next < len(n.offsets) && n.offsets[n.next] < l.place.offset:
		o.fault("order: %v began before %d of its key was settled", l.place, n.offsets[n.next])
	}
	n.busy, n.last = true, l.place.offset
}

// killed looks at what a kill has left behind: the copy of the store, if the child got so far as to make one, and the commits. quiet says
// that for a good while before there had been nothing left to do.
func (o *oracle) killed(store *dedupe.Store, at time.Time, quiet bool) {
	o.totals.kills++
	o.findDurable(store)
	commits := o.committed()
	o.allowed = map[place]why{}
	for p := range o.records {
		o.checkCommit(p, commits[p])
		settled, cut := o.settledBy(store, p, commits[p])
		for i, r := range o.records[p] {
			here := place{p, int64(i)}
			by := settled(int64(i))
			if by != "" {
				o.mustBeDone(here, r, by)
			}
			was := r.settled
			r.settled = by != "" || r.id != "" && o.durable[r.id]
			if was && !r.settled && !cut {
				o.fault("forgotten: %v (key %q) was settled by what an earlier kill had left, and is not any more", here, r.id)
			}
			switch {
			case !r.begun || r.settled:
			case !r.ended && o.done[r.id]: // as a duplicate; it had failed, and a copy went on
				o.allowed[here] = undurable
			case !r.ended, o.running[here]:
				o.allowed[here] = unfinished
			default:
				o.allowed[here] = undurable
				o.totals.notDurable++
				if r.endedIn < o.life { // and was not reached again in this one
					continue
				}
				age := at.Sub(time.Unix(0, r.endedAt))
				o.totals.oldest = max(o.totals.oldest, age)
				if quiet || age > durableAfter {
					o.fault("durable: %v (key %q) had ended %v before the kill, and nothing says so", here, r.id, age)
				}
			}
		}
	}
	o.totals.inFlight += len(o.running)
	o.totals.allowed += len(o.allowed)
}

// findDurable asks a copy of the store for all keys that have ended. A mark that was there once must stay.
func (o *oracle) findDurable(store *dedupe.Store) {
	if store == nil {
		if len(o.durable) > 0 {
			o.fault("durable: the store is gone, with %d marks", len(o.durable))
		}
		return
	}
	scope := store.Scope(o.group + "\x00" + o.topic)
	for id := range o.done {
		_, found, err := store.Get(scope.Key([]byte(id)))
		switch {
		case err != nil:
			o.fault("durable: key %q can't be read: %v", id, err)
		case found:
			o.durable[id] = true
		case o.durable[id]:
			o.fault("durable: the mark of key %q was in the store and is gone", id)
		}
	}
	for p := range o.records { // and a mark that is there without the work having been done would lose a record
		for i, r := range o.records[p] {
			if r.id == "" || o.done[r.id] || !r.begun {
				continue
			}
			if _, found, _ := store.Get(scope.Key([]byte(r.id))); found {
				o.totals.lost++
				o.fault("lost: %v %d has a mark for key %q, of which no copy has ended", p, i, r.id)
			}
		}
	}
}

// checkCommit looks at the committed offset: it never goes back, and nothing below it is unfinished.
func (o *oracle) checkCommit(p int, c committed) {
	if c.at < o.passed[p] {
		o.fault("commit: partition %d went back from %d to %d", p, o.passed[p], c.at)
	}
	if end := int64(len(o.records[p])); c.at > end {
		o.fault("commit: partition %d is at %d of %d", p, c.at, end)
	}
	o.passed[p] = max(o.passed[p], c.at)
}

// settledBy says which records of a partition the next owner will not handle, according to what lies on the broker and in the
// store, by the rules of docs/resume-window.md; and whether that had to be shortened.
func (o *oracle) settledBy(store *dedupe.Store, p int, c committed) (settled func(offset int64) string, cut bool) {
	w, has := c.says, c.at >= 0 && c.err == nil && c.says.Frontier == c.at
	by := "the commit's window"
	if has && store != nil && w.Store == store.ID() {
		if w.StoreSeq > store.Seq() {
			o.fault("durable: the commit of partition %d is from group %d of the store, which is at %d", p, w.StoreSeq, store.Seq())
		} else if row := o.row(store, p, &w); row != nil {
			w, by = *row, "the store's row"
		}
	}
	return func(offset int64) string {
		switch {
		case offset < c.at:
			return "the committed offset"
		case has && len(w.Epochs) > 0 && offset >= w.Epochs[0].First && w.Done(offset):
			return by
		}
		return ""
	}, w.Cut
}

// mustBeDone: what counts as settled was done, and what has a business key is marked for good.
func (o *oracle) mustBeDone(at place, r *record, by string) {
	switch {
	case r.id == "" && !r.ended, r.id != "" && !o.done[r.id]:
		o.totals.lost++
		o.fault("lost: %v (key %q) counts as settled by %s, and no handler has ended it", at, r.id, by)
	case r.id != "" && !o.durable[r.id]:
		o.fault("durable: %v counts as settled by %s, and the mark of its key %q is not in the store", at, by, r.id)
	}
}

// end is after a clean stop, with all committed: nothing may be lost.
func (o *oracle) end() {
	for p, rs := range o.records {
		o.totals.records += len(rs)
		for i, r := range rs {
			if !r.ended && (r.id == "" || !o.done[r.id]) {
				o.totals.lost++
				o.fault("lost: %v was never handled", place{p, int64(i)})
			}
		}
	}
}
