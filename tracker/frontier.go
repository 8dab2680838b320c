package tracker

import "math/bits"

// Frontier returns the offset to commit, which is the next one to read: the
// offset of the first delivered record that is not done, or, when all are done,
// the offset after the last delivered record or the one that Pass gave. It is
// NoOffset as long as the position is unknown; then there is nothing to commit.
// The leader epoch is that of the last record below the frontier, or the initial
// one if there is none.
func (t *Tracker) Frontier() (offset int64, leaderEpoch int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance()
	return t.position(), t.leaderEpoch
}

// Oldest returns the lowest record that is not done: the one that holds the
// frontier. If there is none it returns the next number, the frontier and false.
func (t *Tracker) Oldest() (s Seq, offset int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance()
	return t.frontier, t.position(), t.frontier < Seq(t.tail.Load())
}

// Next returns the tail: the number that the next delivered record gets, and
// the lowest offset it may have, which is the offset after the last delivered
// record unless Pass moved it. On a closed tracker the offset is the frontier.
func (t *Tracker) Next() (s Seq, offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Seq(t.tail.Load()), t.next
}

// Offset returns the offset of a delivered record. It is false for a number
// that the frontier has passed, that a Close or Rebase forgot, or that was never
// delivered. It searches the runs of offsets: O(log runs).
func (t *Tracker) Offset(s Seq) (offset int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s < t.frontier || s >= Seq(t.tail.Load()) {
		return 0, false
	}
	return t.runs.offset(s), true
}

// Span returns the number of deliveries between the frontier and the tail, done
// or not. It is what Options.MaxSpan bounds.
func (t *Tracker) Span() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance()
	return int(Seq(t.tail.Load()) - t.frontier)
}

// Pending returns the number of delivered records that are not done. It counts
// the bits of the span: 16,000 words for a million records.
func (t *Tracker) Pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance()
	tail := Seq(t.tail.Load())
	return int(tail-t.frontier) - t.bits.count(t.frontier, tail)
}

// position returns the offset of the frontier as it stands.
func (t *Tracker) position() int64 {
	if t.frontier == Seq(t.tail.Load()) {
		return t.next
	}
	return t.runs.firstOffset(t.frontier)
}

// advance moves the frontier over all that is done at the head.
func (t *Tracker) advance() {
	tail := Seq(t.tail.Load())
	f := firstUndone(t.frontier, tail, func(s Seq) uint64 { return t.bits.find(s, tail).Load() })
	t.done += uint64(f - t.frontier)
	t.settle(f)
}

// firstUndone returns the lowest number in [f, tail) that is not done, or the
// tail. The function gives the word of a number and is asked once per word.
func firstUndone(f, tail Seq, word func(Seq) uint64) Seq {
	for f < tail {
		step := leadingDone(word(f), f)
		f += Seq(step)
		if step == 0 || f%wordBits != 0 {
			break
		}
	}
	return f
}

// leadingDone returns how many numbers from s on are done without a gap, to the
// end of the word at most. Bits at and above the tail are 0 and stop it.
func leadingDone(word uint64, s Seq) int {
	return bits.TrailingZeros64(^(word >> (s % wordBits)))
}

// settle makes f the frontier: all below it is done. It lets go of their pages
// and offsets. The count of done records is the caller's, because seal counts
// those beyond the frontier, too.
func (t *Tracker) settle(f Seq) {
	if f == t.frontier {
		return
	}
	t.frontier = f
	t.leaderEpoch = t.runs.dropBelow(f, Seq(t.tail.Load()))
	t.bits.drop(f)
}
