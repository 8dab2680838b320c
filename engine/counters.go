package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

// counters count what is rare. What is not (successes) is counted by epoch and by topic, a chunk at a time. All of them only grow.
type counters struct {
	failures, retries, deadLettered, deadLetterFailures, skipped, stale atomic.Int64
	commits, commitErrors, lostEpochs, suspensions, lost, sinceCommit   atomic.Int64
	commitNanos, cutWindows, passed                                     atomic.Int64

	mu     sync.Mutex
	events map[EventName]int64
}

func (c *counters) commit(took time.Duration, err error) {
	c.commits.Add(1)
	c.commitNanos.Add(int64(took))
	if err != nil {
		c.commitErrors.Add(1)
	}
}

func (c *counters) event(n EventName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		c.events = map[EventName]int64{}
	}
	c.events[n]++
}

// LatencyBounds are the upper bounds of the handler latency histogram, in seconds; one more bucket is above the last.
var LatencyBounds = []float64{1e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// latencies is a histogram of handler times. Short handlers are measured a chunk at a time, so they enter with their chunk's
// mean; long ones are a chunk each. Nearly all observations are of one bucket, whose two words lie side by side: one cache line, mostly.
type latencies struct {
	buckets [22]struct{ records, nanos atomic.Int64 }
}

func (l *latencies) observe(n int, elapsed time.Duration) {
	if n == 0 {
		return
	}
	mean := elapsed.Seconds() / float64(n)
	i := 0
	for i < len(LatencyBounds) && mean > LatencyBounds[i] {
		i++
	}
	l.buckets[i].records.Add(int64(n))
	l.buckets[i].nanos.Add(int64(elapsed))
}

// nanos is the time that all of them took together.
func (l *latencies) nanos() (sum int64) {
	for i := range l.buckets {
		sum += l.buckets[i].nanos.Load()
	}
	return sum
}

// health is what speaks against this engine being well: by subject, an error or nothing.
type health struct {
	mu  sync.Mutex
	ill map[string]error
}

// set says whether the subject has become ill with this.
func (h *health) set(subject string, err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.ill, subject)
		return false
	}
	_, was := h.ill[subject]
	if h.ill == nil {
		h.ill = map[string]error{}
	}
	h.ill[subject] = err
	return !was
}
