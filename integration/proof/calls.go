package proof

import (
	"bytes"
	"slices"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// line follows the journal.
func (j *judge) line(l *Line) {
	r := j.look(l.Topic, l.Partition, l.Offset)
	switch {
	case r == nil:
		j.findAt(Foreign, place{l.Topic, l.Partition}, l.Offset, "was handled, and never produced")
		return
	case r.Aborted:
		if l.Word == Begun || l.Word == Along {
			j.find(Foreign, r, "was handled, and belongs to an aborted transaction")
		}
		return
	case l.ID != r.ID || !bytes.Equal(l.Key, r.Key) || (l.Key == nil) != (r.Key == nil):
		j.find(Foreign, r, "was produced with key %q and id %q, and handled with key %q and id %q", r.Key, r.ID, l.Key, l.ID)
		return
	}
	if died, ok := j.deaths[l.Member]; ok && l.Nanos > died {
		j.find(Foreign, r, "was handled by %s after its end", l.Member)
	}
	switch l.Word {
	case Begun, Along:
		j.begins(l, r)
	case Ended, Failed:
		i := slices.IndexFunc(r.running, func(c *call) bool { return c.line.Member == l.Member && c.line.Sequence == l.Sequence })
		if i < 0 {
			j.find(Foreign, r, "ended without having begun")
			return
		}
		c := r.running[i]
		j.over(c)
		if l.Word == Ended && !c.void {
			r.settled, r.ended = true, true
			j.doneWith(c, l)
		} else if l.Word == Failed {
			j.fails(c)
		}
	}
}

// over takes a call off the lists of what runs.
func (j *judge) over(c *call) {
	remove := func(from []*call) []*call { return slices.DeleteFunc(from, func(x *call) bool { return x == c }) }
	j.calls[c.line.Member] = remove(j.calls[c.line.Member])
	c.rec.running = remove(c.rec.running)
	if c.rec.lane != nil {
		c.rec.lane.running = remove(c.rec.lane.running)
	}
	j.noLongerHolds(c)
}

// fails ends a batch at the record that failed, under partition order: what follows it is handled again, after it.
func (j *judge) fails(c *call) {
	if j.Order != engine.OrderPartition || c.batch == 0 {
		return
	}
	for _, other := range c.rec.lane.running {
		if other.batch == c.batch && other.rec.Offset > c.rec.Offset {
			other.void = true
		}
	}
	if t := c.tenure(); c.rec.lane.tenures[t] > c.rec.Offset {
		c.rec.lane.tenures[t] = c.rec.Offset
	}
}

func (j *judge) begins(l *Line, r *record) {
	c := &call{rec: r, line: l, batch: j.batchOf(l)}
	j.redone(c)
	j.business(c)
	j.overlaps(c)
	j.order(c)
	j.calls[l.Member] = append(j.calls[l.Member], c)
	r.running = append(r.running, c)
	if r.lane != nil {
		r.lane.running = append(r.lane.running, c)
	}
}

// batchOf is the batch that a line belongs to: that which its tenure has begun last. Where several batches of a tenure begin at once, as
// without order by partition, it makes no difference which.
func (j *judge) batchOf(l *Line) int {
	t := tenure{l.Member, l.Sequence}
	if j.batches[t] == nil {
		j.batches[t] = map[int]int{}
	}
	if l.Word == Begun {
		j.batches[t][int(l.Partition)] = l.Number
	}
	return j.batches[t][int(l.Partition)]
}

// order: in offset order within a tenure, and none before the earlier ones of its lane are settled (C6).
func (j *judge) order(c *call) {
	n := c.rec.lane
	if n == nil {
		return
	}
	t := c.tenure()
	if high, ok := n.tenures[t]; ok && c.rec.Offset < high {
		j.v.OrderViolations++
		j.find(OrderViolation, c.rec, "was begun by %s after %d of its lane", c.line.Member, high)
	}
	n.tenures[t] = max(n.tenures[t], c.rec.Offset)
	for n.next < len(n.records) && !n.records[n.next].must() {
		n.next++
	}
	for _, earlier := range n.records[n.next:] {
		if earlier.Offset >= c.rec.Offset {
			break
		}
		if earlier.must() && !slices.ContainsFunc(earlier.running, func(o *call) bool { return j.together(o, c) }) {
			j.v.OrderViolations++
			j.find(OrderViolation, c.rec, "was begun by %s before %d of its lane was settled", c.line.Member, earlier.Offset)
			break
		}
	}
}

// together says whether two calls are of one batch that may hold several records of a lane.
func (j *judge) together(a, b *call) bool {
	return j.Order == engine.OrderPartition && a.batch == b.batch && a.tenure() == b.tenure()
}

// overlaps are two handlers at a time of one record, or of one lane (C6).
func (j *judge) overlaps(c *call) {
	others := slices.Clone(c.rec.running)
	if c.rec.lane != nil {
		others = slices.Clone(c.rec.lane.running)
	}
	for _, earlier := range others {
		if earlier.rec != c.rec && j.together(earlier, c) {
			continue
		}
		j.v.Overlaps++
		if j.mayOverlap(earlier, c) {
			j.v.OverlapsAllowed++
			continue
		}
		j.find(Overlap, c.rec, "was begun by %s while %s was at %d, since line %d", c.line.Member, earlier.line.Member, earlier.rec.Offset, earlier.line.Number)
	}
}

// mayOverlap: no client can stop the handler of an owner whose session has ended, or one that does not heed its context at the drain
// deadline. Within a process the promise holds all the same, where order was promised.
func (j *judge) mayOverlap(earlier, later *call) bool {
	if earlier.line.Member == later.line.Member && later.rec.lane != nil {
		return false
	}
	return j.outlived(earlier, later.line.Nanos) || j.woke(later) || j.dying(earlier.line.Member, later.line.Nanos)
}

// dying says whether a member was being killed at that instant: it may have been gone already.
func (j *judge) dying(member string, nanos int64) bool {
	return slices.ContainsFunc(j.Incidents, func(in Incident) bool {
		return in.What == Killed && in.Member == member && in.From.UnixNano() <= nanos && nanos <= in.To.UnixNano()
	})
}

// outlived says whether a call may have outlived its tenure by then.
func (j *judge) outlived(c *call, nanos int64) bool {
	return nanos-c.line.Nanos >= int64(j.Drain) || j.silent(c.line.Member, c.line.Nanos, nanos)
}

// silent says whether a member may have been thrown out of the group for its silence between two instants.
func (j *judge) silent(member string, from, to int64) bool {
	for i := range j.Incidents {
		in := &j.Incidents[i]
		if in.What != Paused && in.What != Cut || in.Member != "" && in.Member != member {
			continue
		}
		begin, end := in.From.UnixNano(), to
		if !in.To.IsZero() {
			end = min(end, in.To.UnixNano())
		}
		if begin > to || end+int64(j.Session) < from {
			continue
		}
		// The group counts from the last heartbeat, which may have been a while before. And the news of it comes only with the next.
		if end-begin >= int64(j.Session)/2 {
			return true
		}
		// Where a broker can't be reached the client ends its session by itself, sooner than the group would, and what its handlers were at
		// by then is let go.
		if in.What == Cut && from <= end && to <= end+int64(j.Session) {
			return true
		}
	}
	return false
}

// wakes is how long a process that was stopped may take to see what time it is, and hears one that was cut off to hear what has become of it.
const (
	wakes = time.Second
	hears = 200 * time.Millisecond
)

// joinPauses makes one of pauses that follow each other: a process that runs for a moment in between may not come to a heartbeat.
func joinPauses(all []Incident) (joined []Incident) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Incident) int { return a.From.Compare(b.From) })
	last := map[string]int{} // pause of a member, in joined
	for _, in := range all {
		if in.What == Paused {
			if i, ok := last[in.Member]; ok && !joined[i].To.IsZero() && in.From.Sub(joined[i].To) <= wakes {
				if in.To.IsZero() || in.To.After(joined[i].To) {
					joined[i].To = in.To
				}
				continue
			}
			last[in.Member] = len(joined)
		}
		joined = append(joined, in)
	}
	return joined
}

// woke says whether a call was begun by a process that had just been stopped for so long that the group may have thrown it out, or cut off: what
// it had fetched comes with the news. It may not begin anything while it is cut off for that long.
func (j *judge) woke(c *call) bool {
	for i := range j.Incidents {
		in := &j.Incidents[i]
		if in.What != Paused && in.What != Cut || in.Member != c.line.Member || in.To.Sub(in.From) < j.Session/2 {
			continue
		}
		from, to := in.From, in.To.Add(wakes)
		if in.What == Cut {
			from, to = in.To, in.To.Add(hears)
		}
		if from.UnixNano() <= c.line.Nanos && c.line.Nanos <= to.UnixNano() {
			return true
		}
	}
	return false
}
