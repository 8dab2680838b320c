package tracker

import (
	"math/bits"
	"slices"
)

// Window is what a successor needs to know so that it repeats only what was not
// done: the frontier, and what is done beyond it. It lists the records that are
// not done, so its size follows the work in flight and not the width of the
// window. The zero value is ready for Snapshot; use one again and again to save
// its memory. A Window is a plain value that belongs to one goroutine.
type Window struct {
	// Frontier is the offset to commit, LeaderEpoch the leader epoch of the last
	// record below it: see Tracker.Frontier.
	Frontier    int64
	LeaderEpoch int32

	// Highest is the highest offset beyond the frontier that is done, or Frontier-1
	// if there is none (NoOffset if the frontier is NoOffset).
	Highest int64

	// Undone are the delivered offsets from Frontier to Highest that are not done,
	// in ascending order. If Highest is above Frontier then Frontier is the first
	// of them, so that a reader who forgets that the frontier itself is never done
	// loses nothing. Otherwise it is empty.
	Undone []int64

	// Epochs are the leader epochs of the delivered records from Frontier to
	// Highest, in ascending order of offsets and without repetition. A truncated
	// log uses offsets again: a redelivered record is the one that was done only if
	// its leader epoch is the same.
	Epochs []EpochStart

	// Tail is set by the caller: Undone and Epochs go on to the last delivered
	// record instead of ending at Highest. Who joins a window with what lies beyond
	// the tail needs it; nothing between the two may be taken for done.
	Tail bool

	// Limit is set by the caller: the most offsets that Undone may list, 0 for no
	// limit. Where there are more, Highest is lowered to the highest done offset
	// below the first one that is not listed, and Cut is set: the successor repeats
	// more, and skips nothing that was not done.
	Limit int
	Cut   bool

	// The one reading of the done bits that all of the above derive from.
	base   Seq      // the number of the first page
	places []uint32 // by page: where its words stand in words, or wholly if all of its records are done
	words  []uint64
}

// EpochStart says that delivered records from First on have this leader epoch.
type EpochStart struct {
	First       int64
	LeaderEpoch int32
}

// Done reports whether the window says that this offset is settled. Offsets that
// were never delivered (transaction markers, compacted records) and lie below
// Highest count as settled; the frontier itself and all above Highest do not.
func (w *Window) Done(offset int64) bool {
	if offset < w.Frontier {
		return true
	}
	if offset == w.Frontier || offset > w.Highest {
		return false
	}
	_, undone := slices.BinarySearch(w.Undone, offset)
	return !undone
}

// Epoch returns the leader epoch of a delivered offset between Frontier and
// Highest, and false for an offset outside of them.
func (w *Window) Epoch(offset int64) (leaderEpoch int32, ok bool) {
	if offset < w.Frontier || offset > w.Highest {
		return 0, false
	}
	for _, e := range slices.Backward(w.Epochs) {
		if e.First <= offset {
			return e.LeaderEpoch, true
		}
	}
	return 0, false
}

// Snapshot writes the frontier and what is done beyond it into w.
//
// The parts agree with each other whatever Done calls run meanwhile, because
// each word of done bits is read exactly once and all parts derive from that
// reading. What is read is a cut: it holds every completion that had returned
// before Snapshot was called, none that began after it returned, and any subset
// of those in between, since words are read one after the other and bits only
// turn from 0 to 1. Two completions in different words that follow one another
// during the call may therefore show in the opposite order. That is harmless: all
// that the cut says is done is done, and the frontier is the lowest record that
// the same cut says is not. What would not be harmless is two readings, one for
// the frontier and one for the set: then the set could be that of another frontier.
func (t *Tracker) Snapshot(w *Window) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail := Seq(t.tail.Load())
	w.read(t, tail)
	w.words, w.places = shrunk(w.words), shrunk(w.places)

	f := firstUndone(t.frontier, tail, w.word)
	t.done += uint64(f - t.frontier)
	t.settle(f)

	w.Frontier, w.LeaderEpoch = t.position(), t.leaderEpoch
	w.Highest = max(w.Frontier-1, NoOffset)
	w.Undone, w.Epochs, w.Cut = w.Undone[:0], w.Epochs[:0], false
	highest, ok := w.lastDone(f, tail)
	switch {
	case w.Tail && f < tail:
		w.list(&t.runs, f, tail-1)
		if !w.Cut {
			w.Highest = max(w.Frontier-1, NoOffset)
			if ok {
				w.Highest = t.runs.offset(highest)
			}
		}
	case ok:
		w.list(&t.runs, f, highest)
	}
}

