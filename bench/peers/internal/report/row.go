// Package report makes rows of runs, and a table and JSON lines of rows.
package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

// A Run is one run of an arm, as the arm itself, the kernel and the broker saw it.
type Run struct {
	Outcome   task.Outcome
	Process   time.Duration // processor time of the arm's process, from its start to its end
	Unsettled int64         // records that the broker does not hold as committed or accepted by its group
	Err       error         // why there is no outcome, or no word of the broker
}

// Flaw says why a run is not complete, or nothing.
func (r *Run) Flaw(records int64) string {
	o := &r.Outcome
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case o.Error != "":
		return o.Error
	case o.Distinct != records:
		return fmt.Sprintf("%d of %d records were not handled", records-o.Distinct, records)
	case o.Again > 0:
		return fmt.Sprintf("%d records were handled again", o.Again)
	case o.Strange > 0:
		return fmt.Sprintf("%d records came that the topic does not have", o.Strange)
	case r.Unsettled != 0:
		return fmt.Sprintf("%d records are not committed", r.Unsettled)
	}
	return ""
}

// A Row is what an arm's runs of a workload came to: a line of the table, and an object of the JSON lines. Figures are medians of the
// complete runs.
type Row struct {
	Library  string `json:"library"`
	Arm      string `json:"arm"` // workload/mode
	Workload string `json:"workload"`
	Mode     string `json:"mode"`
	Order    string `json:"order"` // the mode of Gapless to compare with

	Records    int64    `json:"records"`
	Seconds    float64  `json:"seconds"` // from the first handler's begin to the last one's end
	SecondsMin float64  `json:"seconds_min"`
	SecondsMax float64  `json:"seconds_max"`
	Rate       float64  `json:"records_per_second"`
	CPU        float64  `json:"cpu_ns_per_record"` // of the whole process, from its start to its end
	CPUMin     float64  `json:"cpu_ns_per_record_min"`
	CPUMax     float64  `json:"cpu_ns_per_record_max"`
	CPUAfter   *float64 `json:"cpu_after_first_ns_per_record,omitempty"` // from the first handler's begin to the last one's end
	RSS        float64  `json:"rss_mb,omitempty"`
	HandlerMS  float64  `json:"handler_ms,omitempty"`     // the mean time a handler took
	SlotsFull  float64  `json:"slots_full,omitempty"`     // records a second x handler time / handlers at once
	Peak       int64    `json:"peak_in_flight,omitempty"` // the least of the runs
	InFlight   int      `json:"in_flight,omitempty"`

	Runs     int    `json:"runs"`     // how many were complete
	Of       int    `json:"of"`       // how many were made
	Complete bool   `json:"complete"` // all of them, and at least one
	Counted  bool   `json:"counted_only,omitempty"`
	Missing  bool   `json:"missing,omitempty"` // there was no run
	Why      string `json:"why,omitempty"`     // it is missing or not complete
}

// Add puts the figures of runs into a row that says what was run.
func (row *Row) Add(runs []Run) {
	row.Of = len(runs)
	if len(runs) == 0 {
		row.Missing = true
		return
	}
	n := float64(row.Records)
	var seconds, cpu, after, rss, handler []float64
	for i := range runs {
		r := &runs[i]
		if why := r.Flaw(row.Records); why != "" {
			row.Why = why
			continue
		}
		o := &r.Outcome
		row.Runs++
		row.Counted = row.Counted || o.CountedOnly
		seconds = append(seconds, o.Seconds)
		cpu = append(cpu, float64(r.Process)/n)
		if o.CPU > 0 {
			after = append(after, float64(o.CPU)/n)
		}
		rss = append(rss, float64(o.RSS)/1e6)
		if o.HandlerNS > 0 {
			handler = append(handler, float64(o.HandlerNS)/n/1e6)
			if row.Peak == 0 || o.Peak < row.Peak {
				row.Peak = o.Peak
			}
		}
	}
	row.Complete = row.Runs == row.Of
	if row.Runs == 0 {
		return
	}
	row.Seconds, row.SecondsMin, row.SecondsMax = Median(seconds), slices.Min(seconds), slices.Max(seconds)
	row.CPU, row.CPUMin, row.CPUMax = Median(cpu), slices.Min(cpu), slices.Max(cpu)
	row.RSS = Median(rss)
	if row.Seconds > 0 {
		row.Rate = n / row.Seconds
	}
	if len(after) > 0 {
		m := Median(after)
		row.CPUAfter = &m
	}
	if len(handler) > 0 && row.InFlight > 0 {
		row.HandlerMS = Median(handler)
		row.SlotsFull = row.Rate * row.HandlerMS / 1000 / float64(row.InFlight)
	}
}

// Median is the middle one, or the mean of the two in the middle. It is 0 of nothing.
func Median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
