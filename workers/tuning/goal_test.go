package tuning_test

import (
	"testing"

	"github.com/gaplesshq/gapless/internal/tunesim"
	"github.com/gaplesshq/gapless/workers/tuning"
)

// tuner makes one as the engine does.
func tuner(most int, seed uint64) *tuning.Tuner {
	return tuning.New(tuning.Options{Min: 1, Max: most, Start: 4, Seed: seed})
}

// Twenty seconds after the start, and after a change, at least 0.95 of what the best static count gets done gets done.
func TestAsGoodAsTheBestStaticCount(t *testing.T) {
	for _, w := range tunesim.Workloads() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			best, rate, _ := tunesim.Best(w.Load, w.Seconds, w.From, 1, w.Statics(2)...)
			for seed := range uint64(2) {
				run := tunesim.Play(w.Load, w.Seconds, seed, tuner(w.Max, seed))[0]
				got, last := run.Rate(w.From, w.Seconds), run[len(run)-1]
				t.Logf("seed %d: %.3f of %.0f/s, with %d workers; the best static count is %d", seed, got/rate, rate, last.Settled, best)
				if got < 0.95*rate {
					t.Errorf("seed %d: %.0f/s, and the best static count (%d) does %.0f/s", seed, got, best, rate)
				}
			}
		})
	}
}

// What is not in the goal is served as well: handlers that take one of two times, or now and then very long; batches; a
// database that is slow; one core; handlers that slowly get slower.
func TestOtherHandlers(t *testing.T) {
	for _, c := range []struct {
		name       string
		load       tunesim.Load
		seconds    float64
		from, goal float64
		knee       int
		settled    [2]int
	}{
		{"bimodal", tunesim.Load{Work: tunesim.Bimodal(0.005, 1, 0.01), Speed: tunesim.Database(60)}, 90, 30, 0.9, 60, [2]int{48, 90}},
		{"Pareto", tunesim.Load{Work: tunesim.Pareto(0.02), Speed: tunesim.Database(60)}, 60, 20, 0.93, 60, [2]int{48, 90}},
		{"batches", tunesim.Load{Work: tunesim.Random(0.001), Batch: 100, Speed: tunesim.Database(20)}, 60, 20, 0.95, 20, [2]int{18, 26}},
		{"slow database", tunesim.Load{Work: tunesim.Random(0.5), Speed: tunesim.Database(60)}, 120, 40, 0.93, 60, [2]int{48, 90}},
		{"one core", tunesim.Load{Work: tunesim.Random(0.002), Speed: tunesim.Cores(1)}, 60, 20, 0.95, 1, [2]int{1, 24}},
		{"drift", tunesim.Load{Work: slower(0.02, 30), Speed: tunesim.Database(40)}, 120, 20, 0.93, 40, [2]int{32, 52}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			best, rate, _ := tunesim.Best(c.load, c.seconds, c.from, 1, append(tunesim.Counts(1, 128, 1.5), c.knee)...)
			for seed := range uint64(2) {
				run := tunesim.Play(c.load, c.seconds, seed, tuner(512, seed))[0]
				got, last := run.Rate(c.from, c.seconds), run[len(run)-1]
				t.Logf("seed %d: %.3f of %.0f/s, with %d workers; the best static count is %d", seed, got/rate, rate, last.Settled, best)
				if got < c.goal*rate || last.Settled < c.settled[0] || last.Settled > c.settled[1] {
					t.Errorf("seed %d: %.0f/s with %d workers, and the best static count (%d) does %.0f/s", seed, got, last.Settled, best, rate)
				}
			}
		})
	}
}
