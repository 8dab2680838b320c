package main

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
)

// noisy is half an hour of samples, with some of them far off.
func noisy(rng *rand.Rand, level, anHour, noise float64) series {
	s := series{name: "noisy", tolerance: ofMemory, floor: 1}
	for i := range 180 {
		h := float64(i) / 360
		v := level + anHour*h + noise*rng.NormFloat64()
		if i%10 == 0 {
			v *= 3
		}
		s.add(h*time.Hour.Seconds(), v, false)
	}
	return s
}

// TestTrend: a slope is found in noise with outliers, and is no slope where there is none.
func TestTrend(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 3))
	for _, c := range []struct {
		name          string
		anHour, noise float64
		want          verdict
	}{
		{"nothing", 0, 0, flat},
		{"noise", 0, 5, flat},
		{"a small rise", 4, 0, flat}, // 2 in half an hour, of 100
		{"a leak", 40, 3, grows},
		{"a fall", -40, 3, falls},
	} {
		s := noisy(rng, 100, c.anHour, c.noise)
		got := s.trend()
		if got.Verdict != c.want || math.Abs(got.AnHour-c.anHour) > max(4*c.noise, 0.01) || got.Low > got.AnHour || got.High < got.AnHour {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	s := noisy(rng, 100, 40, 3)
	s.points = s.points[:fewest-1]
	if got := s.trend(); got.Verdict != tooFew {
		t.Errorf("of %d samples: %+v", fewest-1, got)
	}
	if got := (&series{}).trend(); got.Verdict != notToHave {
		t.Errorf("of nothing: %+v", got)
	}
}

// leaking is the result of a run whose member A gains so many goroutines a sample, and whose latency is well but for the churn.
func leaking(a float64) *result {
	r := &result{options: options{duration: 30 * time.Minute, every: 10 * time.Second, rate: 1, seed: 1, members: 2, dedupe: true}}
	r.Events = []event{{Kind: kindBroker, Begin: 900, End: 905, Settled: 905}, {Kind: kindKill, Begin: 1500, End: 1510, Settled: 1510}}
	for i := 1; i <= 180; i++ {
		at := float64(i * 10)
		m := memberSample{Life: "A1", answer: answer{vitals: vitals{RSS: 100 << 20, Heap: 20 << 20, Runtime: 50 << 20, Files: 30, CPU: int64(i) * 2000, Goroutines: 60 + int64(a*float64(i))}}, Store: 5 << 20, Log: 2 << 20}
		l := latency{At: at, P50: 5, P99: 20, OwnP50: 3, OwnP99: 9, AckP50: 2, AckP99: 9, Timer: 1}
		if at > 900 && at < 925 || at > 1500 && at < 1530 {
			l.P50, l.P99 = 5000, 9000
		}
		if at > 900 && at < 925 {
			m.Heap *= 10
		}
		r.samples = append(r.samples, sample{At: at, Lag: 3, Members: []memberSample{m}})
		r.latencies = append(r.latencies, l)
	}
	return r
}

// TestJudge: a leak fails the run and is named; what the churn does to the latency is left out; what was lost, out of order or left
// behind fails the run as well.
func TestJudge(t *testing.T) {
	r := leaking(0)
	r.judge()
	if !r.Good || len(r.Series) != 15 {
		t.Errorf("a healthy run: %+v", r.Problems)
	}
	for _, x := range r.Series {
		if x.Verdict != flat || x.AnHour != 0 {
			t.Errorf("a healthy run: %+v", x)
		}
	}
	if err := r.plot(filepath.Join(t.TempDir(), "soak.svg")); err != nil {
		t.Error(err)
	}
	r = leaking(0.1) // one goroutine in 100 seconds
	r.judge()
	if r.Good || len(r.Problems) != 1 || r.state() != r.Problems[0] {
		t.Errorf("a leak: %v", r.Problems)
	}
	for _, machine := range []float64{0, 1} {
		r = leaking(0)
		for i := range r.latencies {
			r.latencies[i].P50 += float64(i) / 10
			r.latencies[i].AckP50 += machine * float64(i) / 10
		}
		if r.judge(); r.Good != (machine > 0) {
			t.Errorf("the latency grows, the broker's by %v of it: %v", machine, r.Problems)
		}
	}
	for name, spoil := range map[string]func(*result){
		"lost":      func(r *result) { r.Counts.Lost = 1 },
		"order":     func(r *result) { r.Counts.Violations = 1 },
		"unknown":   func(r *result) { r.Counts.Unknown = 1 },
		"unacked":   func(r *result) { r.Counts.Records = 1 },
		"lag":       func(r *result) { r.Lag = 1 },
		"unhealthy": func(r *result) { r.samples[179].Members[0].Problems = map[string]string{"x": "y"} },
		"not clean": func(r *result) { r.Problems = []string{"member B1 did not leave cleanly"} },
	} {
		r := leaking(0)
		spoil(r)
		if r.judge(); r.Good || len(r.Problems) != 1 {
			t.Errorf("%s: %v", name, r.Problems)
		}
	}
}
