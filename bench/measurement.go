package bench

import (
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Measurement is what one run of one arm gave.
type Measurement struct {
	Records int64   `json:"records"` // handled in the stretch that was measured
	Seconds float64 `json:"seconds"` // that stretch
	Rate    float64 `json:"rate"`    // records a second
	// CPUPerRecord is what the consumer's process used, in nanoseconds; with Config.Handler, what this process did.
	CPUPerRecord    float64 `json:"cpu_ns_per_record"`
	AllocsPerRecord float64 `json:"allocs_per_record"`
	PeakRSS         int64   `json:"peak_rss_bytes"`
	PeakInFlight    int     `json:"peak_in_flight"` // handlers that were seen at once
	HandlerNanos    float64 `json:"handler_ns"`     // mean time in the handler; of a batch with batches
	// SlotsFull is the share of the workers' time that is spent in the handler. What is missing to 1 is the arm's own loss; what is missing
	// in Rate beyond that are timers that fire late, and cores that are taken.
	SlotsFull float64 `json:"slots_full"`
	// Ended says that a log with an end was handled to the last record.
	Ended bool `json:"ended"`
	// LagZero is how many seconds after the arm's start all of it was committed. 0 = it was not, or the log has no end.
	LagZero float64      `json:"lag_zero_seconds,omitempty"`
	Latency *Percentiles `json:"latency,omitempty"`
	Series  []Moment     `json:"series,omitempty"`

	Heap       int64   `json:"heap_bytes,omitempty"` // of an idle consumer, with its stacks
	Goroutines int     `json:"goroutines,omitempty"` // of an idle consumer
	IdleCPU    float64 `json:"idle_cpu,omitempty"`   // of an idle consumer, in cores
}

// Moment is a sample in the course of a run.
type Moment struct {
	At      float64 `json:"at"` // seconds since the start
	RSS     int64   `json:"rss_bytes"`
	Records int64   `json:"records"`
}

// Percentiles are latencies in milliseconds, from when a record should have been sent to the end of its handler: a producer that falls
// behind makes them longer, and does not hide them (no coordinated omission).
type Percentiles struct {
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
	Count int64   `json:"count"`
}

func percentiles(h *hdrhistogram.Histogram) *Percentiles {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e6 }
	return &Percentiles{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / 1e6, Count: h.TotalCount()}
}

// Spread is the middle, the least and the most of a figure over the rounds.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	Rounds int     `json:"rounds"`
}

func spreadOf(xs []float64) Spread {
	if len(xs) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(xs))
	middle := s[len(s)/2]
	if len(s)%2 == 0 {
		middle = (middle + s[len(s)/2-1]) / 2
	}
	return Spread{Median: middle, Least: s[0], Most: s[len(s)-1], Rounds: len(s)}
}
