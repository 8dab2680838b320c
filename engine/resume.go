package engine

import (
	"errors"
	"math"
	"slices"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/gaplesshq/gapless/tracker"
)

// The resume window of a partition says what is settled beyond its committed offset. It goes with every commit, as the commit's
// metadata, and the next owner does not do that work again. Its form is in docs/resume-window.md.

// listMax bounds the offsets that a window lists before it is encoded. More than that do not fit into a commit.
const listMax = 4096

// snapshotter is the scratch space of who takes windows. It belongs to one goroutine at a time.
type snapshotter struct {
	tr  tracker.Window
	out window.Window
}

// window is what the next owner needs to know now, with at most limit unfinished offsets: what the tracker says of the records that were delivered here, and, beyond
// them, what an earlier owner had left. The result is valid until the next call.
func (s *snapshotter) window(ep *epoch, limit int) *window.Window {
	ep.joining.Lock() // what is delivered is either in the tracker and passed over, or still only in before
	defer ep.joining.Unlock()
	before := ep.before.Load()
	_, next := ep.tr.Next()
	if before != nil && before.Highest < next {
		before = nil
	}
	s.tr.Limit, s.tr.Tail = limit, before != nil
	ep.tr.Snapshot(&s.tr)
	w := &s.out
	*w = window.Window{Undone: append(w.Undone[:0], s.tr.Undone...), Epochs: w.Epochs[:0], Trying: -1}
	w.Frontier, w.Highest, w.Cut = s.tr.Frontier, s.tr.Highest, s.tr.Cut
	ep.mu.Lock()
	w.TopicID, w.Partitions = ep.topicID, ep.partitions
	for _, r := range ep.runs {
		if before == nil || r.First < next {
			w.Epochs = append(w.Epochs, r)
		}
	}
	ep.mu.Unlock()
	if before != nil && !s.tr.Cut {
		joinBefore(w, before, max(next, w.Frontier))
	}
	return w
}

// noLeaderEpoch is that of a run which covers no record.
const noLeaderEpoch = math.MaxInt32

// joinBefore adds what an earlier owner had settled from the offset next on.
func joinBefore(w, before *window.Window, next int64) {
	w.Highest = max(w.Highest, before.Highest)
	w.Cut = w.Cut || before.Cut
	from, _ := slices.BinarySearch(before.Undone, next)
	w.Undone = append(w.Undone, before.Undone[from:]...)
	if !slices.IsSorted(w.Undone) {
		slices.Sort(w.Undone)
	}
	w.Undone = slices.Compact(w.Undone)
	if len(before.Epochs) > 0 && before.Epochs[0].First > next && len(w.Epochs) > 0 {
		w.Epochs = append(w.Epochs, window.Epoch{First: next, LeaderEpoch: noLeaderEpoch}) // else the last run would cover what no run of before did
	}
	for i, r := range before.Epochs {
		if i+1 < len(before.Epochs) && before.Epochs[i+1].First <= next {
			continue
		}
		r.First = max(r.First, next)
		if n := len(w.Epochs); n == 0 || w.Epochs[n-1].LeaderEpoch != r.LeaderEpoch {
			w.Epochs = append(w.Epochs, r)
		}
	}
	if len(w.Undone) == 0 || w.Undone[0] != w.Frontier {
		w.Undone = slices.Insert(w.Undone, 0, w.Frontier) // a frontier is never settled: who reads this relies on it
	}
}

// why a window was not used.
var (
	errOtherTopic  = errors.New("it is of another topic of this name, or the topic's id is not known")
	errOtherOffset = errors.New("it belongs to another offset than the committed one")
)

