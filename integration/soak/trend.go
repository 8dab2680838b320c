package main

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
)

// series is one thing that is watched over the run.
type series struct {
	name, unit string
	points     []point // what counts, in the order of time
	excluded   int     // samples left out: the warm-up, and what is stated in the result
	// It grows only if what it comes to is more than this share of the median and more than floor.
	tolerance, floor float64
	// control names the series that has the machine's part in this one. What is a control itself is judged, and fails nothing.
	control string
}

type point struct{ hours, value float64 }

// trend is the slope of a series, by Theil and Sen: the median of the slopes between all pairs of samples, which outliers do not move
// while there are fewer than 29 of 100. The interval about it is Sen's, for 95 %.
//
// A series is flat if over the measured time its slope comes to no more than the tolerance (a share of the median), or to no more
// than the floor, or if the interval holds 0, so that the slope can't be told from noise. What rises by more grows, and fails the run.
// Where a machine gets busier, latencies grow, and it is not the group that does it. So each has a control: the broker's
// acknowledgement, in which the engine has no part, or how late a timer is. What grows while its control grows as well is said to grow
// with it, and fails nothing. (A group that slowed down the machine by itself would show in member A's CPU time, which has no control.)
//
// What falls by more is said to fall, and does not. There is no verdict with fewer than fewest samples, or if they span less than
// shortest: such a run sees caches fill and little else.
type trend struct {
	Name      string  `json:"name"`
	Unit      string  `json:"unit"`
	Samples   int     `json:"samples"`
	Excluded  int     `json:"excluded"`
	Control   string  `json:"control,omitempty"`
	Median    float64 `json:"median"`
	AnHour    float64 `json:"an_hour"` // the slope
	Low       float64 `json:"an_hour_low"`
	High      float64 `json:"an_hour_high"`
	Percent   float64 `json:"percent_an_hour"` // of the median
	Rise      float64 `json:"rise"`            // the slope times the measured time
	Tolerance float64 `json:"tolerance,omitempty"`
	Floor     float64 `json:"floor,omitempty"`
	Verdict   verdict `json:"verdict"`

	from, to, middle point // of its line: the ends, and the medians through which it goes
}

type verdict string

const (
	flat      verdict = "flat"
	grows     verdict = "grows"
	falls     verdict = "falls"
	growsWith verdict = "grows with its control"
	tooFew    verdict = "too few samples"
	tooShort  verdict = "too short a run"
	notToHave verdict = "not to be had here"
)

const (
	fewest   = 20
	shortest = 4 * time.Minute
)

// warmUp is left out: connections are made, caches fill, business keys begin to expire, partitions are added, and in a run that is
// long enough for a verdict the broker is restarted a first time, so that what a backlog makes larger once has been made so.
func warmUp(duration time.Duration) time.Duration { return duration / 5 }

func (s *series) trend() trend {
	t := trend{Name: s.name, Unit: s.unit, Samples: len(s.points), Excluded: s.excluded, Tolerance: s.tolerance, Floor: s.floor, Control: s.control, Verdict: tooFew}
	if len(s.points) == 0 {
		if s.excluded == 0 {
			t.Verdict = notToHave
		}
		return t
	}
	var at, values []float64
	for _, p := range s.points {
		at, values = append(at, p.hours), append(values, p.value)
	}
	t.Median = median(values)
	t.middle = point{median(at), t.Median}
	t.AnHour, t.Low, t.High = theilSen(s.points)
	span := at[len(at)-1] - at[0]
	t.Rise = t.AnHour * span
	if t.Median != 0 {
		t.Percent = 100 * t.AnHour / t.Median
	}
	for end, x := range map[*point]float64{&t.from: at[0], &t.to: at[len(at)-1]} {
		*end = point{x, t.Median + t.AnHour*(x-t.middle.hours)}
	}
	switch tolerated := max(s.tolerance*t.Median, s.floor); {
	case len(s.points) < fewest:
		t.Verdict = tooFew
	case span < shortest.Hours():
		t.Verdict = tooShort
	case t.Rise > tolerated && t.Low > 0:
		t.Verdict = grows
	case t.Rise < -tolerated && t.High < 0:
		t.Verdict = falls
	default:
		t.Verdict = flat
	}
	return t
}

// theilSen is the median of all slopes, and Sen's interval for it.
func theilSen(points []point) (slope, low, high float64) {
	var slopes []float64
	for i, a := range points {
		for _, b := range points[i+1:] {
			if b.hours > a.hours {
				slopes = append(slopes, (b.value-a.value)/(b.hours-a.hours))
			}
		}
	}
	if len(slopes) == 0 {
		return 0, 0, 0
	}
	slices.Sort(slopes)
	// Kendall's S of n samples without a trend has this deviation; 1.96 of it hold 95 %.
	n := float64(len(points))
	half := 1.96 * math.Sqrt(n*(n-1)*(2*n+5)/18) / 2
	middle := float64(len(slopes)) / 2
	first := max(int(math.Floor(middle-half)), 0)
	last := min(int(math.Ceil(middle+half)), len(slopes)-1)
	return stat.Quantile(0.5, stat.LinInterp, slopes, nil), slopes[first], slopes[last]
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return stat.Quantile(0.5, stat.LinInterp, sorted, nil)
}
