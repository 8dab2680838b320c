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

	order                       string
	quiet                       bool // B left and returned with nothing unfinished, so nothing may be handled twice
	planned, poisonous, retries int
	troubles                    []string
	seconds                     float64
}

// Verdict is what `gapless demo --json` prints in its last line.
type Verdict struct {
	Produced        int     `json:"produced"`         // distinct records in the topic
	Handled         int     `json:"handled"`          // distinct records whose handler succeeded
	Retried         int     `json:"retried"`          // attempts beyond the first
	DeadLettered    int     `json:"dead_lettered"`    // distinct records in the dead-letter topic
	Duplicates      int     `json:"duplicates"`       // successes beyond one a record
	Lost            int     `json:"lost"`             // neither handled nor dead-lettered
	OrderViolations int     `json:"order_violations"` // see orderOf; 0 where no order is promised
	Lag             int64   `json:"lag"`              // log ends less committed offsets
	Seconds         float64 `json:"seconds"`
}

// findings are the verdict and what else people may want to know.
type findings struct {
	Verdict
	problems []string // what is wrong; empty = the verdict is good

	order      string
	quiet      bool
	keys       int
	samples    int
	commitsBad int           // samples in which something committed was not finished
	poisonous  int           // planted
	overtakes  int           // records that started before an earlier one of their partition was settled
	work       time.Duration // in handlers
	peak       int           // handlers at once
}

func (f *findings) good() bool { return len(f.problems) == 0 }

func (f *findings) wrong(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// judge counts.
func judge(ev evidence) findings {
	f := findings{order: ev.order, quiet: ev.quiet, samples: len(ev.samples), poisonous: ev.poisonous, problems: ev.troubles}
	f.Seconds = math.Round(ev.seconds*100) / 100
	c := newCase(&ev)
	f.Produced = len(c.facts)
	f.keys = c.keys
	for i := range c.facts {
		x := &c.facts[i]
		f.Retried += max(x.attempts-1, 0)
		if x.successes > 0 {
			f.Handled++
			f.Duplicates += x.successes - 1
		}
		if x.letters > 0 {
			f.DeadLettered++
		}
		if x.successes == 0 && x.letters == 0 {
			f.Lost++
		}
	}
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
		f.wrong("%d records are in the topic, not the %d that were to be produced", f.Produced, ev.planned)
	}
	if f.Lost != 0 {
		f.wrong("%s lost: neither handled nor dead-lettered", count(f.Lost, "record was", "records were"))
	}
	if f.Duplicates != 0 && ev.quiet {
		f.wrong("%d successful handlings beyond one a record, though the member left cleanly", f.Duplicates)
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
		f.wrong("%d records are dead letters, but %d were poisonous", f.DeadLettered, ev.poisonous)
	}
	if f.Retried < ev.retries {
		f.wrong("%d retries are fewer than the %d that flaky and poisonous records need", f.Retried, ev.retries)
	}
	f.problems = append(f.problems, c.oddities...)
}
