package dedupe

import (
	"sync"
	"sync/atomic"
	"time"
)

// futureTolerance is how far a stream time may be ahead of this machine before it counts as wrong.
const futureTolerance = time.Minute

// clock tells the time by which marks age, in milliseconds since 1970. It never goes back.
//
// It is the earlier of the wall clock and the latest stream time, where one was ever observed: a consumer that works off a
// backlog, or comes back after a weekend, does not expire the marks of the records around the one that it is at. The wall
// clock counts from what it said when the store was opened and goes on by the monotonic clock, so that setting it while the
// process runs neither expires anything early nor brings anything back. Where it stands behind the time of the last run, it
// was set back between the runs, and everything is shifted by the difference: the clock goes on from where it was instead of
// standing still until the wall clock has caught up.
type clock struct {
	now       func() time.Time
	elapsed   func() time.Duration // since this was made; monotonic
	base      int64                // the wall clock at the start
	shift     int64                // added to wall and stream times
	retention int64

	stream atomic.Int64 // the latest accepted; 0: none ever
	future atomic.Int64 // observations refused

	mu       sync.Mutex
	last     int64
	accepted int64 // elapsed at the last accepted observation
}

// newClock goes on from the last time and the latest stream time of the run before, both 0 in a new store.
func newClock(now func() time.Time, elapsed func() time.Duration, retention time.Duration, last, stream int64) *clock {
	start := now()
	if elapsed == nil {
		elapsed = func() time.Duration { return now().Sub(start) }
	}
	began := elapsed()
	c := &clock{now: now, elapsed: func() time.Duration { return elapsed() - began }, base: max(start.UnixMilli(), 1), last: last, retention: retention.Milliseconds()}
	c.shift = max(0, last-c.base)
	c.stream.Store(stream)
	return c
}

func (c *clock) wall() int64 { return c.base + c.elapsed().Milliseconds() }

// read returns the time.
func (c *clock) read() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.wall()
	if s := c.stream.Load(); s > 0 {
		t = min(t, s)
	}
	c.last = max(c.last, t+c.shift)
	return c.last
}

// observe takes note of a stream time. One that is ahead of the wall clock expires nothing: it counts as now if it is
// ahead by no more than the tolerance, otherwise not at all. But where nothing acceptable has come for a whole retention
// and such times go on, the producers' clocks are wrong and not the record, and the time follows the wall clock a retention
// behind; otherwise nothing would ever expire.
func (c *clock) observe(at time.Time) {
	t := at.UnixMilli()
	if t <= c.stream.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, elapsed := c.wall(), c.elapsed().Milliseconds()
	switch {
	case t <= wall+futureTolerance.Milliseconds():
		t = min(t, wall)
		c.accepted = elapsed
	case elapsed-c.accepted > c.retention && c.stream.Load() > 0:
		c.future.Add(1)
		t = wall - c.retention
	default:
		c.future.Add(1)
		return
	}
	if t > c.stream.Load() {
		c.stream.Store(t)
	}
}

// drift is how far the wall clock was set since the store was opened.
func (c *clock) drift() time.Duration {
	return time.Duration(c.now().UnixMilli()-c.wall()) * time.Millisecond
}
