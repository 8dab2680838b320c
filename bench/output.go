package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// WriteJSON writes a line of JSON for each result. The single runs are in it, without their samples in time.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	for _, one := range r.Results {
		runs := make([]Measurement, len(one.Runs))
		for i, m := range one.Runs {
			m.Series = nil
			runs[i] = m
		}
		one.Runs = runs
		if err := enc.Encode(one); err != nil {
			return err
		}
	}
	return nil
}

// csvFigures are the columns of the CSV behind the parameters and the arm.
var csvFigures = []struct {
	name string
	of   func(r *Result) any
}{
	{"records_per_second", func(r *Result) any { return r.Rate.Median }},
	{"records_per_second_least", func(r *Result) any { return r.Rate.Least }},
	{"records_per_second_most", func(r *Result) any { return r.Rate.Most }},
	{"rounds", func(r *Result) any { return r.Rate.Rounds }},
	{"bound_per_second", func(r *Result) any { return r.Bound.Rate }},
	{"bound_by", func(r *Result) any { return r.Bound.By }},
	{"cpu_ns_per_record", func(r *Result) any { return r.CPUPerRecord.Median }},
	{"allocs_per_record", func(r *Result) any { return r.AllocsPerRecord.Median }},
	{"peak_rss_bytes", func(r *Result) any { return r.PeakRSS.Median }},
	{"peak_in_flight", func(r *Result) any { return r.PeakInFlight.Median }},
	{"handler_ns", func(r *Result) any { return r.HandlerNanos.Median }},
	{"slots_full", func(r *Result) any { return r.SlotsFull.Median }},
	{"lag_zero_seconds", func(r *Result) any { return r.LagZero.Median }},
	{"p50_ms", func(r *Result) any { return r.P50.Median }},
	{"p90_ms", func(r *Result) any { return r.P90.Median }},
	{"p99_ms", func(r *Result) any { return r.P99.Median }},
	{"p999_ms", func(r *Result) any { return r.P999.Median }},
}

// WriteCSV writes a header and a line for each result: its parameters, its arm, and medians. What was not measured is 0.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	var head []string
	for _, p := range params {
		head = append(head, p.Name)
	}
	head = append(head, "arm")
	for _, f := range csvFigures {
		head = append(head, f.name)
	}
	if err := c.Write(head); err != nil {
		return err
	}
	for i := range r.Results {
		one := &r.Results[i]
		var cells []string
		for _, p := range params {
			cells = append(cells, p.show(&one.Case))
		}
		cells = append(cells, string(one.Arm))
		for _, f := range csvFigures {
			switch x := f.of(one).(type) {
			case float64:
				cells = append(cells, strconv.FormatFloat(x, 'g', 6, 64))
			default:
				cells = append(cells, fmt.Sprint(x))
			}
		}
		if err := c.Write(cells); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
