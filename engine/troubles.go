package engine

import "time"

// troubles is what an epoch has to remember only once something holds it up or goes wrong. Most never do, so it comes with the first need:
// a member may have ten thousand partitions that are idle.
type troubles struct {
	stopErr error     // why it is paused, where an error says it
	retryAt time.Time // when a fetch error is tried again
	backoff time.Duration
	pause   pauseNote // since when it is paused, and what was said of it

	commitErr   error
	commitFails int

	outputs, deadLetters writeFailure // what can't be written now
}

// trouble is where something is noted. ep.mu is held.
func (ep *epoch) trouble() *troubles {
	if ep.troubles == nil {
		ep.troubles = &troubles{}
	}
	return ep.troubles
}

// troubled is what was noted so far. ep.mu is held.
func (ep *epoch) troubled() (t troubles) {
	if ep.troubles != nil {
		t = *ep.troubles
	}
	return t
}

// stopExplained forgets the error once nothing is stopped. ep.mu is held.
func (ep *epoch) stopExplained() {
	if ep.stops == 0 && ep.troubles != nil {
		ep.troubles.stopErr = nil
	}
}
