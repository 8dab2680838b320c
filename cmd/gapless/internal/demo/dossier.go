package demo

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// fact is what is known of one record of the topic.
type fact struct {
	placed
	copied             bool  // another record before it has the same order
	handlings          []int // of it
	successes, letters int
	gaveUp             int64 // when its last attempt failed, by the journal's clock
	settled            int64 // when it was: the first success of its order, or when it was given up before its dead letter
}

const never = math.MaxInt64

// dossier is the evidence, sorted by record. The facts are in order of partition and offset.
type dossier struct {
	facts     []fact
	handlings []handling
	of        []int         // which fact a handling belongs to; -1 = a record that is not in the topic
	moments   []moment      // in the order in which they happened
	starts    map[int32]int // by partition: its first fact
	byOrder   map[int32][]int
	keys      int
	work      time.Duration
	peak      int
	oddities  []string
}

func newCase(ev *evidence) *dossier {
	c := &dossier{handlings: ev.handlings, of: make([]int, len(ev.handlings)), starts: map[int32]int{}, byOrder: map[int32][]int{}}
	c.sortLog(ev.log)
	for i := range c.handlings {
		c.add(i)
	}
	for i := range ev.dead {
		c.addLetter(&ev.dead[i])
	}
	for i := range c.facts {
		x := &c.facts[i]
		if x.settled == never && x.letters > 0 {
			x.settled = x.gaveUp
		}
		if x.letters > 0 && !x.poisonous {
			c.odd("%v was dead-lettered, but is not poisonous", x.placed)
		}
		if x.letters > 0 && x.successes > 0 {
			c.odd("%v was both handled and dead-lettered", x.placed)
		}
	}
	// A record of an order that has been handled is settled without its handler.
	for _, facts := range c.byOrder {
		if len(facts) < 2 {
			continue
		}
		first := int64(never)
		for _, i := range facts {
			first = min(first, c.facts[i].settled)
		}
		for _, i := range facts {
			c.facts[i].settled = first
		}
	}
	c.sortMoments()
	c.peak = c.countPeak()
	return c
}

