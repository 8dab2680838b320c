package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"gonum.org/v1/plot/plotter"
)

// chartsOf are a report's pictures, facet by facet: everything that differs besides the axis has a picture of its own.
func (r *Report) chartsOf() (all []*chart) {
	axis := r.axis()
	for _, f := range r.facets(axis) {
		all = append(all, f.throughput(), f.cpu())
		if c := f.latency(); c != nil {
			all = append(all, c)
		}
		if c := f.memory(); c != nil {
			all = append(all, c)
		}
	}
	return all
}

// axis is the parameter along the pictures: the workers, or the first that differs.
func (r *Report) axis() string {
	names := varied(r.Cases)
	if len(names) == 0 || slices.Contains(names, "workers") {
		return "workers"
	}
	return names[0]
}

// facet is what one picture shows: the results that differ in the axis and the arm only.
type facet struct {
	axis    string
	name    string
	results []*Result
	numbers bool // the axis has numbers above 0
}

func (r *Report) facets(axis string) (all []*facet) {
	others := slices.DeleteFunc(varied(r.Cases), func(name string) bool { return name == axis })
	for i := range r.Results {
		one := &r.Results[i]
		name := ""
		if len(others) > 0 {
			name = describe(one.Case, others)
		}
		k := slices.IndexFunc(all, func(f *facet) bool { return f.name == name })
		if k < 0 {
			all, k = append(all, &facet{axis: axis, name: name, numbers: true}), len(all)
		}
		f := all[k]
		f.results = append(f.results, one)
		if x, err := strconv.ParseFloat(one.Case.Get(axis), 64); err != nil || x <= 0 {
			f.numbers = false
		}
	}
	return all
}

// title adds what the facet is of, and the handler, which nothing can be understood without.
func (f *facet) title(what string) string {
	c := f.results[0].Case
	if f.name != "" {
		return what + ": " + f.name
	}
	return what + ": handler " + c.Handler.String()
}

// ticks are the values of the axis.
func (f *facet) ticks() (all []tick) {
	for _, r := range f.results {
		label := r.Case.Get(f.axis)
		if !slices.ContainsFunc(all, func(t tick) bool { return t.label == label }) {
			at := float64(len(all))
			if f.numbers {
				at, _ = strconv.ParseFloat(label, 64)
			}
			all = append(all, tick{at, label})
		}
	}
	return all
}

// base is a picture with the facet's axis.
func (f *facet) base(title, y string) *chart {
	return &chart{Title: f.title(title), x: f.axis, y: y, logX: f.numbers, xs: f.ticks()}
}

// along is a figure of an arm over the axis.
func (f *facet) along(a Arm, of func(r *Result) Spread) (d drawn) {
	d = drawn{name: string(a), ink: a.ink(), spread: []Spread{}}
	for _, t := range f.ticks() {
		for _, r := range f.results {
			if r.Arm == a && r.Case.Get(f.axis) == t.label && of(r).Rounds > 0 {
				d.points = append(d.points, plotter.XY{X: t.at, Y: of(r).Median})
				d.spread = append(d.spread, of(r))
			}
		}
	}
	return d
}

func (f *facet) arms() (arms []Arm) {
	for _, r := range f.results {
		if !slices.Contains(arms, r.Arm) {
			arms = append(arms, r.Arm)
		}
	}
	slices.SortFunc(arms, func(a, b Arm) int { return rank(a) - rank(b) })
	return arms
}

// rank lists what was measured before its controls.
func rank(a Arm) int {
	return slices.Index([]Arm{ArmEngine, ArmPipeline, ArmErrgroup, ArmGoroutines, ArmBare, ArmDecode}, a)
}

func (f *facet) throughput() *chart {
	c := f.base("Throughput", "records a second")
	c.logY = true
	for _, a := range f.arms() {
		c.curves = append(c.curves, f.along(a, func(r *Result) Spread { return r.Rate }))
	}
	ideal := f.ideal("ideal: workers / handler time", func(b Bound) float64 { return b.Workers })
	bound := f.ideal("bound: the least of all", func(b Bound) float64 { return b.Rate })
	bound.ink = black
	if !slices.Equal(ideal.points, bound.points) {
		c.curves = append(c.curves, ideal)
	}
	c.curves = append(c.curves, bound)
	c.Note = "Bars are the least and the most of the rounds. "
	if f.axis == "workers" && f.numbers {
		for _, a := range []Arm{ArmEngine, ArmPipeline} {
			if k := f.knee(a); k != nil {
				c.marks = append(c.marks, mark{float64(k.Case.Workers), fmt.Sprintf("knee of %s: %d", a, k.Case.Workers)})
				c.Note += fmt.Sprintf("The knee is the fewest workers that reach %.2f of the most that was measured.", kneeShare)
			}
		}
	}
	return c
}

