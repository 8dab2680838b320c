package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// kind is a kind of churn.
type kind string

const (
	kindPartitions kind = "partitions added"
	kindBroker     kind = "broker restarted"
	kindLeave      kind = "member left and returned"
	kindKill       kind = "member killed and returned"
	kindWorkers    kind = "workers changed and changed back"
)

var kinds = []kind{kindPartitions, kindBroker, kindLeave, kindKill, kindWorkers}

// step is one piece of churn.
type step struct {
	at      time.Duration // since the start of the load
	kind    kind
	member  int
	away    time.Duration // until the member returns or the workers are changed back
	workers int
}

// baseWorkers is how many handlers a member runs at once, unless the plan changes that for a while.
const baseWorkers = 32

// plan draws the churn. The partitions are added during the warm-up: they change for good what is asked of the members, and that is
// no drift, and so is the broker restarted for the first time. Member 0 stays.
func plan(o options) []step {
	rng := rand.New(rand.NewPCG(o.seed, 1))
	share := func(from, to float64) time.Duration {
		return time.Duration(float64(o.duration) * (from + (to-from)*rng.Float64()))
	}
	steps := []step{{at: share(0.10, 0.14), kind: kindPartitions}}
	if o.duration < 10*time.Minute {
		steps = append(steps, step{at: share(0.50, 0.60), kind: kindBroker})
	} else {
		for _, from := range []float64{0.15, 0.42, 0.74} {
			steps = append(steps, step{at: share(from, from+0.03), kind: kindBroker})
		}
	}
	gap := min(max(o.duration/14, 3*time.Second), 5*time.Minute)
	var next []kind
	for at := gap; at < o.duration*9/10; at += gap {
		if len(next) == 0 {
			next = []kind{kindLeave, kindKill, kindWorkers}
			rng.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		s := step{at: at + time.Duration(rng.Int64N(int64(gap/4))), kind: next[0]}
		next = next[1:]
		switch s.kind {
		case kindKill: // it returns before its session has ended, or after
			s.away = time.Duration((0.4 + 1.2*rng.Float64()) * float64(o.session()))
		default:
			s.away = min(max(gap/5, time.Second), 20*time.Second)
		}
		s.workers = []int{4, 8, 16, 64}[rng.IntN(4)]
		s.member = rng.IntN(o.members)
		if s.kind != kindWorkers {
			if o.members == 1 {
				continue
			}
			s.member = 1 + rng.IntN(o.members-1)
		}
		steps = append(steps, s)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}

// event is a step that was taken.
type event struct {
	Kind   kind    `json:"what"`
	Member string  `json:"member,omitempty"`
	Count  int     `json:"count,omitempty"` // of workers or partitions
	Begin  float64 `json:"begin"`           // seconds since the start of the load
	End    float64 `json:"end"`
	// Settled is when the group is left alone again: after a kill the dead member's session has ended by then.
	Settled float64 `json:"settled"`
}
