package bench

import (
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// The benchmarks measure for a fixed time and report figures a record: run them with -benchtime 1x. Times are compared by `make bench` and gate
// nothing; allocations do, see TestAllocations.

func benchCase(b *testing.B, c Case, synthetic bool) {
	b.Helper()
	arm := ArmEngine
	if synthetic {
		arm = ArmPipeline
	}
	r, err := Run(b.Context(), Config{Cases: []Case{c}, Rounds: 1, Duration: 500 * time.Millisecond, Synthetic: synthetic})
	if err != nil {
		b.Fatal(err)
	}
	one := r.find(arm, c)
	control := r.Results[0]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(one.CPUPerRecord.Median, "cpu-ns/record")
	b.ReportMetric(one.CPUPerRecord.Median-control.CPUPerRecord.Median, "over-cpu-ns/record")
	b.ReportMetric(one.AllocsPerRecord.Median, "allocs/record")
	b.ReportMetric(one.Rate.Median, "records/s")
	if one.timed() {
		b.ReportMetric(one.SlotsFull.Median, "slots-full")
	}
}

var orders = []engine.Order{engine.OrderUnordered, engine.OrderKey, engine.OrderPartition}

// BenchmarkNoop is the engine with a handler that does nothing, on an embedded broker.
func BenchmarkNoop(b *testing.B) {
	for _, o := range orders {
		b.Run("order="+string(o), func(b *testing.B) {
			c := caseOf("workers", "8")
			c.Order = o
			benchCase(b, c, false)
		})
	}
}

// BenchmarkPipeline is the same without a broker and an engine: decoder, tracker and workers.
func BenchmarkPipeline(b *testing.B) {
	for _, o := range orders {
		b.Run("order="+string(o), func(b *testing.B) {
			c := caseOf("workers", "8")
			c.Order = o
			benchCase(b, c, true)
		})
	}
}

// BenchmarkSleep is a handler of 2 ms on one partition, with 100 and 1,000 workers.
func BenchmarkSleep(b *testing.B) {
	for _, w := range []string{"100", "1000"} {
		b.Run("workers="+w, func(b *testing.B) {
			benchCase(b, caseOf("workers", w, "handler", "sleep:2ms", "partitions", "1"), false)
		})
	}
}

// BenchmarkBatch is batches of 100.
func BenchmarkBatch(b *testing.B) { benchCase(b, caseOf("workers", "8", "batch", "100"), false) }
