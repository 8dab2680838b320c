package bench

import (
	"runtime"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// Bound is the most records a second that a case allows, whatever the engine.
type Bound struct {
	Rate float64 `json:"rate"` // the least of those below that are not 0
	By   string  `json:"by"`   // which one that is
	// Fetch is what the bare loop reaches.
	Fetch float64 `json:"fetch,omitempty"`
	// Workers is how many there are over the mean time of a record: what the handler asks for itself, or else what it took on the
	// goroutines without an engine.
	Workers float64 `json:"workers,omitempty"`
	// CPU is the cores over the CPU that a record takes in the bare loop and in the handler.
	CPU float64 `json:"cpu,omitempty"`
	// Key is what the order allows: the hottest key's records, or a partition's, run one after the other.
	Key float64 `json:"key,omitempty"`
	// Sent is the rate at which records are produced.
	Sent float64 `json:"sent,omitempty"`
}

// bound works it out from the controls of a case.
func (s *sweep) bound(c Case, bare, goroutines *Result) Bound {
	b := Bound{Sent: c.Rate}
	per := float64(max(c.Batch, 1))
	if bare != nil && c.Rate == 0 {
		b.Fetch = bare.Rate.Median
	}
	took := float64(c.Handler.least())
	if goroutines != nil {
		if took == 0 {
			took = goroutines.HandlerNanos.Median
		}
		cpu := goroutines.CPUPerRecord.Median
		if bare != nil {
			cpu += bare.CPUPerRecord.Median
		}
		if cpu > 0 {
			b.CPU = float64(runtime.GOMAXPROCS(0)) * 1e9 / cpu
		}
	}
	if took > 0 && c.Handler.Kind != HandlerNone {
		b.Workers = float64(c.Workers*c.Members) * per * float64(time.Second) / took
		b.Key = s.inOrder(c, took)
	}
	for _, x := range []struct {
		by   string
		rate float64
	}{{"fetch", b.Fetch}, {"workers", b.Workers}, {"cpu", b.CPU}, {"order", b.Key}, {"rate", b.Sent}} {
		if x.rate > 0 && (b.By == "" || x.rate < b.Rate) {
			b.By, b.Rate = x.by, x.rate
		}
	}
	return b
}

// inOrder is what the order allows where a record takes that many nanoseconds; 0 = everything.
func (s *sweep) inOrder(c Case, took float64) float64 {
	switch c.Order {
	case engine.OrderPartition:
		return float64(c.Partitions*max(c.Batch, 1)) * float64(time.Second) / took
	case engine.OrderKey:
		hottest, slowest := c.Keys.hottest(), 0.0
		if c.Rate == 0 && c.Records == 0 || c.Handler.Kind == HandlerByKey || s.cfg.Record != nil {
			if b, err := newCanned(c, s.cfg.Record); err == nil { // the very records
				hottest, slowest = b.hottest, b.slowest
			}
		}
		if slowest == 0 {
			slowest = hottest * took
		}
		if slowest > 0 {
			return float64(c.Partitions) * float64(time.Second) / slowest
		}
	}
	return 0
}