func (f *facet) ideal(name string, of func(b Bound) float64) drawn {
	d := drawn{name: name, ink: grey, dashed: true}
	for _, t := range f.ticks() {
		for _, r := range f.results {
			if r.Case.Get(f.axis) == t.label && of(r.Bound) > 0 {
				d.points = append(d.points, plotter.XY{X: t.at, Y: of(r.Bound)})
				break
			}
		}
	}
	return d
}

func (f *facet) knee(a Arm) *Result {
	var c curve
	for _, r := range f.results {
		if r.Arm == a {
			c.points = append(c.points, r)
		}
	}
	if len(c.points) < 2 {
		return nil
	}
	slices.SortFunc(c.points, func(a, b *Result) int { return a.Case.Workers - b.Case.Workers })
	return c.knee()
}

func (f *facet) cpu() *chart {
	c := f.base("CPU a record", "ns of the consumer's process")
	c.logY = true
	for _, a := range f.arms() {
		c.curves = append(c.curves, f.along(a, func(r *Result) Spread { return r.CPUPerRecord }))
	}
	c.Note = "The bare loop is what the client alone takes, the goroutines what the handler and its timers do."
	return c
}

// latency is nil where none was measured.
func (f *facet) latency() *chart {
	c := &chart{Title: f.title("Latency from the intended time of sending"), x: "percentile", y: "ms", logY: true}
	c.xs = []tick{{0, "p50"}, {1, "p90"}, {2, "p99"}, {3, "p99.9"}}
	n := 0
	for _, a := range f.arms() {
		for _, r := range f.results {
			if r.Arm != a || r.P50.Rounds == 0 {
				continue
			}
			d := drawn{name: string(a), ink: a.ink()}
			if len(f.ticks()) > 1 && (a != ArmBare || f.axis != "workers") { // the bare loop has none
				d.name += ", " + f.axis + " " + r.Case.Get(f.axis)
				d.ink = inks[n%len(inks)]
			}
			if a == ArmBare {
				if slices.ContainsFunc(c.curves, func(x drawn) bool { return x.name == d.name }) {
					continue
				}
				d.dashed = true
			}
			n++
			for i, s := range []Spread{r.P50, r.P90, r.P99, r.P999} {
				d.points = append(d.points, plotter.XY{X: float64(i), Y: max(s.Median, 1e-3)})
				d.spread = append(d.spread, s)
			}
			c.curves = append(c.curves, d)
		}
	}
	if len(c.curves) == 0 {
		return nil
	}
	c.Note = "From when the record should have been sent, by the rate, to the end of its handler; the bare loop has none."
	return c
}

// memory shows the last round of each arm, with the most workers.
func (f *facet) memory() *chart {
	c := &chart{Title: f.title("Memory in time"), x: "seconds since the start", y: "resident MB"}
	ticks := f.ticks()
	last := ticks[len(ticks)-1].label
	for _, a := range f.arms() {
		if a == ArmGoroutines {
			continue
		}
		for _, r := range f.results {
			if r.Arm != a || r.Case.Get(f.axis) != last || len(r.Runs) == 0 {
				continue
			}
			d := drawn{name: string(a), ink: a.ink()}
			for _, m := range r.Runs[len(r.Runs)-1].Series {
				d.points = append(d.points, plotter.XY{X: m.At, Y: float64(m.RSS) / 1e6})
			}
			c.curves = append(c.curves, d)
		}
	}
	if !slices.ContainsFunc(c.curves, func(d drawn) bool { return len(d.points) > 1 }) {
		return nil
	}
	c.Title += fmt.Sprintf(", %s %s", f.axis, last)
	c.Note = "The consumer's process alone, in the last round."
	return c
}

// WritePNG writes the first picture, throughput, as an image.
func (r *Report) WritePNG(w io.Writer) error {
	all := r.chartsOf()
	if len(all) == 0 {
		return errors.New("nothing was measured, so there is no picture")
	}
	return all[0].png(w)
}
