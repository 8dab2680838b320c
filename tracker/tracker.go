package tracker

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
)

// Seq is a delivery sequence number. The first record that a Tracker is given
// is 0, each further one is one more, whatever its offset is. Numbers go on
// across a Rebase and are never used twice.
type Seq uint64

// NoOffset stands for a position that is not known yet, such as that of a
// partition without a committed offset before its first record arrives. Any
// negative offset given to New or Rebase is taken as NoOffset. A Frontier that
// is NoOffset must not be committed.
const NoOffset int64 = -1

// DefaultMaxSpan is the span bound where Options.MaxSpan is 0, in deliveries.
const DefaultMaxSpan = 1 << 25

var (
	// ErrSpan says that the records do not fit between the frontier and the span
	// bound. Nothing was added; what is done at the head makes room. A single call
	// with more than MaxSpan records never fits.
	ErrSpan = errors.New("tracker: too many deliveries beyond the frontier")

	// ErrOrder says that the offsets are not strictly increasing, not above the
	// last delivered one, below the position, negative, or at the end of the int64
	// range. Nothing was added. A partition that truly starts over needs a Rebase.
	ErrOrder = errors.New("tracker: offset is not above the last delivered one")

	// ErrClosed says that the epoch is dead. Nothing was added.
	ErrClosed = errors.New("tracker: closed")
)

// Options are the settings of a Tracker. The zero value is useful.
type Options struct {
	// MaxSpan bounds the deliveries between the frontier and the tail, done or
	// not; 0 or less means DefaultMaxSpan.
	//
	// It bounds memory when the record at the head is stuck. A delivery costs 0.15
	// bits where offsets are dense and nearly all of them are done, which is 0.6 MB
	// at the default, 1.2 bits where one in each 1,024 is not, and 17 bits where
	// every second offset is a hole, which is 70 MB. Where offsets are thousands
	// apart it is more, up to 50 bytes when each record is 65,536 above the last.
	MaxSpan int
}

// Tracker holds what is settled of one assignment of one partition. Make it
// with New; it must not be copied.
type Tracker struct {
	// What Done reads. The order of the writes in Add and of the reads in find is
	// part of the protocol: see bitmap.find.
	bits  bitmap
	tail  atomic.Uint64 // the next sequence number
	start atomic.Uint64 // numbers below it died in a Rebase or Close

	doubleDone atomic.Uint64
	staleDone  atomic.Uint64

	mu          sync.Mutex
	frontier    Seq   // the lowest number not known to be done
	next        int64 // the lowest offset that Add accepts, or NoOffset
	runs        runs  // the offsets of [frontier, tail)
	done        uint64
	forgotten   uint64
	maxSpan     int
	leaderEpoch int32 // of the last record below the frontier
	closed      bool

	// onRead, if set, is called by Snapshot after it has read a word, so that a
	// test can complete records in the middle of a reading.
	onRead func(s Seq)
}

// New returns a Tracker for one epoch. The offset is the next one to read, that
// is the resume position, or NoOffset; the leader epoch is the one that was
// committed with it, or -1 if unknown. Memory is allocated with the first record.
func New(offset int64, leaderEpoch int32, o Options) *Tracker {
	if o.MaxSpan <= 0 {
		o.MaxSpan = DefaultMaxSpan
	}
	return &Tracker{next: max(offset, NoOffset), leaderEpoch: leaderEpoch, maxSpan: o.MaxSpan}
}

// Add takes delivered records into account and returns the sequence number of
// the first; the others follow it one by one. The offsets must be strictly
// increasing and may have holes; they are not kept. The leader epoch is that of
// the records' batch, or -1 if unknown. Adding nothing returns the next number.
// The errors are ErrSpan, ErrOrder and ErrClosed; none of them adds anything.
func (t *Tracker) Add(offsets []int64, leaderEpoch int32) (Seq, error) {
	n := len(offsets)
	if n == 0 {
		return t.AddRange(0, 0, leaderEpoch)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, ErrClosed
	}
	for i := 1; i < n; i++ {
		if offsets[i] <= offsets[i-1] {
			return 0, ErrOrder
		}
	}
	seq, err := t.admit(offsets[0], offsets[n-1], n)
	if err != nil {
		return 0, err
	}
	for i := 0; i < n; { // by stretches without a hole
		j := i + 1
		for j < n && offsets[j] == offsets[j-1]+1 {
			j++
		}
		t.runs.add(seq+Seq(i), offsets[i], j-i, leaderEpoch)
		i = j
	}
	t.deliver(seq, n, offsets[n-1]+1)
	return seq, nil
}