// wholly is the place of a page of which all records are done.
const wholly = ^uint32(0)

// read takes the one reading, from the frontier's word to the tail.
func (w *Window) read(t *Tracker, tail Seq) {
	w.base, w.places, w.words = t.frontier/pageBits, w.places[:0], w.words[:0]
	if t.frontier == tail { // nothing to read, and perhaps no page to read it from
		return
	}
	for s := w.base * pageBits; s < tail; s += pageBits {
		if t.bits.folded(s) {
			w.places = append(w.places, wholly)
			continue
		}
		w.places = append(w.places, uint32(len(w.words)))
		for at := s; at < min(s+pageBits, tail); at += wordBits {
			if at+wordBits <= t.frontier {
				w.words = append(w.words, ^uint64(0))
				continue
			}
			w.words = append(w.words, t.bits.find(at, tail).Load())
			if t.onRead != nil {
				t.onRead(at)
			}
		}
	}
}

// shrunk gives back the memory of a stuck head that is over.
func shrunk[T any](s []T) []T {
	if cap(s) > 1024 && cap(s) > 4*len(s) {
		return slices.Clone(s)
	}
	return s
}

// word is the reading of the word of s.
func (w *Window) word(s Seq) uint64 {
	at := w.places[s/pageBits-w.base]
	if at == wholly {
		return ^uint64(0)
	}
	return w.words[at+uint32(s/wordBits%pageWords)]
}

// lastDone returns the highest number in [f, below) that the reading says is
// done.
func (w *Window) lastDone(f, below Seq) (Seq, bool) {
	for s := below; s > f; {
		start := (s - 1) &^ (wordBits - 1)
		word := w.word(start) & (^uint64(0) >> (wordBits - (s - start)))
		if start < f {
			word &^= uint64(1)<<(f-start) - 1
		}
		if word != 0 {
			return start + Seq(bits.Len64(word)) - 1, true
		}
		s = start
	}
	return 0, false
}

// list fills Undone, Epochs and Highest for the numbers from f to highest, run by
// run.
func (w *Window) list(q *runs, f, highest Seq) {
	undone := w.Undone
	i := q.head
	s := f
	for ; s <= highest; s++ {
		word := ^w.word(s) >> (s % wordBits)
		if word == 0 { // the rest of this word is done
			s |= wordBits - 1
			continue
		}
		if s += Seq(bits.TrailingZeros64(word)); s > highest {
			break
		}
		if len(undone) == w.Limit && w.Limit > 0 {
			w.Cut = true
			break
		}
		for i+1 < len(q.list) && q.list[i+1].seq <= s {
			i++
		}
		undone = append(undone, q.list[i].offset(s))
	}
	if w.Cut {
		lower, ok := w.lastDone(f, s)
		if !ok { // the limit is used up before anything is done
			w.Undone = undone[:0]
			return
		}
		highest = lower
	}
	w.Highest = q.offset(highest)
	for len(undone) > 0 && undone[len(undone)-1] > w.Highest {
		undone = undone[:len(undone)-1]
	}
	w.Undone = undone
	for i := q.head; i < len(q.list) && q.list[i].seq <= highest; i++ {
		if n := len(w.Epochs); n > 0 && w.Epochs[n-1].LeaderEpoch == q.list[i].epoch {
			continue
		}
		w.Epochs = append(w.Epochs, EpochStart{max(q.list[i].first, w.Frontier), q.list[i].epoch})
	}
}
