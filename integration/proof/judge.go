package proof

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// Judge compares the evidence. It goes through the journal in the order in which it was written, with all else in between by its time.
func Judge(ev *Evidence) Verdict {
	j := newJudge(ev)
	for i := range ev.Lines {
		l := &ev.Lines[i]
		j.until(l.Nanos)
		j.line(l)
	}
	j.until(math.MaxInt64)
	j.end()
	return j.v
}

// maxFindings bounds the findings that are put in words. The counts have no bound.
const maxFindings = 50

type place struct {
	topic     string
	partition int32
}

// record is what is known of a record at the present line.
type record struct {
	Record
	of      *partition
	lane    *lane // nil: no order is promised
	settled bool
	ended   bool // with success, at some time
	accused bool // of being committed without being settled
	running []*call
}

// partition is what is known of a partition.
type partition struct {
	place
	records []*record // by offset
	low     int       // those before it are settled, or need not be
	said    said      // what could be read
	logged  said      // what was written
}

// lane is what order is promised in: a partition, or a key of it.
type lane struct {
	records []*record
	next    int // the first that has to be settled yet
	running []*call
	tenures map[tenure]int64 // the highest offset that each has begun
}

// tenure is one assignment of a partition to a process.
type tenure struct {
	member   string
	sequence uint64
}

// call is a handler at work on a record.
type call struct {
	rec   *record
	line  *Line
	batch int  // 0: none; else the number of the line that began the batch
	void  bool // an earlier one of its batch has failed, under partition order: it counts for nothing
}

func (c *call) tenure() tenure { return tenure{c.line.Member, c.line.Sequence} }

type judge struct {
	Evidence
	v          Verdict
	partitions map[place]*partition
	calls      map[string][]*call      // by member
	batches    map[tenure]map[int]int  // by partition: the batch that began last
	deaths     map[string]int64        // when a member was surely gone
	ids        map[string]*businessKey // with Dedupe
	events     []event
	next       int // of events
}

// defaults are those of the engine.
var defaults = engine.Config{}.WithDefaults()

// event is what happens between the lines.
type event struct {
	at int64
	do func()
}

func newJudge(ev *Evidence) *judge {
	j := &judge{
		Evidence: *ev, v: Verdict{Rounds: 1, Seed: ev.Seed, Seconds: ev.Took.Seconds()}, partitions: map[place]*partition{},
		calls: map[string][]*call{}, batches: map[tenure]map[int]int{}, deaths: map[string]int64{}, ids: map[string]*businessKey{},
	}
	if j.Session == 0 {
		j.Session = defaults.SessionTimeout
	}
	if j.Drain == 0 {
		j.Drain = defaults.DrainTimeout
	}
	j.Incidents = joinPauses(ev.Incidents)
	lanes := map[string]*lane{}
	for _, r := range ev.Records {
		p := j.partition(place{r.Topic, r.Partition})
		rec := &record{Record: r, of: p}
		p.records = append(p.records, rec)
		if !r.Aborted {
			j.v.Records++
		}
		if ev.Dedupe && r.ID != "" {
			k := j.key(r.ID)
			k.records = append(k.records, rec)
		}
	}
	for _, p := range j.partitions {
		slices.SortFunc(p.records, func(a, b *record) int { return cmp.Compare(a.Offset, b.Offset) })
		for _, rec := range p.records {
			if name := j.laneOf(rec); name != "" && !rec.Aborted {
				if lanes[name] == nil {
					lanes[name] = &lane{tenures: map[tenure]int64{}}
				}
				rec.lane = lanes[name]
				rec.lane.records = append(rec.lane.records, rec)
			}
		}
	}
	j.plan()
	return j
}

func (j *judge) partition(at place) *partition {
	if j.partitions[at] == nil {
		j.partitions[at] = &partition{place: at}
	}
	return j.partitions[at]
}

// laneOf names the lane of a record; empty: none.
func (j *judge) laneOf(r *record) string {
	switch {
	case j.Order == engine.OrderPartition:
		return r.Topic + "/" + strconv.Itoa(int(r.Partition))
	case j.Order == engine.OrderKey && r.Key != nil:
		return r.Topic + "/" + strconv.Itoa(int(r.Partition)) + "/" + string(r.Key)
	}
	return ""
}

