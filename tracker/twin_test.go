package tracker

import "math"

// twin is the Tracker as one would write it without a thought for speed: a slice
// of all records ever delivered, and linear scans. It is the oracle of the
// property test and of the fuzz target.
type twin struct {
	all         []twinRecord // index = Seq
	start       int          // all below died in a Rebase or Close
	frontier    int          // as last moved; only Offset depends on it
	next        int64
	leaderEpoch int32
	maxSpan     int
	closed      bool
	stats       Stats
}

type twinRecord struct {
	offset int64
	epoch  int32
	done   bool
}

func newTwin(offset int64, leaderEpoch int32, maxSpan int) *twin {
	return &twin{next: max(offset, NoOffset), leaderEpoch: leaderEpoch, maxSpan: maxSpan}
}

// oldest returns the lowest number that is not done.
func (m *twin) oldest() int {
	i := m.start
	for i < len(m.all) && m.all[i].done {
		i++
	}
	return i
}

func (m *twin) add(offsets []int64, epoch int32) (Seq, error) {
	if m.closed {
		return 0, ErrClosed
	}
	for i := 1; i < len(offsets); i++ {
		if offsets[i] <= offsets[i-1] {
			return 0, ErrOrder
		}
	}
	switch {
	case len(offsets) == 0:
		return Seq(len(m.all)), nil
	case offsets[0] < m.next || offsets[0] < 0 || offsets[len(offsets)-1] == math.MaxInt64:
		return 0, ErrOrder
	}
	m.frontier = m.oldest()
	if len(m.all)-m.frontier+len(offsets) > m.maxSpan {
		return 0, ErrSpan
	}
	first := Seq(len(m.all))
	for _, o := range offsets {
		m.all = append(m.all, twinRecord{offset: o, epoch: epoch})
		m.next = o + 1
	}
	m.stats.Delivered += uint64(len(offsets))
	return first, nil
}

func (m *twin) doneOne(s Seq) bool {
	switch {
	case s >= Seq(len(m.all)) || s < Seq(m.start):
		m.stats.StaleDone++
		return false
	case m.all[s].done:
		m.stats.DoubleDone++
		return false
	}
	m.all[s].done = true
	m.stats.DoneCount++
	return true
}

func (m *twin) isDone(s Seq) bool {
	return s < Seq(len(m.all)) && (s < Seq(m.start) || m.all[s].done)
}

func (m *twin) position() (int64, int32) {
	m.frontier = m.oldest()
	offset, epoch := m.next, m.leaderEpoch
	if m.frontier < len(m.all) {
		offset = m.all[m.frontier].offset
	}
	if m.frontier > m.start {
		epoch = m.all[m.frontier-1].epoch
	}
	return offset, epoch
}

func (m *twin) pending() (n int) {
	for _, r := range m.all[m.start:] {
		if !r.done {
			n++
		}
	}
	return n
}

func (m *twin) pass(next int64) {
	if !m.closed {
		m.next = max(m.next, next)
	}
}

func (m *twin) rebase(offset int64, epoch int32) {
	if m.closed {
		return
	}
	m.stats.Forgotten += uint64(m.pending())
	m.start, m.frontier = len(m.all), len(m.all)
	m.next, m.leaderEpoch = max(offset, NoOffset), epoch
}

func (m *twin) close() {
	offset, epoch := m.position()
	m.rebase(offset, epoch)
	m.closed = true
}

// window is Snapshot by definition: look at each record beyond the frontier.
func (m *twin) window(limit int, tail bool) Window {
	w := Window{Tail: tail}
	w.Frontier, w.LeaderEpoch = m.position()
	w.Highest = max(w.Frontier-1, NoOffset)
	var undone []int64
	keep := 0
	for _, r := range m.all[m.frontier:] {
		if r.done {
			w.Highest, keep = r.offset, len(undone)
			continue
		}
		if limit > 0 && len(undone) == limit {
			w.Cut = tail
			break
		}
		undone = append(undone, r.offset)
	}
	upTo := w.Highest
	if tail && !w.Cut {
		keep, upTo = len(undone), math.MaxInt64
	}
	w.Undone = undone[:keep]
	for i, r := range m.all[m.frontier:] {
		if r.done && r.offset > w.Highest {
			w.Cut = true
		}
		if r.offset > upTo || i > 0 && r.epoch == m.all[m.frontier+i-1].epoch {
			continue
		}
		w.Epochs = append(w.Epochs, EpochStart{r.offset, r.epoch})
	}
	return w
}

func (m *twin) settledBy(w *Window, offset int64) bool {
	for _, u := range w.Undone {
		if u == offset {
			return false
		}
	}
	return offset < w.Frontier || offset > w.Frontier && offset <= w.Highest
}
