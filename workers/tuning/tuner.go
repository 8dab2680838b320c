package tuning

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// What a step must be worth. See doc.go.
const (
	// worthMore is the least elasticity for which more workers are kept, worthLess the most at which fewer are.
	worthMore, worthLess = 0.15, 0.05
	// linear is from where on elasticity counts as 1 when the next step is chosen, straight when it is to prove that handlers
	// do not wait for each other.
	linear, straight = 0.75, 0.95
	// sure is how many standard errors count as certain.
	sure = 2.5
	// slowest is how many times longer than without company a record may take in a limit that is raised. It matters where others
	// share what the handlers call: more of the same then always seems to pay.
	slowest = 2
	// shifted is a change of throughput, as a logarithm, that is not taken for noise.
	shifted = 0.2
)

// The factors of steps.
const (
	small = 1.25
	mid   = math.Sqrt2
	big   = 2
	few   = 8 // workers; below it a big step is twice as big
)

// Times, in seconds.
const (
	shortest             = 0.5 // a window
	soonest              = 0.1 // what follows a change is not looked at for that long
	patience             = 2.0 // for a window to become precise
	firstPause, maxPause = 5.0, 10.0
)

// Reason says why the limit is what it is.
type Reason string

// The reasons.
const (
	ReasonMore    Reason = "more"    // more workers did more
	ReasonFewer   Reason = "fewer"   // fewer workers do as well
	ReasonCrowded Reason = "crowded" // records take much longer than by themselves, and fewer workers lose less than their share
	ReasonFailing Reason = "failing" // no attempt succeeds: fewer fail as well
	ReasonBounds  Reason = "bounds"  // the bounds were changed
)

// Decision is the answer to a sample.
type Decision struct {
	// Limit is to be run with from now on. It differs from Settled during a trial.
	Limit int
	// Settled is the limit that the last trial left, and Reason, if it is not empty, says that it has just changed and why, Text in a sentence.
	Settled int
	Reason  Reason
	Text    string
}

// Options bound a tuner.
type Options struct {
	Min, Max int    // both at least 1
	Start    int    // the first limit
	Seed     uint64 // of the jitter between trials, so that members do not try at the same time
}

// Tuner decides on a limit. It is not safe for use by several goroutines.
type Tuner struct {
	min, max int
	rng      *rand.Rand

	base  point  // what is settled on
	trial *trial // under way
	limit int    // in force

	win    window
	settle float64 // seconds until the window may begin
	span   span

	ceiling, floor int       // what was tried from base without success; ceiling 0 = nothing yet
	dir            int       // of the next trial
	factor         float64   // of its step
	aim            int       // or where to, if it is not 0
	pause          float64   // seconds between trials once both ways were tried; 0 = searching
	rest           float64   // seconds until the next one
	rested         int       // times that it has rested since something changed
	climbing       bool      // it has not rested since it was made
	odd            int       // windows in a row in which throughput was another one
	repeats        int       // of trials from this base that said too little
	again          bool      // a result that was too good is being looked at once more
	proven         int       // rests that there must have been before it is proven again whether handlers wait for each other
	slow           int       // trials from this base that would have paid, had records not taken so long
	proofs         []float64 // elasticities of the trials that are to tell whether handlers wait for each other
	alone          float64   // seconds that a worker is busy with a record when handlers do not wait for each other
	state          string
}

// point is a limit and what was measured there.
type point struct {
	n     int
	rate  float64 // records a second; 0 = not measured
	doubt float64
}

// each is how many seconds a worker spends on a record.
func (p point) each() float64 { return float64(p.n) / p.rate }

type trial struct {
	point
	span   float64 // when it began
	seen   bool    // measured, and to be confirmed
	proof  bool    // it is to tell whether handlers wait for each other, and may take longer for that
	resume float64 // the pause that it ended; 0 = it is part of a search
}

// sure is how many standard errors a gain must be. One that is compared twice need not be as large.
func (t *trial) sure() float64 {
	if t.resume > 0 {
		return 1.7
	}
	return sure
}

// New makes a tuner.
func New(o Options) *Tuner {
	t := &Tuner{min: max(o.Min, 1), rng: rand.New(rand.NewPCG(o.Seed, 0x9e3779b97f4a7c15))}
	t.max = max(o.Max, t.min)
	t.base.n = min(max(o.Start, t.min), t.max)
	t.climbing = true
	t.search(1, big)
	t.run(t.base.n)
	t.state = "measuring"
	return t
}

// Limit is the limit in force.
func (t *Tuner) Limit() int { return t.limit }

// State says in words what the tuner is at.
func (t *Tuner) State() string { return t.state }

