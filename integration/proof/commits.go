package proof

import (
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
)

// said is what the group's last commit says of a partition.
type said struct {
	known    bool
	offset   int64
	metadata string
	window   *window.Window // nil: none that counts
}

// settles says whether it says that a record is settled.
func (s *said) settles(r *record) bool {
	switch {
	case !s.known:
		return false
	case r.Offset < s.offset:
		return true
	case s.window == nil:
		return false
	case r.LeaderEpoch < 0:
		return s.window.Done(r.Offset)
	}
	return s.window.Settled(r.Offset, r.LeaderEpoch)
}

func (s *said) String() string {
	if s.window != nil {
		return fmt.Sprintf("the commit of %d, with the window: %v", s.offset, s.window)
	}
	return fmt.Sprintf("the commit of %d", s.offset)
}

// tooLong is how long an answer may have taken: that of a broker which was stopped amid it may be old.
const tooLong = 2 * time.Second

// commit looks at a sample: what it says is settled must be (C1). A broker that has lost the group's coordination and does not know of it
// yet answers with what was true before, so that only the log can tell that a commit went back; where there is none, samples must do.
func (j *judge) commit(c *Commit) {
	if c.Offset < 0 || c.At.Sub(c.From) > tooLong || j.amidReset(c) {
		return
	}
	p := j.partition(place{c.Topic, c.Partition})
	if p.said.known && c.Offset < p.said.offset {
		if j.Logged != nil {
			return
		}
		j.findAt(Rewound, p.place, c.Offset, "was committed after %d", p.said.offset)
	}
	j.says(p, &p.said, c)
}

// written looks at a commit in the log.
func (j *judge) written(c *Commit) {
	if j.amidReset(c) {
		return
	}
	p := j.partition(place{c.Topic, c.Partition})
	if p.logged.known && c.Offset < p.logged.offset {
		j.findAt(Rewound, p.place, c.Offset, "was committed at %s after %d", c.At.Format("15:04:05.000"), p.logged.offset)
	}
	j.says(p, &p.logged, c)
}

// says takes note of a commit, and accuses what it counts as settled and is not.
func (j *judge) says(p *partition, s *said, c *Commit) {
	if s.known && s.offset == c.Offset && s.metadata == c.Metadata {
		return
	}
	*s = said{known: true, offset: c.Offset, metadata: c.Metadata}
	if w, err := window.Decode(c.Metadata); err == nil && w.Frontier == c.Offset {
		s.window = &w
	}
	for p.low < len(p.records) && !p.records[p.low].must() {
		p.low++
	}
	for _, r := range p.records[p.low:] {
		if r.Offset >= c.Offset && (s.window == nil || r.Offset > s.window.Highest) {
			break
		}
		if r.must() && !r.accused && s.settles(r) {
			r.accused = true
			j.v.CommittedPastUnfinished++
			j.find(CommittedPastUnfinished, r, "counts as settled by %v (of %s), and nothing says that it was", s, c.At.Format("15:04:05.000"))
		}
	}
}

// begun is the earliest time that it speaks of.
func (c *Commit) begun() time.Time {
	if c.From.IsZero() {
		return c.At
	}
	return c.From
}

// amidReset says whether an operator moved the offset while it was read.
func (j *judge) amidReset(c *Commit) bool {
	for i := range j.Incidents {
		in := &j.Incidents[i]
		if in.What == Reset && in.Partition == c.Partition && (in.Topic == "" || in.Topic == c.Topic) && !c.begun().After(in.To) && !c.At.Before(in.From) {
			return true
		}
	}
	return false
}

// redone: what had ended does not begin again where the group's commit says that it has (C5).
func (j *judge) redone(c *call) {
	r := c.rec
	says := r.of.said.settles(r)
	if !r.ended && !says {
		return
	}
	j.v.Redone++
	if !says || j.woke(c) {
		j.v.RedoneAllowed++
		return
	}
	j.find(Redone, r, "was begun again by %s, though it counted as settled by %v", c.line.Member, &r.of.said)
}

// businessKey is what is known of a business key.
type businessKey struct {
	done    bool            // a copy has ended
	marked  map[string]bool // by host: its mark is durable
	lived   map[string]bool // by member: it has ended it, in a tenure that surely lasted
	holders []*call         // that run with it
	records []*record       // of it
}

func (j *judge) key(id string) *businessKey {
	k := j.ids[id]
	if k == nil {
		k = &businessKey{marked: map[string]bool{}, lived: map[string]bool{}}
		j.ids[id] = k
	}
	return k
}

// isDone says whether a copy has ended.
func (j *judge) isDone(r *record) bool {
	return j.Dedupe && r.ID != "" && j.key(r.ID).done
}

// doneWith notes what a success says of the record's key: all copies are settled, as the oracle can't tell which of them a store has
// passed over.
func (j *judge) doneWith(c *call, l *Line) {
	if !j.Dedupe || c.rec.ID == "" {
		return
	}
	k := j.key(c.rec.ID)
	k.done = true
	for _, r := range k.records {
		r.settled = true
	}
	if !j.outlived(c, l.Nanos) { // else its owner may have lost the partition, and then it leaves no mark
		k.lived[l.Member] = true
	}
}

func (j *judge) mark(m *Mark) { j.key(m.ID).marked[m.Host] = true }

func (j *judge) storeLost(in *Incident) {
	for _, k := range j.ids {
		delete(k.marked, Host(in.Member))
	}
}

// business: where a key's mark is durable no copy of it runs, and no two run at a time in one process (C5).
func (j *judge) business(c *call) {
	if !j.Dedupe || c.rec.ID == "" {
		return
	}
	k, member := j.key(c.rec.ID), c.line.Member
	switch {
	case k.marked[Host(member)]:
		j.v.BusinessDuplicates++
		j.find(BusinessDuplicate, c.rec, "was begun by %s, and the mark of its key %q was in the store there", member, c.rec.ID)
	case k.lived[member]:
		j.v.BusinessDuplicates++
		j.find(BusinessDuplicate, c.rec, "was begun by %s, which had ended a record with the key %q before", member, c.rec.ID)
	}
	for _, other := range k.holders {
		if other.line.Member == member && !j.outlived(other, c.line.Nanos) {
			j.v.BusinessDuplicates++
			j.find(BusinessDuplicate, c.rec, "was begun by %s while it was at %s[%d]@%d with the key %q", member, other.rec.Topic, other.rec.Partition, other.rec.Offset, c.rec.ID)
		}
	}
	k.holders = append(k.holders, c)
}

func (j *judge) noLongerHolds(c *call) {
	if j.Dedupe && c.rec.ID != "" {
		k := j.key(c.rec.ID)
		for i, h := range k.holders {
			if h == c {
				k.holders = append(k.holders[:i], k.holders[i+1:]...)
				break
			}
		}
	}
}