// sortLog also checks that the topic itself is in order: the numbers of each key count up from 1.
func (c *dossier) sortLog(log []placed) {
	slices.SortFunc(log, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	seqs := map[string]int32{}
	c.facts = make([]fact, 0, len(log))
	for i, p := range log {
		if i > 0 && log[i-1].partition == p.partition && log[i-1].offset == p.offset {
			continue
		}
		if _, ok := c.starts[p.partition]; !ok {
			c.starts[p.partition] = len(c.facts)
		}
		copied := len(c.byOrder[p.order]) > 0
		if !copied {
			if seqs[p.key]++; seqs[p.key] != p.seq {
				c.odd("%v is number %d of its key in the topic", p, seqs[p.key])
			}
		} else if first := c.facts[c.byOrder[p.order][0]]; first.key != p.key || first.seq != p.seq {
			c.odd("%v and %v have the same order number, and are no copies", first.placed, p)
		}
		c.byOrder[p.order] = append(c.byOrder[p.order], len(c.facts))
		c.facts = append(c.facts, fact{placed: p, copied: copied, gaveUp: never, settled: never})
	}
	c.keys = len(seqs)
}

func (p placed) String() string {
	return fmt.Sprintf("%s[%d]@%d (%s number %d)", topic, p.partition, p.offset, p.key, p.seq)
}

const oddMost = 5

// odd notes something that must not be, a few times.
func (c *dossier) odd(format string, args ...any) {
	if len(c.oddities) < oddMost {
		c.oddities = append(c.oddities, fmt.Sprintf(format, args...))
	}
}

// find is the index of a record in facts, or -1.
func (c *dossier) find(partition int32, offset int64) int {
	i, ok := slices.BinarySearchFunc(c.facts, placed{partition: partition, offset: offset}, func(x fact, p placed) int {
		return cmp.Or(cmp.Compare(x.partition, p.partition), cmp.Compare(x.offset, p.offset))
	})
	if !ok {
		return -1
	}
	return i
}

func (c *dossier) add(i int) {
	h := &c.handlings[i]
	c.work += h.Took
	c.of[i] = c.find(h.Partition, h.Offset)
	if c.of[i] < 0 {
		c.odd("%s[%d]@%d was handled, but is not in the topic", topic, h.Partition, h.Offset)
		return
	}
	x := &c.facts[c.of[i]]
	if x.key != h.Key || x.seq != h.Seq || x.order != h.Order {
		c.odd("%v was handled as %s number %d", x.placed, h.Key, h.Seq)
	}
	x.handlings = append(x.handlings, i)
	switch {
	case h.End == 0:
		c.odd("a handler of %v never returned", x.placed)
	case h.ok():
		x.successes++
		x.settled = min(x.settled, h.End)
	case h.Outcome == outcomeGivenUp:
		x.gaveUp = min(x.gaveUp, h.End)
	}
}

func (c *dossier) addLetter(p *placed) {
	i := c.find(p.partition, p.offset)
	if i < 0 {
		c.odd("%v was dead-lettered, but is not in the topic", *p)
		return
	}
	x := &c.facts[i]
	x.letters++
	if x.key != p.key || x.seq != p.seq || x.poisonous && x.value != p.value {
		c.odd("the dead letter of %v has another key or value", x.placed)
	}
}

// countPeak is how many handlers ran at once.
func (c *dossier) countPeak() (peak int) {
	running := 0
	for _, m := range c.moments {
		if !m.start {
			running--
			continue
		}
		running++
		peak = max(peak, running)
	}
	return peak
}

// moment is a start or an end of a handling.
type moment struct {
	clock    int64
	handling int32
	start    bool
}

func (c *dossier) sortMoments() {
	c.moments = make([]moment, 0, 2*len(c.handlings))
	for i := range c.handlings {
		h := &c.handlings[i]
		c.moments = append(c.moments, moment{h.Start, int32(i), true})
		if h.End > 0 {
			c.moments = append(c.moments, moment{h.End, int32(i), false})
		}
	}
	slices.SortFunc(c.moments, func(a, b moment) int { return cmp.Compare(a.clock, b.clock) })
}

// commitsPastUnfinished counts the samples in which a committed offset was above a record that was not settled then (C1), or what
// stood beside it said of such a record that it was.
func (c *dossier) commitsPastUnfinished(samples []sample) (bad int) {
	// latest[i] is when the last of the records up to i, in the partition, was settled.
	latest := make([]int64, len(c.facts))
	for i := range c.facts {
		latest[i] = c.facts[i].settled
		if i > 0 && c.facts[i-1].partition == c.facts[i].partition {
			latest[i] = max(latest[i], latest[i-1])
		}
	}
	for _, s := range samples {
		ok := true
		for p, said := range s.committed {
			start, known := c.starts[p]
			if !known {
				continue
			}
			i, _ := slices.BinarySearchFunc(c.facts, placed{partition: p, offset: said.offset}, func(x fact, p placed) int {
				return cmp.Or(cmp.Compare(x.partition, p.partition), cmp.Compare(x.offset, p.offset))
			})
			if i > start && latest[i-1] > s.clock { // the last record below the committed offset
				ok = false
			}
			if said.badness != nil {
				c.odd("what stands beside offset %d of partition %d can't be read: %v", said.offset, p, said.badness)
			}
			if said.window == nil {
				continue
			}
			for ; i < len(c.facts) && c.facts[i].partition == p && c.facts[i].offset <= said.window.Highest; i++ {
				if c.facts[i].settled > s.clock && said.says(c.facts[i].offset) {
					ok = false
				}
			}
		}
		if !ok {
			bad++
		}
	}
	return bad
}