// AddRange is Add for n records with the offsets first, first+1 and so on
// without a hole. It costs the same for any n, but for the bitmap's pages. An n
// of 0 or less adds nothing.
func (t *Tracker) AddRange(first int64, n int, leaderEpoch int32) (Seq, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, ErrClosed
	}
	if n <= 0 {
		return Seq(t.tail.Load()), nil
	}
	seq, err := t.admit(first, first+int64(n)-1, n)
	if err != nil {
		return 0, err
	}
	t.runs.add(seq, first, n, leaderEpoch)
	t.deliver(seq, n, first+int64(n))
	return seq, nil
}

// admit decides whether n records with these outer offsets may be delivered,
// and returns the number of the first.
func (t *Tracker) admit(first, last int64, n int) (Seq, error) {
	// The offset after the last must exist, too; an overflow made last negative.
	if first < max(t.next, 0) || last < first || last == math.MaxInt64 {
		return 0, ErrOrder
	}
	t.advance()
	tail := Seq(t.tail.Load())
	if n > t.maxSpan-int(tail-t.frontier) {
		return 0, ErrSpan
	}
	return tail, nil
}

// deliver makes the numbers from seq on known to Done. The pages are in place
// before the tail says so; until then a Done for them is one for an unknown number.
func (t *Tracker) deliver(seq Seq, n int, next int64) {
	t.bits.grow(seq, seq+Seq(n))
	t.next = next
	t.tail.Store(uint64(seq) + uint64(n))
}

// Pass says that reading went on to next without a further record: what lay
// between was transaction markers, aborted or compacted away. When all records
// are done the frontier moves there at once, otherwise once they are, so that
// the lag behind a trailing marker reaches 0 (C2). A lower offset than the one
// that Next returns is ignored, as is any on a closed tracker.
func (t *Tracker) Pass(next int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.next = max(t.next, next)
	}
}

// Rebase moves the tracker to another position, forwards or backwards: the log
// was truncated, its head was deleted, or the position was reset. Offset and
// leader epoch are as in New. Everything delivered is forgotten. The numbers that
// were outstanding become stale: their Done returns false and is counted, and for
// IsDone and Undone, like all below the frontier, they count as done. On a
// closed tracker Rebase does nothing.
func (t *Tracker) Rebase(offset int64, leaderEpoch int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.seal()
	t.forget(offset, leaderEpoch)
}

// Close ends the epoch: from here on Done changes nothing but a counter, Add
// returns ErrClosed, and the memory of the outstanding records is released.
// Frontier keeps answering with the frontier as Close found it; what was done
// beyond it is forgotten, so take the last Snapshot before. Closing again does
// nothing.
func (t *Tracker) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	t.settle(t.seal())
	t.forget(t.position(), t.leaderEpoch)
}

// seal makes all numbers below the tail stale and returns the lowest that was
// not done. It fills every word atomically, and what a word held at that moment
// is what counts: a Done that came before it returned true and is in the count,
// one that comes after finds its bit taken.
func (t *Tracker) seal() Seq {
	tail := Seq(t.tail.Load())
	// First, so that a Done that finds its bit taken knows why.
	t.start.Store(uint64(tail))
	first, done := t.bits.seal(t.frontier, tail)
	t.done += uint64(done) // settle does not count these again: see there
	t.forgotten += uint64(tail-t.frontier) - uint64(done)
	return first
}

// forget drops all that was delivered, after seal, and stands at offset.
func (t *Tracker) forget(offset int64, leaderEpoch int32) {
	t.frontier = Seq(t.tail.Load())
	t.runs = runs{}
	t.bits.reset()
	t.next = max(offset, NoOffset)
	t.leaderEpoch = leaderEpoch
}
