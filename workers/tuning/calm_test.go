package tuning_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gaplesshq/gapless/internal/tunesim"
	"github.com/gaplesshq/gapless/workers/tuning"
)

// slower are calls of random length whose mean doubles in that many seconds, and so on.
func slower(mean, doubles float64) func(*rand.Rand, float64, int) float64 {
	return func(r *rand.Rand, now float64, _ int) float64 { return mean * r.ExpFloat64() * (1 + now/doubles) }
}

var database = tunesim.Load{Work: tunesim.Random(0.02), Speed: tunesim.Database(40)}

// changes counts how often the settled limit was changed.
func changes(run tunesim.Run) (n int) {
	for _, p := range run {
		if p.Reason != "" {
			n++
		}
	}
	return n
}

// At the knee the limit stays where it is, for as long as one likes, and trials are small and short.
func TestCalmAtTheKnee(t *testing.T) {
	for seed := range uint64(2) {
		run := tunesim.Play(database, 600, seed, tuner(512, seed))[0].Between(20, 600)
		trying := 0
		for _, p := range run {
			if p.Settled < 34 || p.Settled > 52 {
				t.Fatalf("seed %d: settled on %d at %.0f s", seed, p.Settled, p.At)
			}
			if p.Limit < 24 || p.Limit > 73 {
				t.Fatalf("seed %d: tried %d at %.0f s", seed, p.Limit, p.At)
			}
			if p.Limit != p.Settled {
				trying++
			}
		}
		t.Logf("seed %d: %d changes, trying for %.2f of the time", seed, changes(run), float64(trying)/float64(len(run)))
		if n := changes(run); n > 12 {
			t.Errorf("seed %d: %d changes in 10 minutes", seed, n)
		}
		if float64(trying) > 0.3*float64(len(run)) {
			t.Errorf("seed %d: trying for %d of %d ticks", seed, trying, len(run))
		}
	}
}

// The way up passes the knee by one step at most, for a moment. Afterwards calls take hardly longer than they have to.
func TestDownstreamIsNotOverdriven(t *testing.T) {
	for seed := range uint64(2) {
		run := tunesim.Play(database, 150, seed, tuner(512, seed))[0]
		var over, late float64
		for _, p := range run {
			if p.Running > 100 {
				t.Fatalf("seed %d: %d calls at %.1f s in a database with room for 40", seed, p.Running, p.At)
			}
			if p.Running > 64 {
				over += tunesim.Tick.Seconds()
			}
			if p.At > 20 {
				late += float64(p.Running)
			}
		}
		steady := run.Between(20, 150)
		each := late / float64(len(steady)) / run.Rate(20, 150)
		t.Logf("seed %d: overdriven for %.2f s; a call takes %.1f ms", seed, over, each*1000)
		if over > 3 {
			t.Errorf("seed %d: more than 64 calls in a database with room for 40, for %.1f s", seed, over)
		}
		if each > 1.2*0.02 {
			t.Errorf("seed %d: a call takes %.1f ms instead of 20", seed, each*1000)
		}
	}
}

// Several members that share a database know nothing of each other, and each gets more done by taking from the others. They stop all the
// same.
func TestMembersShareADownstream(t *testing.T) {
	for _, members := range []int{2, 3, 6} {
		for seed := range uint64(2) {
			var each []tunesim.Limiter
			for i := range members {
				each = append(each, tuner(512, seed*100+uint64(i)))
			}
			runs := tunesim.Play(database, 120, seed, each...)
			var sum, rate float64
			for _, r := range runs {
				for _, p := range r.Between(30, 120) {
					sum += float64(p.Running)
				}
				rate += r.Rate(30, 120)
			}
			mean := sum / float64(len(runs[0].Between(30, 120)))
			t.Logf("%d members, seed %d: %.0f calls at once, %.0f/s", members, seed, mean, rate)
			if mean > 110 || rate < 0.55*2000 {
				t.Errorf("%d members, seed %d: %.0f calls at once, %.0f/s, in a database with room for 40 and 2,000/s", members, seed, mean, rate)
			}
		}
	}
}

// trickle brings so many records a second, at random times.
func trickle(rate float64) func(*rand.Rand, float64) (int, float64) {
	return func(r *rand.Rand, now float64) (int, float64) { return 1, now + r.ExpFloat64()/rate }
}

// Idle times, and times with less work than there are workers, teach nothing: the limit stays what the backlog has taught, and
// it has not been forgotten when the next backlog comes.
func TestIdleTimesTeachNothing(t *testing.T) {
	arrivals := func(r *rand.Rand, now float64) (int, float64) {
		switch {
		case now < 1:
			return 120_000, 60 // a backlog of a minute
		case now < 300:
			return trickle(300)(r, now)
		case now < 600:
			return 0, 600
		case now < 1200: // bursts that are through in a fifth of a second
			return 400, now + 1
		default:
			return 60_000, 5000 // a backlog
		}
	}
	load := database
	load.Arrive = arrivals
	for seed := range uint64(2) {
		run := tunesim.Play(load, 1225, seed, tuner(512, seed))[0]
		var settled int
		for _, p := range run {
			switch {
			case p.At < 70: // what is left over of the backlog may still be tried on
				settled = p.Settled
			case p.At < 1200 && (p.Settled != settled || p.Limit != settled):
				t.Fatalf("seed %d: %d, settled on %d, at %.1f s; it was %d when the backlog ended", seed, p.Limit, p.Settled, p.At, settled)
			}
		}
		if settled < 34 || settled > 52 {
			t.Errorf("seed %d: settled on %d", seed, settled)
		}
		if got := run.Rate(1200.5, 1225); got < 0.93*2000 {
			t.Errorf("seed %d: %.0f/s at the next backlog", seed, got)
		}
	}
}

