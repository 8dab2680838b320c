// Package tunesim plays a consumer with its handlers in virtual time, to see what a tuner makes of it: no clock, no goroutine, and the
// same result for the same seed.
package tunesim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/gaplesshq/gapless/workers/tuning"
)

// Load is what a consumer has to do.
type Load struct {
	// Work is how long a call takes, in seconds, where nothing holds it up. n is the number of its records.
	Work func(r *rand.Rand, now float64, n int) float64
	// Speed is how fast a call gets on when that many are under way at once: 1 is undisturbed.
	Speed func(now float64, running int) float64
	// Arrive says how many records come at now, and when to ask again. Nil = there is always more.
	Arrive func(r *rand.Rand, now float64) (records int, again float64)
	// Fails is the share of records that fail with so many at once. Nil = none.
	Fails func(now float64, running int) float64
	// Batch is the most records of a call; below 2, one.
	Batch int
}

// Limiter is what decides how many calls run at once.
type Limiter interface {
	Limit() int
	Update(tuning.Sample) tuning.Decision
}

// Static is a Limiter that does not change.
type Static int

// Limit implements Limiter.
func (s Static) Limit() int { return int(s) }

// Update implements Limiter.
func (s Static) Update(tuning.Sample) tuning.Decision {
	return tuning.Decision{Limit: int(s), Settled: int(s)}
}

// Tick is the time between two samples.
const Tick = 50 * time.Millisecond

// Point is what a run looks like at a tick.
type Point struct {
	At      float64 // seconds
	Limit   int
	Settled int
	Running int
	Done    int64 // so far
	Backlog int   // -1 = there is always more
	Reason  tuning.Reason
	Text    string
}

// Run is a run.
type Run []Point

// Rate is the mean number of records a second between two times.
func (r Run) Rate(from, to float64) float64 {
	a, b := r.at(from), r.at(to)
	return float64(b.Done-a.Done) / (b.At - a.At)
}

func (r Run) at(t float64) Point {
	i := min(max(int(t/Tick.Seconds()+0.5)-1, 0), len(r)-1)
	return r[i]
}

// Between are the points of a stretch.
func (r Run) Between(from, to float64) Run {
	var out Run
	for _, p := range r {
		if p.At > from && p.At <= to {
			out = append(out, p)
		}
	}
	return out
}

// call is under way. It ends when the common progress has reached end: all calls get on equally fast.
type call struct {
	end     float64
	began   float64
	records int
	owner   int
}

// calls is a heap by end. (container/heap would take most of the time of a long run.)
type calls []call

func (c *calls) push(x call) {
	h := append(*c, x)
	i := len(h) - 1
	for i > 0 && h[(i-1)/2].end > x.end {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = x
	*c = h
}

func (c *calls) pop() call {
	h := *c
	first, x := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	for i := 0; len(h) > 0; {
		least := 2*i + 1
		if least+1 < len(h) && h[least+1].end < h[least].end {
			least++
		}
		if least >= len(h) || h[least].end >= x.end {
			h[i] = x
			break
		}
		h[i] = h[least]
		i = least
	}
	*c = h
	return first
}

// member is one consumer. Several of them may share what their handlers call.
type member struct {
	limiter Limiter
	limit   int
	running int
	backlog int // -1 = endless
	nextIn  float64
	sample  tuning.Sample
	done    int64
	run     Run
}

// Play lets consumers with that load run for so long under their limiters, and returns what each of them did.
func Play(l Load, seconds float64, seed uint64, limiters ...Limiter) []Run {
	w := &world{Load: l, rng: rand.New(rand.NewPCG(seed, 1))}
	for _, lim := range limiters {
		m := &member{limiter: lim, limit: lim.Limit(), backlog: -1}
		if l.Arrive != nil {
			m.backlog = 0
		}
		w.members = append(w.members, m)
	}
	tick := Tick.Seconds()
	for k := 1; float64(k)*tick <= seconds+1e-9; k++ {
		w.until(float64(k) * tick)
		for i, m := range w.members {
			w.look(i, m)
		}
	}
	runs := make([]Run, len(w.members))
	for i, m := range w.members {
		runs[i] = m.run
	}
	return runs
}

type world struct {
	Load
	rng      *rand.Rand
	members  []*member
	now      float64
	progress float64 // seconds that a call would have got on since the start
	calls    calls
}

// until plays up to a time.
func (w *world) until(end float64) {
	for {
		for i, m := range w.members {
			w.start(i, m)
		}
		next, arrival := end, false
		for _, m := range w.members {
			if w.Arrive != nil && m.nextIn < next {
				next, arrival = m.nextIn, true
			}
		}
		speed := w.speed()
		if len(w.calls) > 0 {
			if at := w.now + (w.calls[0].end-w.progress)/speed; at <= next {
				w.advance(at, speed)
				w.finish(w.calls.pop())
				continue
			}
		}
		w.advance(next, speed)
		if !arrival {
			return
		}
		for _, m := range w.members {
			if m.nextIn <= w.now {
				n, again := w.Arrive(w.rng, w.now)
				m.backlog += n
				m.nextIn = max(again, w.now+1e-6)
			}
		}
	}
}

func (w *world) speed() float64 {
	if w.Speed == nil {
		return 1
	}
	return max(w.Speed(w.now, len(w.calls)), 1e-6)
}

func (w *world) advance(to, speed float64) {
	w.progress += (to - w.now) * speed
	w.now = to
}

// start gives free workers something to do.
func (w *world) start(i int, m *member) {
	for m.running < m.limit && m.backlog != 0 {
		n := max(w.Batch, 1)
		if m.backlog > 0 {
			n = min(n, m.backlog)
			m.backlog -= n
		}
		m.running++
		w.calls.push(call{end: w.progress + w.Work(w.rng, w.now, n), began: w.now, records: n, owner: i})
	}
}

func (w *world) finish(c call) {
	m := w.members[c.owner]
	took := w.now - c.began
	m.sample.Calls++
	m.sample.Busy += time.Duration(took * 1e9)
	m.sample.Squares += took * took
	share := 0.0
	if w.Fails != nil {
		share = w.Fails(w.now, len(w.calls)+1)
	}
	for range c.records {
		if share > 0 && w.rng.Float64() < share {
			m.sample.Failed++
		} else {
			m.sample.Done++
			m.done++
		}
	}
	m.running--
}

// look is a tick.
func (w *world) look(i int, m *member) {
	s := m.sample
	m.sample = tuning.Sample{}
	s.Elapsed, s.InFlight, s.Waiting = Tick, m.running, m.backlog != 0
	d := m.limiter.Update(s)
	m.limit = d.Limit
	m.run = append(m.run, Point{At: w.now, Limit: d.Limit, Settled: d.Settled, Running: m.running, Done: m.done, Backlog: m.backlog, Reason: d.Reason, Text: d.Text})
	w.start(i, m)
}

// Best finds the static count from the list under which most is done between two times.
func Best(l Load, seconds, from float64, seed uint64, counts ...int) (count int, rate float64, run Run) {
	for _, n := range counts {
		r := Play(l, seconds, seed, Static(n))[0]
		if x := r.Rate(from, seconds); x > rate*1.002 { // the lowest of those that are as good
			count, rate, run = n, x, r
		}
	}
	return count, rate, run
}

// Counts is a list of counts to compare with, each by a factor above the one before.
func Counts(least, most int, factor float64) (counts []int) {
	for n := least; n < most; n = max(n+1, int(math.Round(float64(n)*factor))) {
		counts = append(counts, n)
	}
	return append(counts, most)
}
