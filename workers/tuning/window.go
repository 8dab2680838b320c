package tuning

import (
	"math"
	"time"
)

// Sample is what happened since the sample before.
type Sample struct {
	Elapsed time.Duration
	// Done counts the records that were handled well. Failed counts attempts that were not.
	Done, Failed int64
	// Calls counts the stretches of work that workers have ended: a handler's call, or a chunk of short ones. Busy is the sum of
	// their times, and Squares the sum of those times' squares, in seconds.
	Calls   int64
	Busy    time.Duration
	Squares float64
	// InFlight is how many workers had work at the end, and Waiting says that there was work for one more.
	InFlight int
	Waiting  bool
}

// window adds up samples at one limit.
type window struct {
	samples, starved int // starved: there was no work for one more
	seconds          float64
	occupied         float64 // worker-seconds, of ended calls or not
	busy, squares    float64
	done, failed     int64
	calls            int64
}

// add takes in a sample; limit is what was in force.
func (w *window) add(s Sample, limit int) {
	w.samples++
	if !s.Waiting || s.InFlight < limit {
		w.starved++
	}
	w.seconds += s.Elapsed.Seconds()
	w.occupied += s.Elapsed.Seconds() * float64(s.InFlight)
	w.busy += s.Busy.Seconds()
	w.squares += s.Squares
	w.done += s.Done
	w.failed += s.Failed
	w.calls += s.Calls
}

// starving says that work ran out, so that the window says nothing about handlers. A sample now and then may miss work that a
// worker is just fetching.
func (w *window) starving() bool { return w.samples >= 3 && w.starved*5 > w.samples }

// rate is how many records a second are handled well. Counting alone would depend on how many bursts of completions fall into
// the window, so it is corrected by how much of the workers' time the ended calls account for. What is at the window's two ends explains a
// difference of a call's length at most (span, in seconds); more than that is no such work (stuck handlers, time between calls).
func (w *window) rate(span float64) float64 {
	if w.done == 0 || w.seconds == 0 {
		return 0
	}
	counted := float64(w.done) / w.seconds
	if w.busy == 0 {
		return counted
	}
	ends := min(span/w.seconds, 0.9)
	return counted * min(max(w.occupied/w.busy, 1-ends), 1+ends)
}

// doubt is the relative standard error of rate, as far as the spread of the calls' times explains it.
func (w *window) doubt() float64 {
	const floor = 0.005
	if w.calls == 0 || w.busy == 0 {
		return 1
	}
	n := float64(w.calls)
	spread := max(n*w.squares/(w.busy*w.busy)-1, 0) // squared coefficient of variation
	return max(math.Sqrt(spread/n), floor)
}

// span is how long the calls take that are running at some moment, in seconds: a mean that counts long ones for longer. After
// a change it takes that long until what completes was begun under the new limit.
type span struct{ busy, squares float64 }

// fold takes in a window; older ones count less and less.
func (s *span) fold(w *window) {
	if w.busy == 0 {
		return
	}
	if s.busy > 0 { // the one before counts half, however much was done in it
		f := w.busy / s.busy / 2
		s.busy, s.squares = s.busy*f, s.squares*f
	}
	s.busy += w.busy
	s.squares += w.squares
}

// seconds is the span with what w has seen so far. One extremely long call may not hold up everything.
func (s span) seconds(w *window) float64 {
	s.fold(w)
	if s.busy == 0 {
		return 0
	}
	length := s.squares / s.busy
	if w.calls > 0 {
		return min(length, max(longest, 2*w.busy/float64(w.calls)))
	}
	return length
}

// longest bounds a span, in seconds, unless most calls take as long.
const longest = 5.0