// A handler that becomes slower needs more workers, even where so little gets done that one can't tell much of it.
func TestSlowHandlerSlows(t *testing.T) {
	load := tunesim.Load{
		Work: func(r *rand.Rand, now float64, n int) float64 {
			if now < 100 {
				return tunesim.Random(0.25)(r, now, n)
			}
			return tunesim.Random(1)(r, now, n)
		},
		Speed: func(now float64, n int) float64 {
			if now < 100 {
				return tunesim.Database(30)(now, n)
			}
			return tunesim.Database(120)(now, n)
		},
	}
	for seed := range uint64(4) {
		run := tunesim.Play(load, 400, seed, tuner(512, seed))[0]
		last := run[len(run)-1].Settled
		if got := run.Rate(300, 400); got < 0.9*120 || last < 90 || last > 200 {
			t.Errorf("seed %d: %.0f of 120 records a second, with %d workers", seed, got, last)
		}
	}
}

// A limit that is too low for what comes is raised, although the backlog is never long.
func TestRaisedForALittleMoreThanIsDone(t *testing.T) {
	load := tunesim.Load{Work: tunesim.Fixed(0.05), Arrive: trickle(900)}
	run := tunesim.Play(load, 120, 1, tuner(512, 1))[0]
	last := run[len(run)-1]
	if got := run.Rate(60, 120); got < 0.97*900 || last.Settled < 45 || last.Settled > 150 {
		t.Errorf("%.0f of 900 records a second, with %d workers", got, last.Settled)
	}
}

// While nothing succeeds fewer and fewer try; when it is over the work is taken up again.
func TestFailingDownstream(t *testing.T) {
	load := database
	load.Fails = func(now float64, _ int) float64 {
		if now > 30 && now < 60 {
			return 1
		}
		return 0
	}
	for seed := range uint64(2) {
		run := tunesim.Play(load, 120, seed, tuner(512, seed))[0]
		for _, p := range run.Between(40, 60) {
			if p.Limit != 1 {
				t.Fatalf("seed %d: %d workers at %.0f s", seed, p.Limit, p.At)
			}
		}
		if got := run.Rate(80, 120); got < 0.93*2000 {
			t.Errorf("seed %d: %.0f/s afterwards", seed, got)
		}
	}
}

// A downstream that refuses what is too much, at once, is not called more often than it answers; failures that have nothing to do with
// the count change nothing.
func TestFailuresAreNoThroughput(t *testing.T) {
	refusing := tunesim.Load{Work: tunesim.Random(0.02), Fails: func(_ float64, n int) float64 { return max(0, 1-40/float64(n)) }}
	poisoned := database
	poisoned.Fails = func(float64, int) float64 { return 0.6 }
	for name, load := range map[string]tunesim.Load{"refusing": refusing, "poisoned": poisoned} {
		for seed := range uint64(2) {
			run := tunesim.Play(load, 90, seed, tuner(512, seed))[0]
			if last := run[len(run)-1]; last.Settled < 32 || last.Settled > 55 {
				t.Errorf("%s, seed %d: settled on %d", name, seed, last.Settled)
			}
		}
	}
}

// The limit stays within its bounds, and is a number, whatever the samples say.
func TestAnySamples(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		least := 1 + r.IntN(20)
		most := least + r.IntN(100)
		tu := tuning.New(tuning.Options{Min: least, Max: most, Start: r.IntN(200), Seed: seed})
		for range 2000 {
			s := tuning.Sample{Elapsed: tunesim.Tick, InFlight: r.IntN(2 * most), Waiting: r.IntN(8) > 0}
			if r.IntN(3) > 0 {
				s.InFlight = tu.Limit()
			}
			if r.IntN(4) > 0 {
				s.Done, s.Failed, s.Calls = r.Int64N(1000), r.Int64N(3), r.Int64N(1000)
				s.Busy = tunesim.Tick * 16
				s.Squares = math.Exp(r.NormFloat64() * 4)
			}
			if r.IntN(1000) == 0 {
				least = 1 + r.IntN(20)
				most = least + r.IntN(100)
				tu.SetBounds(least, most)
			}
			d := tu.Update(s)
			if d.Limit < least || d.Limit > most || d.Settled < least || d.Settled > most || d.Limit != tu.Limit() {
				t.Fatalf("seed %d: %+v, between %d and %d", seed, d, least, most)
			}
			if (d.Reason == "") != (d.Text == "") {
				t.Fatalf("seed %d: %+v", seed, d)
			}
		}
	}
}
