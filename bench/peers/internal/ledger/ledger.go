// Package ledger sees for itself what a handler was given: which records, how often, when it began and ended, and what that cost.
//
// It is the handler's only work in the no-op workload, and so lean: a load and an atomic addition a record, in every Go arm alike.
package ledger

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// look is the time between two looks at how far the handlers are. The end of a run is known to about that.
const look = time.Millisecond

// A Ledger counts every record of a topic. Its methods may be called at the same time.
type Ledger struct {
	seen    [][]atomic.Uint32 // by partition and offset
	strange atomic.Int64      // calls for records that the topic does not have

	started atomic.Bool
	once    sync.Once
	begun   time.Time
	cpuThen time.Duration

	ended  time.Time // to be read after Watch
	cpuEnd time.Duration
}

// New makes a ledger of a topic whose partitions begin at 0 and end before these offsets.
func New(ends []int64) *Ledger {
	l := &Ledger{seen: make([][]atomic.Uint32, len(ends))}
	for p, end := range ends {
		l.seen[p] = make([]atomic.Uint32, end)
	}
	return l
}

// Begin says that a handler begins; the first one starts the clock.
func (l *Ledger) Begin() {
	if !l.started.Load() {
		l.once.Do(l.start)
	}
}

func (l *Ledger) start() {
	l.begun, l.cpuThen = time.Now(), cpuTime()
	l.started.Store(true)
}

// Done says that a record was handled.
func (l *Ledger) Done(partition int32, offset int64) {
	if uint(partition) >= uint(len(l.seen)) || uint64(offset) >= uint64(len(l.seen[partition])) {
		l.strange.Add(1)
		return
	}
	l.seen[partition][offset].Add(1)
}

// Watch returns when every record was handled, when none has been for the time of patience, or when ctx ends.
func (l *Ledger) Watch(ctx context.Context, patience time.Duration) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	upTo := make([]int, len(l.seen)) // all below was handled
	moved := time.Now()
	for {
		progress, missing := l.advance(upTo)
		if missing == 0 {
			l.ended, l.cpuEnd = time.Now(), cpuTime()
			return nil
		}
		if progress {
			moved = time.Now()
		} else if time.Since(moved) > patience {
			return fmt.Errorf("no record for %v, %s", patience, l.whereabouts())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, %s", context.Cause(ctx), l.whereabouts())
		case <-tick.C:
		}
	}
}

// advance moves each partition's mark over what was handled, and says whether one moved and how many have not reached their end.
func (l *Ledger) advance(upTo []int) (progress bool, missing int) {
	for p, seen := range l.seen {
		i := upTo[p]
		for i < len(seen) && seen[i].Load() > 0 {
			i++
		}
		progress = progress || i > upTo[p]
		upTo[p] = i
		if i < len(seen) {
			missing++
		}
	}
	return progress, missing
}

func (l *Ledger) whereabouts() string {
	c := l.Count()
	return fmt.Sprintf("after %d of %d records", c.Distinct, c.Records)
}

// A Count says which records were handled.
type Count struct {
	Records  int64 // of the topic
	Distinct int64 // of them handled at least once
	Again    int64 // calls beyond the first of a record
	Strange  int64 // calls for records that the topic does not have
}

// Count counts. It is exact once no handler runs any more.
func (l *Ledger) Count() Count {
	c := Count{Strange: l.strange.Load()}
	for _, seen := range l.seen {
		c.Records += int64(len(seen))
		for i := range seen {
			if n := int64(seen[i].Load()); n > 0 {
				c.Distinct++
				c.Again += n - 1
			}
		}
	}
	return c
}

// Took is the time from the first handler's begin to the last one's end, and the processor time of this process meanwhile, 0 where
// that can't be had. Both are 0 unless Watch has seen the end.
func (l *Ledger) Took() (wall, cpu time.Duration) {
	if l.ended.IsZero() || !l.started.Load() {
		return 0, 0
	}
	return l.ended.Sub(l.begun), l.cpuEnd - l.cpuThen
}
