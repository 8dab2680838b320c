package tracker

import "math/bits"

// This file is the half of the Tracker that takes no lock.

// Done says that the record is settled. It returns true the first time. A second
// Done, one for a number that was never delivered, and one for a number that died
// in a Close or Rebase return false and change only the counters of Stats.
func (t *Tracker) Done(s Seq) bool {
	if w := t.bits.find(s, Seq(t.tail.Load())); w != nil {
		bit := uint64(1) << (s % wordBits)
		if w.Or(bit)&bit == 0 {
			return true
		}
	}
	t.refuse(s, 1)
	return false
}

// DoneRange is Done for the n records from s on, and returns how many of them
// were newly done. It costs one atomic operation per 64 records. Workers that
// take records in slices should finish them this way.
func (t *Tracker) DoneRange(s Seq, n int) int {
	tail := Seq(t.tail.Load())
	newly := 0
	for n > 0 {
		if s >= tail {
			t.refuse(s, n)
			break
		}
		mask, k := spanInWord(s, n, tail)
		var fresh uint64
		if w := t.bits.find(s, tail); w != nil {
			fresh = mask &^ w.Or(mask)
		}
		newly += bits.OnesCount64(fresh)
		t.refuseBits(s, mask&^fresh)
		s, n = s+Seq(k), n-k
	}
	return newly
}

// IsDone reports whether the record is settled. All below the frontier count as
// done, and so does what a Close or Rebase forgot: nobody waits for it any more.
// A number that was never delivered is not done.
func (t *Tracker) IsDone(s Seq) bool {
	tail := Seq(t.tail.Load())
	if s >= tail {
		return false
	}
	w := t.bits.find(s, tail)
	return w == nil || w.Load()>>(s%wordBits)&1 == 1
}

// Undone returns how many of the n records from s on are not done yet, by the
// rule of IsDone. It reads each word once; under concurrent Done calls the
// answer is never below what is left at the end of the call.
func (t *Tracker) Undone(s Seq, n int) int {
	tail := Seq(t.tail.Load())
	undone := 0
	for n > 0 {
		if s >= tail {
			undone += n
			break
		}
		mask, k := spanInWord(s, n, tail)
		if w := t.bits.find(s, tail); w != nil {
			undone += bits.OnesCount64(mask &^ w.Load())
		}
		s, n = s+Seq(k), n-k
	}
	return undone
}

// spanInWord returns how many of the n numbers from s on lie in the word of s
// and below the tail, and their bits.
func spanInWord(s Seq, n int, tail Seq) (mask uint64, k int) {
	k = min(n, wordBits-int(s%wordBits))
	if left := tail - s; left < Seq(k) {
		k = int(left)
	}
	return ^uint64(0) >> (wordBits - k) << (s % wordBits), k
}

// refuse counts n completions that changed nothing: all of dead or unknown
// numbers, or all second ones.
func (t *Tracker) refuse(s Seq, n int) {
	if s < Seq(t.start.Load()) || s >= Seq(t.tail.Load()) {
		t.staleDone.Add(uint64(n))
	} else {
		t.doubleDone.Add(uint64(n))
	}
}

// refuseBits is refuse for delivered numbers in the word of s, some of which may
// have died in a Rebase in the middle of the word.
func (t *Tracker) refuseBits(s Seq, refused uint64) {
	if refused == 0 {
		return
	}
	base, start := s&^(wordBits-1), Seq(t.start.Load())
	var dead uint64
	switch {
	case start >= base+wordBits:
		dead = refused
	case start > base:
		dead = refused & (1<<(start-base) - 1)
	}
	t.staleDone.Add(uint64(bits.OnesCount64(dead)))
	t.doubleDone.Add(uint64(bits.OnesCount64(refused &^ dead)))
}