// findWindow reads the window that came with the group's commit. Any doubt resolves to none: then records may be handled
// again, and nothing is passed over that was not handled.
func (e *Engine) findWindow(ep *epoch) {
	ep.mu.Lock()
	metadata, at := ep.metadata, ep.committedAt
	ep.metadata = ""
	if ep.topicID == [16]byte{} {
		e.mu.Lock()
		ep.topicID = e.topics[ep.topic].id
		e.mu.Unlock()
	}
	id := ep.topicID
	ep.mu.Unlock()
	w, err := window.Decode(metadata)
	switch {
	case errors.Is(err, window.ErrNone):
		return
	case err != nil:
	case !w.Same(id) && w.TopicID == [16]byte{} && w.Highest < w.Frontier: // from a broker without ids, and there is nothing to ignore
		ep.mu.Lock()
		ep.partitions = w.Partitions
		ep.mu.Unlock()
		return
	case !w.Same(id):
		err = errOtherTopic
	case w.Frontier != at:
		err = errOtherOffset
	}
	if err != nil {
		e.emit(Event{Name: EventWindowIgnored, Topic: ep.topic, Partition: ep.partition, Offset: at, Err: err,
			Hint: "what was settled beyond the commit is not known and is handled again"})
		return
	}
	ep.mu.Lock()
	ep.partitions = w.Partitions
	ep.bypassBelow = w.BypassBelow
	ep.mu.Unlock()
	ep.crash.find(&w)
	if row := e.findRow(ep, &w); row != nil {
		w = *row
	}
	if max(w.Highest+1, w.Frontier) > at {
		ep.before.Store(&w)
	}
}

// earlier is how many records beyond the commit earlier owners have settled, as far as their window says.
func (ep *epoch) earlier() int64 {
	w := ep.before.Load()
	if w == nil {
		return 0
	}
	settled, _ := w.Counts()
	return settled
}

// noteRun remembers the leader epoch of what is delivered from an offset on. The fetch loop calls it before the tracker hears
// of the records, so that the runs cover whatever a snapshot shows.
func (ep *epoch) noteRun(first int64, leaderEpoch int32) {
	if ep.hasRun && ep.lastRun == leaderEpoch {
		return
	}
	ep.hasRun, ep.lastRun = true, leaderEpoch
	ep.mu.Lock()
	ep.runs = append(ep.runs, window.Epoch{First: first, LeaderEpoch: leaderEpoch})
	ep.mu.Unlock()
}

// forgetRuns drops the runs that end below the committed offset. ep.mu is held.
func (ep *epoch) forgetRuns(committed int64) {
	n := 0
	for n+1 < len(ep.runs) && ep.runs[n+1].First <= committed {
		n++
	}
	ep.runs = slices.Delete(ep.runs, 0, n)
}

// passSettled settles what an earlier owner has finished, and returns what is left to do. Whether a record is the one that was
// finished is decided by its topic's id, its offset and its leader epoch: a topic that was created again uses offsets again, and so
// does a truncated log. The id is that which the fetch itself had: what was heard of the topic before may be older than its records.
func (e *Engine) passSettled(ep *epoch, topicID [16]byte, fetched []stretch) (left []stretch) {
	before := ep.before.Load()
	if before == nil || len(fetched) == 0 {
		return fetched
	}
	if !before.Same(topicID) {
		ep.before.Store(nil)
		return fetched
	}
	end := fetched[len(fetched)-1].recs
	last := end[len(end)-1].Offset
	for _, s := range fetched {
		left = e.passIn(ep, before, s, left)
	}
	if last >= before.Highest {
		ep.before.Store(nil) // from here on the tracker knows it all
	}
	return left
}

// passIn appends what is left of a stretch to left.
func (e *Engine) passIn(ep *epoch, before *window.Window, s stretch, left []stretch) []stretch {
	var open stretch
	passed := 0 // of the records right before this one
	for i, r := range s.recs {
		if !before.Settled(r.Offset, r.LeaderEpoch) {
			e.records.Release(s.recs[i-passed : i])
			passed = 0
			if len(open.recs) == 0 {
				open.first = s.first + tracker.Seq(i)
			}
			open.recs = s.recs[i-len(open.recs) : i+1 : i+1]
			open.bytes += sizeOf(r)
			continue
		}
		if len(open.recs) > 0 {
			left = append(left, open)
			open = stretch{}
		}
		e.settle(ep, &item{rec: r, seq: s.first + tracker.Seq(i)}, settledEarlier)
		passed++
	}
	e.records.Release(s.recs[len(s.recs)-passed:])
	if len(open.recs) > 0 {
		left = append(left, open)
	}
	return left
}
