package demo

import (
	"fmt"
	"math"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// placed is a record at its place in the topic.
type placed struct {
	partition int32
	offset    int64
	key       string
	order     int32 // the business id: copies have the same
	seq       int32
	poisonous bool
	value     string // of poisonous ones
}

// evidence is all that the verdict is made of. Nothing in it comes from the engine's counters.
type evidence struct {
	log       []placed // the topic, read back
	handlings []handling
	dead      []placed // the dead-letter topic, read back: the origins that it names
	samples   []sample // what was committed while it ran
	ends      map[int32]int64
	committed map[int32]int64 // what is committed in the end

	kills []*kill

	order                               string
	workers                             int
	planned, copies, poisonous, retries int
	troubles                            []string
	seconds                             float64
}

// Verdict is what `gapless demo --json` prints in its last line. An order is what the producer sends, and sometimes sends twice.
type Verdict struct {
	Produced        int     `json:"produced"`         // distinct orders in the topic
	Handled         int     `json:"handled"`          // distinct orders whose handler succeeded
	Retried         int     `json:"retried"`          // attempts beyond the first of each owner of a record
	DeadLettered    int     `json:"dead_lettered"`    // distinct orders in the dead-letter topic
	Duplicates      int     `json:"duplicates"`       // successes beyond one a record that no kill explains
	Lost            int     `json:"lost"`             // neither handled nor dead-lettered
	OrderViolations int     `json:"order_violations"` // see orderOf; 0 where no order is promised
	Lag             int64   `json:"lag"`              // log ends less committed offsets
	Seconds         float64 `json:"seconds"`

	Redone             int `json:"redone"`              // records that were handled again after a kill, though they were finished or in flight
	RedoneAllowed      int `json:"redone_allowed"`      // how many may have been: see losses
	BusinessDuplicates int `json:"business_duplicates"` // copies that were handled, though the order's mark was durable in that member's store
}

// findings are the verdict and what else people may want to know.
type findings struct {
	Verdict
	problems []string // what is wrong; empty = the verdict is good

	order      string
	keys       int
	samples    int
	commitsBad int           // samples in which something committed was not finished
	poisonous  int           // planted
	overtakes  int           // records that started before an earlier one of their partition was settled
	work       time.Duration // in handlers
	peak       int           // handlers at once
	losses     []loss        // by kill
	sentTwice  int
	copies     copies
}

func (f *findings) good() bool { return len(f.problems) == 0 }

func (f *findings) wrong(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// judge counts.
func judge(ev evidence) findings {
	f := findings{order: ev.order, samples: len(ev.samples), poisonous: ev.poisonous, problems: ev.troubles}
	f.Seconds = math.Round(ev.seconds*100) / 100
	c := newCase(&ev)
	f.keys = c.keys
	for _, facts := range c.byOrder {
		handled, dead := false, false
		for _, i := range facts {
			handled, dead = handled || c.facts[i].successes > 0, dead || c.facts[i].letters > 0
		}
		f.Produced++
		f.sentTwice += len(facts) - 1
		switch {
		case handled:
			f.Handled++
		case !dead:
			f.Lost++
		}
		if dead {
			f.DeadLettered++
		}
	}
	runs := c.runsOf(ev.kills)
	for _, rs := range runs {
		for _, r := range rs {
			f.Retried += r.attempts - 1
		}
	}
	f.losses, f.Duplicates = c.losses(&ev, runs)
	for i := range f.losses {
		f.Redone += f.losses[i].redone
		f.RedoneAllowed += f.losses[i].allowed()
	}
	f.copies = c.copiesOf(ev.kills)
	f.BusinessDuplicates = f.copies.business
	for p, end := range ev.ends {
		f.Lag += end - ev.committed[p]
	}
	key, partition := orderOf(c, byKey), orderOf(c, byPartition)
	f.overtakes = partition.ahead
	switch engine.Order(ev.order) {
	case engine.OrderKey:
		f.OrderViolations = key.violations
	case engine.OrderPartition:
		f.OrderViolations = partition.violations
	}
	f.work, f.peak = c.work, c.peak
	f.commitsBad = c.commitsPastUnfinished(ev.samples)
	f.compare(c, &ev)
	return f
}

// compare says what is wrong.
func (f *findings) compare(c *dossier, ev *evidence) {
	if f.Produced != ev.planned {
		f.wrong("%d orders are in the topic, not the %d that were to be produced", f.Produced, ev.planned)
	}
	if f.Lost != 0 {
		f.wrong("%s lost: neither handled nor dead-lettered", count(f.Lost, "record was", "records were"))
	}
	if f.sentTwice != ev.copies {
		f.wrong("%d copies are in the topic, not the %d that were to be produced", f.sentTwice, ev.copies)
	}
	if f.Duplicates != 0 {
		f.wrong("%s beyond one a record, and no kill explains it", count(f.Duplicates, "successful handling"))
	}
	for i := range f.losses {
		if l := &f.losses[i]; l.unexcused != 0 || l.redone > l.allowed() {
			f.wrong("after %s was killed %s handled again: %s might have been, and %s finished and safe",
				l.life, count(l.redone, "record was", "records were"), number(l.allowed()), count(l.unexcused, "of them was", "of them were"))
		}
	}
	if f.BusinessDuplicates != 0 {
		f.wrong("%s handled by a member whose store had the mark of the order", count(f.BusinessDuplicates, "copy was", "copies were"))
	}
	if f.OrderViolations != 0 {
		f.wrong("%s against the order by %s", count(f.OrderViolations, "start was", "starts were"), ev.order)
	}
	if f.Lag != 0 {
		f.wrong("the lag is %d", f.Lag)
	}
	if f.commitsBad != 0 {
		f.wrong("in %d of %d samples the committed offset was past a record that was not finished", f.commitsBad, f.samples)
	}
	if f.samples == 0 {
		f.wrong("no committed offset was seen while it ran")
	}
	if f.DeadLettered != ev.poisonous {
		f.wrong("%d orders are dead letters, but %d were poisonous", f.DeadLettered, ev.poisonous)
	}
	if f.Retried < ev.retries {
		f.wrong("%d retries are fewer than the %d that flaky and poisonous records need", f.Retried, ev.retries)
	}
	f.problems = append(f.problems, c.oddities...)
}