// SetBounds changes the bounds.
func (t *Tuner) SetBounds(least, most int) Decision {
	t.min = max(least, 1)
	t.max = max(most, t.min)
	from := t.base.n
	if n := min(max(from, t.min), t.max); n != from {
		t.base = point{n: n}
		t.trial = nil
		t.search(1, big)
		t.run(n)
		return t.settled(ReasonBounds, fmt.Sprintf("%d to %d workers are allowed", t.min, t.max))
	}
	if t.trial != nil && (t.trial.n < t.min || t.trial.n > t.max) {
		t.abandon()
	}
	t.search(1, mid)
	return t.decision()
}

// Update takes in what happened since the last call.
func (t *Tuner) Update(s Sample) Decision {
	t.settle -= s.Elapsed.Seconds()
	if t.settle > 0 {
		return t.decision()
	}
	t.win.add(s, t.limit)
	switch {
	case t.win.starving():
		t.state = "idle: there is no work for more workers"
		if t.trial != nil {
			t.abandon()
		}
		t.win = window{}
		return t.decision()
	case t.span.busy == 0 && t.win.calls >= int64(t.limit):
		// A round of calls has ended, so it is known how long they take. They all began at once, so the short ones are ahead.
		t.span.fold(&t.win)
		if t.win.seconds < 8*t.span.seconds(&window{}) {
			t.run(t.limit)
			return t.decision()
		}
	}
	if !t.complete() {
		return t.decision()
	}
	w := t.win
	t.win = window{}
	seconds := t.span.seconds(&w)
	if t.trial != nil && !t.trial.seen {
		t.trial.point = point{t.trial.n, w.rate(t.trial.span), w.doubt()}
		return t.judge(&w, seconds)
	}
	t.span.fold(&w)
	return t.atBase(&w, point{t.base.n, w.rate(seconds), w.doubt()})
}

func (t *Tuner) decision() Decision { return Decision{Limit: t.limit, Settled: t.base.n} }

func (t *Tuner) settled(why Reason, text string) Decision {
	return Decision{Limit: t.limit, Settled: t.base.n, Reason: why, Text: text}
}

// complete says whether the window says as much as it is going to.
func (t *Tuner) complete() bool {
	w := &t.win
	if t.trial != nil && !t.trial.seen {
		return t.trialComplete()
	}
	s := t.span.seconds(w)
	if w.calls < 4 && (s == 0 || w.seconds < max(patience, 8*s)) {
		return false // the first calls may take any time
	}
	want := 0.02
	if t.pause == 0 && t.factor > small {
		want = 0.05
	}
	return w.seconds >= max(shortest, 1.5*s) && (w.doubt() <= want || w.seconds >= max(patience, 3*s))
}

// trialComplete is complete for a trial. Its length follows from how long calls took before it: if it makes them take for ever,
// it must end all the same. It ends early where what it will say is clear, and what promises something gets more time.
func (t *Tuner) trialComplete() bool {
	w, s := &t.win, t.trial.span
	if w.seconds < max(shortest, 1.5*s) {
		return false
	}
	gain, step, doubt := compare(t.base, point{t.trial.n, w.rate(s), w.doubt()})
	if doubt < 0.05*math.Abs(step) {
		return true
	}
	wait := max(patience, 3*s)
	if t.trial.proof {
		wait *= 4
	} else if t.trial.resume > 0 { // nothing hurries
		wait *= 2
	}
	if step > 0 {
		if gain+t.trial.sure()*doubt < worthMore*step || gain-sure*doubt > worthMore*step && gain-doubt > linear*step {
			return true
		}
		if gain > worthMore*step && gain < sure*doubt {
			wait *= 3
		}
	} else if gain > sure*doubt || !t.trial.proof && -gain-sure*doubt > worthLess*-step && -gain-doubt > linear*-step {
		return true
	}
	return w.seconds >= wait
}

// run puts a limit into force; what was begun under the one before is waited for. over is a span, in seconds, if there was another one
// than at the base.
func (t *Tuner) run(n int, over ...float64) {
	t.limit = n
	t.win = window{}
	wait := t.span.seconds(&window{})
	for _, o := range over {
		wait = max(wait, min(o, longest))
	}
	t.settle = max(soonest, 1.25*wait)
}

// search begins to look for a better limit from the base.
func (t *Tuner) search(dir int, factor float64) {
	t.ceiling, t.floor = 0, 0
	t.dir, t.factor, t.aim = dir, factor, 0
	t.pause, t.rest, t.rested = 0, 0, 0
	t.repeats, t.slow, t.proven, t.again = 0, 0, 0, false
}

// abandon ends a trial without a result. It is done again soon.
func (t *Tuner) abandon() {
	if t.trial.resume > 0 {
		t.pause, t.rest = firstPause, firstPause
	}
	t.trial = nil
	if t.limit != t.base.n {
		t.run(t.base.n)
	}
}
