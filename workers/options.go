package workers

import (
	"bytes"
	"time"
)

// Order says which items of a lane may run at the same time.
type Order uint8

const (
	// Unordered lanes run any item at any time.
	Unordered Order = iota
	// ByKey lanes run the items of one key in the order of their push, one at a time. Items without a key are unordered.
	ByKey
	// ByPartition lanes run one item after the other, in the order of their push.
	ByPartition
)

// String returns the name as it stands in a configuration: "unordered", "key" or "partition".
func (o Order) String() string {
	switch o {
	case ByKey:
		return "key"
	case ByPartition:
		return "partition"
	default:
		return "unordered"
	}
}

// Span is N items with the numbers from First on.
type Span struct {
	First uint64
	N     int
}

// DefaultTotal is the number of handlers that a pool runs at once when Options.Total is not set.
const DefaultTotal = 64

// Options says what a pool does with its items. Only Handle is required, and Key as soon as a lane is opened ByKey.
//
// The callbacks are called without any lock of this package held, except Key, Same and Completed, which run under the lock of
// the item's lane, and Left: these must therefore be quick and must not call back into the pool.
type Options[T any] struct {
	// Total is the most handlers that run at once over all lanes; below 1 means DefaultTotal.
	Total int
	// PerLane is the most handlers that run at once for one lane; below 1 means as many as Total.
	PerLane int

	// Key returns an item's key for ByKey lanes. A nil slice means that the item has no key and is unordered; an empty
	// slice that is not nil is a key like any other. The bytes must stay the same as long as the pool has the item: the
	// pool does not copy them but asks again. It is called by workers, never by Push.
	Key func(item *T) []byte
	// Same says whether an item has this key, as bytes.Equal of what Key returns would, which is the default. It is asked where two
	// hashes are equal, right after Key was asked for the next item's key. If both read an item's memory by one instruction, that
	// instruction goes to and fro, and the processor, which foresees what an instruction will read by the distance between its
	// last ones, foresees nothing: with few keys that took 45 ns of a record's 276 in the engine (docs/performance.md).
	Same func(item *T, key []byte) bool

	// Handle does the work, on a goroutine of the pool. It may go on to more of it with Task.Next. When it returns, every
	// item of the task is complete unless the task was told otherwise (Hold, Return). It must not panic; a handler that ends
	// its goroutine (runtime.Goexit) counts as one that returned.
	Handle func(t *Task[T])

	// BatchSize above 1 makes Handle get up to so many items of one lane at a time. Otherwise each task has one item.
	BatchSize int
	// BatchLinger is how long a batch that is not full waits for more items, counted from when the oldest item that it
	// could take was pushed or resumed. 0 means not at all. What is left over when a batch has started late, because all
	// workers were busy, may count as being as old as that batch and not wait as long; nothing waits longer.
	BatchLinger time.Duration

	// Completed is called with the numbers of those items of a chunk that their handlers marked (Task.Mark) and neither held
	// nor gave back, before their keys' next items start, before they are released, and before Drained is closed. It runs under
	// the lane's lock, once a chunk: it must be quick and must not call back into the pool. May be nil.
	Completed func(l *Lane[T], done []Span)
	// Release is called with each pushed item exactly once, when the pool has done its last read of it: after it was
	// completed or finished, or when Close dropped it unrun. The item's memory may be reused from then on. (An item that
	// Hold replaced is not released; see Task.Hold.) Items that ended together come together, those of a chunk mostly as they
	// were pushed: what is done for many at once costs each of them little. The slice is good for the call only. May be nil.
	Release func(items []T)
	// Turn is called after each chunk: this worker handled n items of the lane in the given time. One sample a chunk is
	// what latency statistics can have without a clock read for each record. May be nil.
	Turn func(worker int, l *Lane[T], n int, elapsed time.Duration)
	// Left is called when a worker leaves because there is nothing to do, before another one may get its number: what is kept by number
	// can be let go of. It runs under the pool's lock: it must be quick and must not call back into the pool. May be nil.
	Left func(worker int)
	// Low is called once each time a lane that was full (Push returned true) is at or below its low mark again. It can
	// come before that Push has returned. May be nil.
	Low func(l *Lane[T])

	// Now is the clock, by default time.Now.
	Now func() time.Time
	// AfterFunc calls f after d on a goroutine of its own; the function that it returns prevents the call and says whether
	// it was in time. By default time.AfterFunc and its Stop.
	AfterFunc func(d time.Duration, f func()) (stop func() bool)
}

// withDefaults fills in what was left out.
func (o Options[T]) withDefaults() Options[T] {
	if o.Handle == nil {
		panic("workers: Options.Handle is missing")
	}
	if o.Total < 1 {
		o.Total = DefaultTotal
	}
	o.PerLane = max(o.PerLane, 0)
	o.BatchSize = max(o.BatchSize, 1)
	if key := o.Key; key != nil && o.Same == nil {
		o.Same = func(item *T, other []byte) bool { return bytes.Equal(key(item), other) }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.AfterFunc == nil {
		o.AfterFunc = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	return o
}
