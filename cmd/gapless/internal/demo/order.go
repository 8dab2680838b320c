package demo

// lane is a sequence of records that an order is about: those of a key, or of a partition.
type lane struct {
	records []int // indices of facts, in offset order
	settled []bool
	front   int // the first that is not settled
	running int
}

type laneKey struct {
	partition int32
	key       string
}

func byKey(p *placed) laneKey       { return laneKey{p.partition, p.key} }
func byPartition(p *placed) laneKey { return laneKey{partition: p.partition} }

// orderCount counts starts that an order forbids.
type orderCount struct {
	early      int // an earlier record of the lane was never settled by then: neither handled nor dead-lettered
	overlaps   int // another record, or attempt, of the lane was running
	violations int // either
	ahead      int // distinct records with an early start
}

// orderOf replays the journal and counts violations of contract C6 in each lane. A record that is handled again after it was
// settled, behind a rebalance, is no violation where all before it were settled at some time; it is a duplicate.
func orderOf(c *dossier, laneOf func(*placed) laneKey) (n orderCount) {
	lanes := map[laneKey]*lane{}
	in := make([]*lane, len(c.facts))
	at := make([]int32, len(c.facts)) // its place in the lane
	for i := range c.facts {
		k := laneOf(&c.facts[i].placed)
		l := lanes[k]
		if l == nil {
			l = &lane{}
			lanes[k] = l
		}
		in[i], at[i] = l, int32(len(l.records))
		l.records = append(l.records, i)
	}
	for _, l := range lanes {
		l.settled = make([]bool, len(l.records))
	}
	ahead := make([]bool, len(c.facts))
	for _, m := range c.moments {
		i := c.of[m.handling]
		if i < 0 {
			continue
		}
		l := in[i]
		if !m.start {
			l.running--
			if c.facts[i].settled > m.clock {
				continue
			}
			for _, same := range c.byOrder[c.facts[i].order] { // the copies need no handler from now on, where the mark is known
				in[same].settle(int(at[same]))
			}
			continue
		}
		early, overlap := l.front < int(at[i]), l.running > 0
		if early {
			n.early++
			if !ahead[i] {
				ahead[i] = true
				n.ahead++
			}
		}
		if overlap {
			n.overlaps++
		}
		if early || overlap {
			n.violations++
		}
		l.running++
	}
	return n
}

func (l *lane) settle(at int) {
	l.settled[at] = true
	for l.front < len(l.settled) && l.settled[l.front] {
		l.front++
	}
}
