package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is what a sweep measured.
type Report struct {
	Machine     Machine   `json:"machine"`
	Command     string    `json:"command,omitempty"` // that was typed, if one was
	Began       time.Time `json:"began"`
	Took        float64   `json:"took_seconds"`
	Interrupted bool      `json:"interrupted,omitempty"`
	InProcess   bool      `json:"in_process,omitempty"` // the consumers ran in the process that measured
	Broker      string    `json:"broker"`
	Rounds      int       `json:"rounds"`
	Seconds     float64   `json:"seconds"` // of a run
	Cases       []Case    `json:"-"`
	Results     []Result  `json:"results"`
}

// Result is one arm of one case over the rounds.
type Result struct {
	Arm    Arm               `json:"arm"`
	Case   Case              `json:"-"`
	Params map[string]string `json:"params"`
	Bound  Bound             `json:"bound"`

	Rate            Spread `json:"rate"`
	CPUPerRecord    Spread `json:"cpu_ns_per_record"`
	AllocsPerRecord Spread `json:"allocs_per_record"`
	PeakRSS         Spread `json:"peak_rss_bytes"`
	PeakInFlight    Spread `json:"peak_in_flight"`
	HandlerNanos    Spread `json:"handler_ns"`
	SlotsFull       Spread `json:"slots_full"`
	LagZero         Spread `json:"lag_zero_seconds"`
	P50             Spread `json:"p50_ms"`
	P90             Spread `json:"p90_ms"`
	P99             Spread `json:"p99_ms"`
	P999            Spread `json:"p999_ms"`
	// Notes are what has to be known to read the figures: concurrency that was not reached, work that was not finished.
	Notes []string `json:"notes,omitempty"`
	// Runs are the single measurements, round by round.
	Runs []Measurement `json:"runs"`

	windowed bool // it was not to be handled to its end
}

// gather makes the results of a sweep: for each case the controls and the arms, where they were measured at least once.
func (r *Report) gather(s *sweep) {
	for _, c := range s.cfg.Cases {
		var controls [2]*Result
		var results []Result
		for _, a := range s.arms() {
			run := s.find(a, c)
			if run == nil || len(run.done) == 0 {
				continue
			}
			one := resultOf(a, c, run.done)
			one.windowed = s.cfg.window
			switch a {
			case ArmBare, ArmDecode:
				controls[0] = &one
			case ArmGoroutines:
				controls[1] = &one
			}
			results = append(results, one)
		}
		bound := s.bound(c, controls[0], controls[1])
		for i := range results {
			results[i].Bound = bound
			results[i].note()
		}
		r.Results = append(r.Results, results...)
	}
}

func resultOf(a Arm, c Case, runs []Measurement) Result {
	spread := func(of func(m *Measurement) float64) Spread {
		var xs []float64
		for i := range runs {
			xs = append(xs, of(&runs[i]))
		}
		return spreadOf(xs)
	}
	late := func(of func(p *Percentiles) float64) Spread {
		var xs []float64
		for _, m := range runs {
			if m.Latency != nil {
				xs = append(xs, of(m.Latency))
			}
		}
		return spreadOf(xs)
	}
	return Result{Arm: a, Case: c, Params: c.Values(), Runs: runs,
		Rate:            spread(func(m *Measurement) float64 { return m.Rate }),
		CPUPerRecord:    spread(func(m *Measurement) float64 { return m.CPUPerRecord }),
		AllocsPerRecord: spread(func(m *Measurement) float64 { return m.AllocsPerRecord }),
		PeakRSS:         spread(func(m *Measurement) float64 { return float64(m.PeakRSS) }),
		PeakInFlight:    spread(func(m *Measurement) float64 { return float64(m.PeakInFlight) }),
		HandlerNanos:    spread(func(m *Measurement) float64 { return m.HandlerNanos }),
		SlotsFull:       spread(func(m *Measurement) float64 { return m.SlotsFull }),
		LagZero:         spread(func(m *Measurement) float64 { return m.LagZero }),
		P50:             late(func(p *Percentiles) float64 { return p.P50 }),
		P90:             late(func(p *Percentiles) float64 { return p.P90 }),
		P99:             late(func(p *Percentiles) float64 { return p.P99 }),
		P999:            late(func(p *Percentiles) float64 { return p.P999 }),
	}
}

// note says what has to be known to read the figures.
func (r *Result) note() {
	if r.Arm == ArmBare || r.Arm == ArmDecode {
		return
	}
	want := r.Case.Workers * r.Case.Members
	if r.timed() && r.PeakInFlight.Median < 0.95*float64(want) && r.Case.Rate == 0 {
		note := fmt.Sprintf("reached %s of %s at once", count(int64(r.PeakInFlight.Median)), count(int64(want)))
		switch {
		case r.Arm != ArmGoroutines && r.Bound.By == "order":
			note += ": the order allows no more"
		case r.Arm != ArmGoroutines && r.Bound.By == "fetch":
			note += ": fetching allows no more"
		case r.Bound.By == "cpu":
			note += ": the cores allow no more"
		}
		r.Notes = append(r.Notes, note)
	}
	if r.Case.Records > 0 && r.Arm.consumes() && !r.windowed {
		for _, m := range r.Runs {
			if !m.Ended {
				r.Notes = append(r.Notes, "the log was not handled to its end within the limit")
				break
			}
			if m.LagZero == 0 {
				r.Notes = append(r.Notes, "not all of it was committed")
				break
			}
		}
	}
}

// timed says that the time in the handler was measured, and with it what runs at once.
func (r *Result) timed() bool { return r.Case.Handler.Kind != HandlerNone || r.Case.Rate > 0 }

// find is the result of an arm for a case; nil if there is none.
func (r *Report) find(a Arm, c Case) *Result {
	for i := range r.Results {
		if r.Results[i].Arm == a && r.Results[i].Case == c {
			return &r.Results[i]
		}
	}
	return nil
}

// measured are the arms that are no controls, in the order in which they first come.
func (r *Report) measured() (arms []Arm) {
	for _, x := range r.Results {
		if x.Arm != ArmBare && x.Arm != ArmDecode && x.Arm != ArmGoroutines && !slices.Contains(arms, x.Arm) {
			arms = append(arms, x.Arm)
		}
	}
	return arms
}

// describe tells a case by the parameters that differ.
func describe(c Case, params []string) string {
	var parts []string
	for _, name := range params {
		parts = append(parts, name+" "+c.Get(name))
	}
	if len(parts) == 0 {
		return "workers " + c.Get("workers")
	}
	return strings.Join(parts, ", ")
}