// plan puts into order what is not in the journal.
func (j *judge) plan() {
	add := func(at time.Time, do func()) { j.events = append(j.events, event{at.UnixNano(), do}) }
	// Under virtual time much happens at the very same instant. What was written then may have been before what was read or done then.
	after := func(at time.Time, do func()) { add(at.Add(1), do) }
	for i := range j.DeadLetters {
		add(j.DeadLetters[i].At, func() { j.deadLetter(&j.DeadLetters[i]) })
	}
	for i := range j.Commits {
		after(j.Commits[i].At, func() { j.commit(&j.Commits[i]) })
	}
	for i := range j.Logged {
		after(j.Logged[i].At, func() { j.written(&j.Logged[i]) })
	}
	for i := range j.Marks {
		after(j.Marks[i].At, func() { j.mark(&j.Marks[i]) })
	}
	for i := range j.Incidents {
		in := &j.Incidents[i]
		switch in.What {
		case Killed, Stopping:
			if !in.To.IsZero() {
				after(in.To, func() { j.dies(in) })
			}
		case Reset:
			add(in.From, func() { j.reset(in) })
		case StoreLost:
			after(in.From, func() { j.storeLost(in) })
		}
	}
	slices.SortStableFunc(j.events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
}

// until has all happen that happened up to then.
func (j *judge) until(nanos int64) {
	for ; j.next < len(j.events) && j.events[j.next].at <= nanos; j.next++ {
		j.events[j.next].do()
	}
}

func (j *judge) find(f Fault, r *record, format string, args ...any) {
	j.findAt(f, r.of.place, r.Offset, format, args...)
}

func (j *judge) findAt(f Fault, at place, offset int64, format string, args ...any) {
	if len(j.v.Findings) >= maxFindings {
		return
	}
	j.v.Findings = append(j.v.Findings, Finding{
		Fault: f, Topic: at.topic, Partition: at.partition, Offset: offset, Text: fmt.Sprintf(format, args...), Lines: j.linesOf(at, offset),
	})
}

// linesOf are the lines about a record, at most a dozen.
func (j *judge) linesOf(at place, offset int64) (lines []Line) {
	for i := range j.Lines {
		if l := &j.Lines[i]; l.Offset == offset && l.Partition == at.partition && l.Topic == at.topic {
			if lines = append(lines, *l); len(lines) == 12 {
				break
			}
		}
	}
	return lines
}

// look is the record of an address; nil: there never was one.
func (j *judge) look(topic string, p int32, offset int64) *record {
	part := j.partitions[place{topic, p}]
	if part == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(part.records, offset, func(r *record, o int64) int { return cmp.Compare(r.Offset, o) })
	if !ok {
		return nil
	}
	return part.records[i]
}

// must says whether a record has to be settled before anything may pass it, and is not.
func (r *record) must() bool { return !r.settled && !r.Gone && !r.Aborted }

func (j *judge) deadLetter(d *DeadLetter) {
	if r := j.look(d.Topic, d.Partition, d.Offset); r != nil {
		r.settled = true
	} else {
		j.findAt(Foreign, place{d.Topic, d.Partition}, d.Offset, "has a dead letter, and was never produced")
	}
}

// dies ends what the handlers of a process were at.
func (j *judge) dies(in *Incident) {
	for _, c := range slices.Clone(j.calls[in.Member]) {
		j.over(c)
	}
	j.deaths[in.Member] = in.To.UnixNano()
}

// reset has everything from an offset on be handled again, but for what the store knows. What lies before it is not asked for any more.
func (j *judge) reset(in *Incident) {
	for at, p := range j.partitions {
		if at.partition != in.Partition || in.Topic != "" && at.topic != in.Topic {
			continue
		}
		p.said, p.logged, p.low = said{}, said{}, 0
		for _, r := range p.records {
			if r.settled = r.Offset < in.Offset || j.isDone(r); r.lane != nil {
				r.lane.next = 0
			}
		}
	}
}

// end looks at what is left.
func (j *judge) end() {
	ends := slices.Clone(j.Ends)
	slices.SortFunc(ends, func(a, b End) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, e := range ends {
		p := j.partition(place{e.Topic, e.Partition})
		undone, gone := 0, 0
		for _, r := range p.records {
			switch {
			case r.must() && r.Offset < e.Committed:
				j.v.Lost++
				j.find(Lost, r, "was never settled, and the group has committed %d", e.Committed)
			case r.must():
				undone++
			case r.Gone && r.Offset >= e.Committed:
				gone++
			}
		}
		if max(e.Committed, 0) < e.End && (undone > 0 || gone == 0) { // a tail that compaction removed is never passed
			j.v.Stuck++
			j.findAt(Stuck, p.place, -1, "has committed %d of %d, and %d records are left to do%s", e.Committed, e.End, undone, p.first())
		}
	}
}

// first names the first record that is left to do.
func (p *partition) first() string {
	for _, r := range p.records {
		if r.must() {
			return fmt.Sprintf(", the first at %d", r.Offset)
		}
	}
	return ""
}
