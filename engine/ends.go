package engine

import (
	"fmt"
	"time"
)

// endsStaleAfter is how old what is known of a log's end may be before it is ill health: the lag is counted from it, so a consumer that
// hears nothing would seem to keep up. Fetches tell it as records come, and logEndLoop asks each logEndTick.
const endsStaleAfter = 30 * time.Second

// endAge is how long ago the end of the log was heard of.
func (ep *epoch) endAge(now time.Time) time.Duration {
	return max(now.Sub(time.Unix(0, max(ep.heard.Load(), ep.asked.Load()))), 0)
}

// staleEnds counts the partitions whose lag may be more than is shown, and says how long at most nothing was heard.
func staleEnds(eps []*epoch, now time.Time) (n int, oldest time.Duration) {
	for _, ep := range eps {
		if age := ep.endAge(now); age >= endsStaleAfter && ep.is(phaseActive) && !ep.stoppedFor(stopTopicGone) {
			n++
			oldest = max(oldest, age)
		}
	}
	return n, oldest
}

func (ep *epoch) stoppedFor(why stopReason) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.stops&why != 0
}

func staleEndsText(n int, oldest time.Duration) string {
	return fmt.Sprintf("the log ends of %d partitions are not known anew for up to %v, so their lag may be more than is shown: look at the brokers and at the network", n, oldest.Round(time.Second))
}

// lookForStaleEnds says it once; Status makes it a problem for as long as it lasts.
func (w *watchdog) lookForStaleEnds(e *Engine, eps []*epoch, now time.Time) {
	n, oldest := staleEnds(eps, now)
	if n > 0 && !w.stale {
		e.emit(Event{Name: EventLogEndsStale, Partition: -1, Count: int64(n), Took: oldest, Hint: staleEndsText(n, oldest)})
	}
	w.stale = n > 0
}
