package tuning

import (
	"fmt"
	"math"
)

// compare returns what b gains over a and the step between them, as logarithms, and the standard error of the gain.
func compare(a, b point) (gain, step, doubt float64) {
	return math.Log(max(b.rate, 1e-9) / a.rate), math.Log(float64(b.n) / float64(a.n)), math.Hypot(a.doubt, b.doubt)
}

// pays says whether the trial should be kept in place of a.
func (t *Tuner) pays(a point, b *trial) bool {
	gain, step, doubt := compare(a, b.point)
	if step > 0 {
		return gain > max(worthMore*step, b.sure()*doubt) && !t.slows(b.point, doubt)
	}
	// Noise must not pass for a loss that is none, unless more is done.
	return -gain < worthLess*-step+doubt/2 && doubt < max(0.03, 0.15*-step) || gain > sure*doubt
}

// slows says that records take too long at that point.
func (t *Tuner) slows(p point, doubt float64) bool {
	return t.alone > 0 && p.each() > slowest*t.alone*(1+sure*doubt)
}

// judge ends a trial's measurement. seconds is the span of calls, with those in the window.
func (t *Tuner) judge(w *window, seconds float64) Decision {
	tr, base := t.trial, t.base
	ok := t.pays(base, tr)
	gain, step, doubt := compare(base, tr.point)
	longer, again := t.knowStraight(base, tr)
	if again {
		t.trial = nil
		t.run(base.n, seconds)
		t.dir, t.factor, t.floor, t.rest = -1, big, 0, 0
		return t.decision()
	}
	switch {
	case ok && step > 0 && gain > 1.4*step+sure*doubt && !t.again:
		// Too good: what was measured at the base does not hold any more.
		t.again = true
		t.trial = nil
		t.base.rate = 0
		t.run(base.n, seconds)
		return t.decision()
	case ok && tr.resume > 0 && math.Abs(gain/step) < 0.5:
		tr.seen = true
		t.run(base.n, seconds)
		return t.decision()
	}
	t.trial = nil
	crowded := !ok && t.crowded(base, tr.point)
	if !ok && !crowded {
		t.run(base.n, seconds)
		if longer && step < 0 { // then more workers may be what is missing
			t.search(1, big)
			t.floor = base.n - 1
			return t.decision()
		}
		return t.reject(tr, base)
	}
	t.span.fold(w)
	d := t.accept(tr, base)
	if t.factor > small || t.aim != 0 { // far from the knee: on at once
		d.Limit = t.next().Limit
	}
	return d
}

// knowStraight learns how long a record takes by itself where half the workers do half the work: handlers do not wait for each
// other then, however long they take. It says whether that is longer than was known. One trial is not enough, because others may have
// changed their limits just then: it says whether there is to be another one.
func (t *Tuner) knowStraight(base point, tr *trial) (longer, again bool) {
	gain, step, doubt := compare(base, tr.point)
	if t.climbing && step > 0 && gain/step > straight-doubt/step && doubt < 0.3*step {
		t.alone = base.each() // the few calls at the start may have been short by chance
	}
	if !tr.proof || tr.rate == 0 {
		return false, false
	}
	t.proofs = append(t.proofs, gain/step)
	if n := len(t.proofs); n < enough && gain/step > linear {
		return false, true
	}
	var sum float64
	for _, e := range t.proofs {
		sum += e / float64(len(t.proofs))
	}
	done := len(t.proofs) >= enough
	t.proofs = nil
	if !done || sum < straight {
		return false, false
	}
	was := t.alone
	t.alone = min(base.each(), tr.each())
	return t.alone > 1.2*was, false
}

// enough trials tell whether handlers wait for each other.
const enough = 3

// crowded says that fewer workers are to be kept although they do less: records take much longer than they have to, and not because
// each takes longer by itself, or the loss would be as large as the step. Others drive what the handlers call as well.
func (t *Tuner) crowded(base, fewer point) bool {
	gain, step, doubt := compare(base, fewer)
	return step < 0 && t.slows(base, doubt) && -gain+2*doubt < straight*-step
}

// accept makes the trial the base.
func (t *Tuner) accept(tr *trial, was point) Decision {
	gain, step, doubt := compare(was, tr.point)
	t.base = tr.point
	if t.limit != t.base.n {
		t.run(t.base.n)
	}
	factor := float64(tr.n) / float64(was.n)
	why := ReasonMore
	if t.crowded(was, tr.point) && !t.pays(was, tr) {
		why = ReasonCrowded
		t.search(-1, small)
		t.ceiling = was.n
		t.know(t.base)
	} else if step > 0 {
		t.search(1, min(big, factor*factor))
		if gain < linear*step-2*doubt {
			t.factor = small
			t.aimAt(was, tr.point)
		}
	} else {
		why = ReasonFewer
		t.search(-1, min(big, 1/(factor*factor)))
		t.ceiling = was.n // that step, the other way, has just been measured
		t.know(t.base)
	}
	t.state = "searching"
	return t.settled(why, fmt.Sprintf("%d to %d workers: throughput went from %s to %s, the time a record takes from %s to %s",
		was.n, tr.n, perSecond(was.rate), perSecond(tr.rate), duration(was.each()), duration(tr.each())))
}

// aimAt makes the next trial one where the knee must be, if more work was done between two limits, and not as much more as it would
// have been without one: as many workers as are busy at the higher throughput if each record takes as long as at the lower
// limit, and a tenth more.
func (t *Tuner) aimAt(lower, upper point) {
	knee := int(math.Ceil(1.1 * float64(lower.n) * upper.rate / lower.rate))
	if knee > lower.n && float64(knee) < float64(upper.n)/1.1 {
		t.aim = knee
		t.dir = -1
	}
}

// reject keeps the base, and chooses what to try next.
func (t *Tuner) reject(tr *trial, base point) Decision {
	gain, step, doubt := compare(base, tr.point)
	slow := step > 0 && gain > max(worthMore*step, tr.sure()*doubt)
	if slow {
		t.slow++
	}
	if tr.resume > 0 {
		t.hold(tr.resume)
		t.factor = max(t.factor, stepFor(doubt))
		return t.decision()
	}
	if slow { // records take long, unless each does by itself: fewer will tell
		t.ceiling, t.floor, t.dir, t.factor = tr.n, 0, -1, big
		return t.decision()
	}
	// If it may as well be true that twice the workers do twice the work, nothing has been learnt.
	if step > 0 && t.repeats < 3 && sure*doubt > (linear-worthMore)*step && gain+sure*doubt > linear*step {
		t.repeats++
		return t.decision()
	}
	t.dir = -t.dir
	t.factor = stepFor(doubt)
	switch {
	case step > 0:
		t.ceiling = tr.n
		if step > math.Log(small) && gain < worthMore*step { // perhaps the knee is far below
			t.factor = max(t.factor, mid)
		}
	case gain < linear*step+doubt: // as much less was done as there were fewer workers
		t.floor = base.n - 1
		t.factor = big
	default:
		t.floor = tr.n
		t.aimAt(tr.point, base)
		t.dir = -1
	}
	return t.decision()
}

// stepFor is a step that shows what it is worth in spite of that much doubt.
func stepFor(doubt float64) float64 {
	if doubt < 0.03 {
		return small
	}
	return mid
}

func duration(seconds float64) string {
	switch {
	case seconds >= 1:
		return fmt.Sprintf("%.3g s", seconds)
	case seconds >= 1e-3:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.3g us", seconds*1e6)
}
