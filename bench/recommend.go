package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// kneeShare is how much of the best that was measured a worker count must reach to be enough.
const kneeShare = 0.95

// curve is one arm over the worker counts, with everything else the same.
type curve struct {
	arm     Arm
	points  []*Result // by workers
	facet   string    // what the others differ in
	example Case
}

// curves groups the results of the arms by everything but the workers, in the order in which they come.
func (r *Report) curves() (all []*curve) {
	others := slices.DeleteFunc(varied(r.Cases), func(name string) bool { return name == "workers" })
	for i := range r.Results {
		one := &r.Results[i]
		same := one.Case
		same.Workers = 0
		k := slices.IndexFunc(all, func(c *curve) bool { return c.arm == one.Arm && c.example == same })
		if k < 0 {
			facet := ""
			if len(others) > 0 {
				facet = describe(one.Case, others)
			}
			all, k = append(all, &curve{arm: one.Arm, facet: facet, example: same}), len(all)
		}
		all[k].points = append(all[k].points, one)
	}
	for _, c := range all {
		slices.SortFunc(c.points, func(a, b *Result) int { return a.Case.Workers - b.Case.Workers })
	}
	return all
}

// best is the point with the most records a second.
func (c *curve) best() *Result {
	return slices.MaxFunc(c.points, func(a, b *Result) int { return int(a.Rate.Median - b.Rate.Median) })
}

// knee is the fewest workers that reach nearly as much as the best.
func (c *curve) knee() *Result {
	best := c.best()
	for _, p := range c.points {
		if p.Rate.Median >= kneeShare*best.Rate.Median {
			return p
		}
	}
	return best
}

// Recommendation is a worker count, and why.
type Recommendation struct {
	For     string   `json:"for,omitempty"` // the case, where several were measured
	Arm     Arm      `json:"arm"`
	Workers int      `json:"workers"`
	Rate    float64  `json:"records_per_second"` // that it reached
	Reasons []string `json:"reasons"`
}

// Recommend says which worker count to use, for each combination of the other parameters: the fewest that reach 0.95 of the most that
// was measured. Fewer are better where they do: what is in flight is what a crash may redo, and what the systems behind the handler
// have to bear. target is how many records a second are needed; 0 = as many as possible.
func (r *Report) Recommend(target float64) (all []Recommendation) {
	for _, c := range r.curves() {
		if c.arm == ArmEngine || c.arm == ArmPipeline {
			all = append(all, c.recommend(target))
		}
	}
	return all
}

func (c *curve) recommend(target float64) Recommendation {
	best, pick := c.best(), c.knee()
	rec := Recommendation{For: c.facet, Arm: c.arm}
	say := func(format string, args ...any) { rec.Reasons = append(rec.Reasons, fmt.Sprintf(format, args...)) }
	if target > 0 {
		pick = c.enoughFor(target, pick, say)
	}
	rec.Workers, rec.Rate = pick.Case.Workers, pick.Rate.Median
	switch {
	case len(c.points) == 1:
		say("Only %s workers were measured: %s records/s. Measure several counts to see where more of them stop to help.", count(int64(pick.Case.Workers)), figure(pick.Rate.Median))
	case pick == best:
		say("%s workers handled %s records/s, the most of all counts.", count(int64(pick.Case.Workers)), figure(pick.Rate.Median))
	default:
		say("%s workers handled %s records/s, %s of the most that was measured (%s, with %s).",
			count(int64(pick.Case.Workers)), figure(pick.Rate.Median), percent(pick.Rate.Median, best.Rate.Median), figure(best.Rate.Median), count(int64(best.Case.Workers)))
	}
	c.compare(pick, best, say)
	c.limits(pick, best, say)
	return rec
}

// enoughFor is the fewest workers that reach a rate with a third to spare.
func (c *curve) enoughFor(target float64, knee *Result, say func(string, ...any)) *Result {
	const spare = 1.3
	for _, p := range c.points {
		if p.Rate.Median >= spare*target {
			say("You need %s records/s; with a third to spare, for catching up after a stop, that is %s.", figure(target), figure(spare*target))
			return p
		}
	}
	say("No count that was measured reaches the %s records/s that you need with a third to spare.", figure(target))
	return knee
}

// compare says what the counts beside the pick bring.
func (c *curve) compare(pick, best *Result, say func(string, ...any)) {
	i := slices.Index(c.points, pick)
	if i > 0 {
		less := c.points[i-1]
		say("%s would lose %s: %s records/s.", count(int64(less.Case.Workers)), percent(pick.Rate.Median-less.Rate.Median, pick.Rate.Median), figure(less.Rate.Median))
	}
	if i+1 < len(c.points) {
		more := c.points[i+1]
		change := more.Rate.Median/pick.Rate.Median - 1
		say("%s change the rate by %+.0f%%, for %s of CPU a record instead of %s, and %s more records in flight that a crash may redo.",
			count(int64(more.Case.Workers)), 100*change, nanos(more.CPUPerRecord.Median), nanos(pick.CPUPerRecord.Median), count(int64(more.Case.Workers-pick.Case.Workers)))
		if overlap := more.Rate.Least < pick.Rate.Most; change > 0 && overlap && pick.Rate.Rounds > 1 {
			say("That difference is within the spread of the rounds (%s to %s, and %s to %s).", figure(pick.Rate.Least), figure(pick.Rate.Most), figure(more.Rate.Least), figure(more.Rate.Most))
		}
	} else if pick == best && len(c.points) > 1 {
		say("It is the highest count that was measured, so more may be better still: measure further.")
	}
}

// limits says what holds the rate where it is.
func (c *curve) limits(pick, best *Result, say func(string, ...any)) {
	b := best.Bound
	switch b.By {
	case "fetch":
		say("What bounds it is fetching: the bare loop reads %s records/s from this broker.", figure(b.Fetch))
	case "cpu":
		say("What bounds it are the cores: fetching and handling a record takes CPU for %s records/s on this machine.", figure(b.CPU))
	case "order":
		say("What bounds it is the order: one after the other, the records of the busiest key (or of the partitions) allow %s a second, however many workers there are.", figure(b.Key))
	case "workers":
		say("What bounds it are the workers themselves: at this handler time they can't do more than %s records/s.", figure(pick.Bound.Workers))
	}
	if pick.timed() && pick.SlotsFull.Median > 0 {
		full := pick.SlotsFull.Median
		switch {
		case full >= 0.9:
			say("Its workers are in the handler %.0f%% of the time (%s a record): none is idle.", 100*min(full, 1), nanos(pick.HandlerNanos.Median))
		default:
			say("Its workers are in the handler %.0f%% of the time (%s a record): the rest they wait for records.", 100*full, nanos(pick.HandlerNanos.Median))
		}
	}
}

// String is the recommendation in sentences.
func (r Recommendation) String() string {
	head := fmt.Sprintf("Use %s workers", count(int64(r.Workers)))
	if r.For != "" {
		head += " (" + r.For + ")"
	}
	return head + ". " + strings.Join(r.Reasons, " ")
}

// WriteRecommendations writes what Recommend says, a paragraph each.
func (r *Report) WriteRecommendations(w io.Writer, target float64) error {
	for _, rec := range r.Recommend(target) {
		if _, err := fmt.Fprintf(w, "%s\n\n", rec); err != nil {
			return err
		}
	}
	return nil
}
