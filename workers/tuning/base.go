package tuning

import (
	"fmt"
	"math"
)

// atBase takes in a window at the settled limit, and begins the next trial if it is time.
func (t *Tuner) atBase(w *window, now point) Decision {
	if now.rate == 0 {
		return t.failing(w)
	}
	if t.base.rate == 0 {
		t.base = now
		t.know(now)
		return t.next()
	}
	change := math.Log(now.rate / t.base.rate)
	if math.Abs(change) > max(shifted, 4*math.Hypot(now.doubt, t.base.doubt)) {
		if t.odd++; t.odd < 2 { // a hiccup, so far
			return t.decision()
		}
		return t.changed(now, change)
	}
	t.odd = 0
	if tr := t.trial; tr != nil { // it seemed to pay, compared with what was before it; now with what came after
		t.trial = nil
		if t.pays(now, tr) {
			return t.accept(tr, now)
		}
		t.blend(now)
		return t.reject(tr, now)
	}
	t.blend(now)
	t.know(t.base)
	t.rest -= w.seconds
	if t.pause > 0 && t.rest > 0 {
		return t.decision()
	}
	return t.next()
}

// blend lets the base follow what is measured there.
func (t *Tuner) blend(now point) {
	const share = 0.4
	t.base.rate += share * (now.rate - t.base.rate)
	t.base.doubt = math.Hypot((1-share)*t.base.doubt, share*now.doubt)
}

// know notes how long a record takes where handlers wait least for each other. The least of several that are hardly known would be
// a matter of luck.
func (t *Tuner) know(p point) {
	if p.doubt < 0.1 && (t.alone == 0 || p.each() < t.alone) {
		t.alone = p.each()
	}
}

// changed begins a new search: handlers get more or less done with the same workers than they did. If it is less nobody knows
// whether they need more workers or fewer, and fewer can do no harm.
func (t *Tuner) changed(now point, change float64) Decision {
	was := t.base.rate
	t.base, t.odd, t.trial = now, 0, nil
	dir := 1
	if change < 0 {
		dir = -1
	}
	t.search(dir, mid)
	if t.slows(now, now.doubt) {
		t.slow, t.factor = 1, big
	}
	d := t.next()
	t.state = fmt.Sprintf("searching: %d workers went from %s to %s", now.n, perSecond(was), perSecond(now.rate))
	return d
}

// failing is about a window in which nothing succeeded.
func (t *Tuner) failing(w *window) Decision {
	t.trial = nil
	if w.failed < max(8, int64(t.base.n)/2) { // nothing has ended, or too little to say what is wrong
		t.state = "waiting: no record is through"
		return t.decision()
	}
	t.base.rate = 0
	t.search(1, big)
	from := t.base.n
	if from == t.min {
		t.state = "failing: no attempt succeeds"
		return t.decision()
	}
	t.base.n = max(t.min, from/2)
	t.run(t.base.n)
	t.state = "failing: no attempt succeeds"
	return t.settled(ReasonFailing, fmt.Sprintf("%d to %d workers: none of the last %d attempts succeeded", from, t.base.n, w.failed))
}

// next begins the next trial, or rests if there is nothing to try.
func (t *Tuner) next() Decision {
	if t.pause > 0 { // one small step
		t.ceiling, t.floor = 0, 0
	}
	n := t.candidate()
	if n == 0 && t.pause == 0 {
		t.dir, t.factor = -t.dir, stepFor(t.base.doubt)
		n = t.candidate()
	}
	if n == 0 {
		t.hold(t.pause)
		return t.decision()
	}
	t.trial = &trial{point: point{n: n}, span: t.span.seconds(&window{}), resume: t.pause, proof: t.dir < 0 && t.factor == big && t.slow > 0}
	t.state = fmt.Sprintf("trying %d workers in place of %d", n, t.base.n)
	t.run(n)
	return t.decision()
}

// candidate is the limit to try next; 0 = there is none in that direction.
func (t *Tuner) candidate() int {
	if n := t.aim; n != 0 {
		t.aim = 0
		return n
	}
	n := t.base.n
	for _, factor := range []float64{t.factor, small} {
		if t.dir > 0 {
			if factor == big && n < few {
				factor *= factor
			}
			to := max(n+1, int(math.Round(float64(n)*factor)))
			if float64(to)*1.1 > float64(t.max) {
				to = t.max
			}
			if to > n && (t.ceiling == 0 || to < t.ceiling) {
				return to
			}
		} else if to := max(t.min, min(n-1, int(math.Round(float64(n)/factor)))); to < n && to > t.floor {
			return to
		}
	}
	return 0
}

// hold rests until the next trial. Each one that changes nothing doubles the time to the next.
func (t *Tuner) hold(was float64) {
	t.climbing = false
	t.pause = min(max(firstPause, 2*was), maxPause)
	t.rest = t.pause * (0.75 + t.rng.Float64()/2)
	t.dir, t.factor = 1, stepFor(t.base.doubt)
	if t.rested++; t.base.rate > 0 && t.slows(t.base, t.base.doubt) { // more would not be kept
		t.slow++
		t.dir = -1
		if t.rest *= 2; t.rested >= max(t.proven, 3) { // it costs half of the work for as long as it takes
			t.factor = big
			t.proven = 3 * t.rested
		}
	} else if t.rested%4 == 0 { // less often: if fewer would do as well, no work waits for that
		t.dir = -1
		t.rest /= 2
	}
	t.state = fmt.Sprintf("settled: %s with %d workers", perSecond(t.base.rate), t.base.n)
}

func perSecond(rate float64) string {
	switch {
	case rate >= 10_000:
		return fmt.Sprintf("%.3gk/s", rate/1000)
	case rate >= 100:
		return fmt.Sprintf("%.0f/s", rate)
	}
	return fmt.Sprintf("%.3g/s", rate)
}
