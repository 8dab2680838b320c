package demo

import (
	"time"
)

// snapshot is what the live view shows at a moment.
type snapshot struct {
	at         time.Duration
	total      int
	produced   int64
	handled    int64
	rate       float64 // handled a second, of late
	dead       int64
	lag        int64
	inFlight   int
	retrying   int
	members    []memberRow
	partitions []partitionRow
	story      []event
}

type memberRow struct {
	name             string
	limit, running   int
	partitions       int
	healthy, present bool
	killed           bool
}

type partitionRow struct {
	owner               string // empty: nobody's at this moment
	lag                 int64
	inFlight, retrying  int
	frontier, committed int64
	rate                float64
}

// camera takes snapshots, and remembers what it saw for rates and for partitions between two owners.
type camera struct {
	d    *demo
	past []reading // at most a second of them
	rows []partitionRow
}

type reading struct {
	at   time.Time
	done []int64
}

const rateWindow = time.Second

func newCamera(d *demo) *camera {
	return &camera{d: d, rows: make([]partitionRow, d.o.partitions)}
}

func (c *camera) snapshot() snapshot {
	d := c.d
	s := snapshot{at: time.Since(d.journal.begun), total: len(d.plan.records)}
	now := reading{time.Now(), make([]int64, len(c.rows))}
	s.dead = d.journal.progress(now.done)
	c.past = append(c.past, now)
	for len(c.past) > 2 && now.at.Sub(c.past[1].at) >= rateWindow {
		c.past = c.past[1:]
	}
	old := c.past[0]
	elapsed := now.at.Sub(old.at).Seconds()
	for p := range c.rows {
		row := &c.rows[p]
		row.owner, row.inFlight, row.retrying = "", 0, 0
		if elapsed > 0 {
			row.rate = float64(now.done[p]-old.done[p]) / elapsed
		}
		s.rate += row.rate
		s.handled += now.done[p]
	}
	for _, name := range []string{"A", "B"} {
		s.members = append(s.members, c.member(name))
	}
	f, w := d.source.Load(), d.witness.Load()
	for p := range c.rows {
		row := &c.rows[p]
		if w != nil { // also sees the last commit of a member that has left
			if latest := w.latest.Load(); latest != nil {
				row.committed = max(row.committed, latest.committed[int32(p)].offset)
			}
		}
		row.frontier = max(row.frontier, row.committed) // that of a member that has left may have moved since the last look
		if f != nil {
			s.produced += f.acked[p].Load()
			row.lag = max(f.ends[p].Load()-row.committed, 0)
		}
		s.lag += row.lag
		s.inFlight += row.inFlight
		s.retrying += row.retrying
	}
	s.partitions = append(s.partitions, c.rows...)
	d.mu.Lock()
	s.story = append(s.story, d.story...)
	d.mu.Unlock()
	return s
}

// member fills in the rows of the partitions that a member has.
func (c *camera) member(name string) memberRow {
	row := memberRow{name: name, healthy: true, killed: c.d.isKilled(name)}
	for _, m := range c.d.present() {
		if m.name != name {
			continue
		}
		st := m.now.Load()
		row.present, row.healthy = st.Ready, st.Healthy
		row.limit, row.running = st.Limit, st.Running
		for _, p := range st.Partitions {
			r := &c.rows[p.Partition]
			r.owner, r.inFlight, r.retrying = name, p.InFlight, p.Parked
			r.frontier = max(p.Frontier, r.frontier)
			row.partitions++
		}
	}
	return row
}
