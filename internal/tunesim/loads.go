package tunesim

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Workload is a load with what to expect of it.
type Workload struct {
	Name, About string
	Load        Load
	Seconds     float64
	// From is when the tuner must have found its limit: 20 s after the start, or after the change at Change.
	From, Change float64
	Max          int
	// Knee is about where the best static count must be in the end.
	Knee int
}

// Statics are the counts to compare with: some from 1 to Max, and those around the knee.
func (w *Workload) Statics(factor float64) []int {
	all := append(Counts(1, w.Max, factor), w.Knee*9/10, w.Knee, min(w.Knee*11/10, w.Max))
	slices.Sort(all)
	return slices.Compact(all)
}

// Fixed is a call that takes that many seconds a record.
func Fixed(seconds float64) func(*rand.Rand, float64, int) float64 {
	return func(_ *rand.Rand, _ float64, n int) float64 { return seconds * float64(n) }
}

// Random is a call whose length is exponential, with that mean.
func Random(mean float64) func(*rand.Rand, float64, int) float64 {
	return func(r *rand.Rand, _ float64, n int) float64 {
		sum := 0.0
		for range n {
			sum += r.ExpFloat64()
		}
		return mean * sum
	}
}

// Cores is the speed of calls that need a processor: all of them share so many, and each one more costs a little.
func Cores(cores int) func(float64, int) float64 {
	return func(_ float64, n int) float64 {
		if n <= cores {
			return 1
		}
		return float64(cores) / float64(n) / (1 + 0.0005*float64(n-cores))
	}
}

// Database is the speed of calls to something that has room for so many at once. Beyond it calls wait for each other, and what they
// do to each other makes it worse: with three times as many it does half the work.
func Database(room float64) func(float64, int) float64 {
	return func(_ float64, n int) float64 {
		over := float64(n)/room - 1
		if over <= 0 {
			return 1
		}
		return 1 / (1 + over) / (1 + over*over/4)
	}
}

// Contended is the speed of calls that hold a common lock for that share of their time (Amdahl's law): it has no sharp knee.
func Contended(share float64) func(float64, int) float64 {
	return func(_ float64, n int) float64 { return 1 / (1 + share*float64(n-1)) }
}

// Workloads are those of the goal.
func Workloads() []Workload {
	twice := func(at float64, before, after func(float64, int) float64) func(float64, int) float64 {
		return func(now float64, n int) float64 {
			if now < at {
				return before(now, n)
			}
			return after(now, n)
		}
	}
	return []Workload{
		{Name: "short sleep", About: "each record waits 5 ms, whatever else runs", Load: Load{Work: Fixed(0.005)}, Seconds: 40, From: 20, Max: 128, Knee: 128},
		{Name: "long sleep", About: "each record waits 1 s, whatever else runs", Load: Load{Work: Fixed(1)}, Seconds: 60, From: 20, Max: 512, Knee: 512},
		{Name: "CPU-bound", About: "each record computes for 2 ms (exponential) on 4 cores", Load: Load{Work: Random(0.002), Speed: Cores(4)}, Seconds: 60, From: 20, Max: 256, Knee: 4},
		{Name: "database", About: "each record takes 20 ms (exponential) of a database with room for 40, which does less if there are more", Load: Load{Work: Random(0.02), Speed: Database(40)}, Seconds: 60, From: 20, Max: 512, Knee: 42},
		{Name: "database shrinks", About: "each record takes 20 ms (exponential) of a database with room for 40, and for 12 from 40 s on", Load: Load{Work: Random(0.02), Speed: twice(40, Database(40), Database(12))}, Seconds: 100, From: 60, Change: 40, Max: 512, Knee: 12},
		// At the knee nothing tells that there would be room for more, but trying, which is done every ten seconds or so.
		{Name: "database grows", About: "each record takes 20 ms (exponential) of a database with room for 40, and for 160 from 40 s on", Load: Load{Work: Random(0.02), Speed: twice(40, Database(40), Database(160))}, Seconds: 110, From: 65, Change: 40, Max: 512, Knee: 170},
		{Name: "handler slows", About: "each record waits 10 ms, and 40 ms from 40 s on, of something with room for 200", Load: Load{
			Work: func(r *rand.Rand, now float64, n int) float64 {
				if now < 40 {
					return Fixed(0.01)(r, now, n)
				}
				return Fixed(0.04)(r, now, n)
			},
			Speed: func(now float64, n int) float64 { // records a second, so less room as long as calls are short
				if now < 40 {
					return Database(50)(now, n)
				}
				return Database(200)(now, n)
			},
		}, Seconds: 100, From: 60, Change: 40, Max: 512, Knee: 200},
	}
}

// Hard are workloads beside those of the goal, and what is known to be difficult about them.
func Hard() []Workload {
	return []Workload{
		{Name: "bimodal", About: "each record takes 5 ms, one in a hundred 1 s, of something with room for 60", Load: Load{Work: Bimodal(0.005, 1, 0.01), Speed: Database(60)}, Seconds: 120, From: 30, Max: 512, Knee: 60},
		{Name: "batches", About: "batches of 100 take 100 ms of a database with room for 20", Load: Load{Work: Random(0.001), Batch: 100, Speed: Database(20)}, Seconds: 60, From: 20, Max: 512, Knee: 20},
		{Name: "slow and random", About: "each record waits 1 s on average (exponential), whatever else runs", Load: Load{Work: Random(1)}, Seconds: 120, From: 40, Max: 512, Knee: 512},
		{Name: "no knee", About: "each record takes 10 ms (exponential), and all share a lock for a fiftieth of that", Load: Load{Work: Random(0.01), Speed: Contended(0.02)}, Seconds: 60, From: 20, Max: 512, Knee: 512},
	}
}

// Bimodal is a call of one of two lengths.
func Bimodal(short, long, share float64) func(*rand.Rand, float64, int) float64 {
	return func(r *rand.Rand, _ float64, n int) float64 {
		sum := 0.0
		for range n {
			if r.Float64() < share {
				sum += long
			} else {
				sum += short
			}
		}
		return sum
	}
}

// Pareto is a call with a heavy tail (shape 1.5), with that mean, and at most 200 times the least.
func Pareto(mean float64) func(*rand.Rand, float64, int) float64 {
	least := mean / 2.8
	return func(r *rand.Rand, _ float64, n int) float64 {
		sum := 0.0
		for range n {
			sum += math.Min(least/math.Pow(1-r.Float64(), 1/1.5), 200*least)
		}
		return sum
	}
}
