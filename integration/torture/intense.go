package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// The schedule is made for a clock that costs nothing. Real time is dear, so a real round is the same in less of it: all that lasts is
// shorter by one factor, more is produced, and where members are killed at all most rounds kill them all the time.

// How much of a round's time there really is, and how much more is produced than it says.
const (
	hurry = 0.5
	more  = 4
)

// intensify makes a round of a seed what is really played. It is the same each time.
func intensify(r *schedule.Round, faults schedule.Faults) {
	rng := rand.New(rand.NewPCG(r.Seed, 0x7265616c))
	for _, d := range []*time.Duration{&r.Session, &r.Heartbeat, &r.Rebalance, &r.Drain, &r.Length} {
		*d = shorter(*d)
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		s.At, s.For = shorter(s.At), shorter(s.For)
		switch s.Action {
		case schedule.Produce, schedule.Commit, schedule.Abort:
			if r.Order != engine.OrderPartition { // one after the other, it would take too long
				s.Count *= more
			}
		}
	}
	if faults["kill"] && rng.IntN(4) > 0 {
		r.Steps = append(r.Steps, storm(r, rng)...)
	}
	slices.SortStableFunc(r.Steps, func(a, b schedule.Step) int { return cmp.Compare(a.At, b.At) })
}

func shorter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * hurry).Round(time.Millisecond)
}

// storm kills members all through a round. Most come back at once, some when the group has already given their partitions away.
func storm(r *schedule.Round, rng *rand.Rand) (steps []schedule.Step) {
	between := func(a, b time.Duration) time.Duration { return a + time.Duration(rng.Int64N(int64(b-a))) }
	for range 8 + rng.IntN(17) {
		member := 1 + rng.IntN(schedule.Hosts)
		at := between(500*time.Millisecond, r.Length)
		back := between(0, 300*time.Millisecond)
		if rng.IntN(5) == 0 {
			back = between(0, 2*r.Session)
		}
		steps = append(steps,
			schedule.Step{At: at.Round(time.Millisecond), Action: schedule.Kill, Member: member},
			schedule.Step{At: (at + back).Round(time.Millisecond), Action: schedule.Start, Member: member})
	}
	return steps
}
