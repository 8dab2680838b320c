package ledger

import (
	"encoding/binary"
	"sync/atomic"
	"time"
)

// A Latency says how long a handler sleeps.
type Latency int64

const (
	// None does not sleep: the no-op handler.
	None Latency = 0
	// Recorded sleeps as long as the record's value says, in nanoseconds in its first eight bytes. So every library has the same
	// work to do, whichever order it does it in.
	Recorded Latency = -1
)

// Work is the handler that every Go arm calls.
type Work struct {
	*Ledger
	Latency Latency // None, Recorded, or a fixed number of nanoseconds

	running atomic.Int64
	peak    atomic.Int64
	slept   atomic.Int64 // nanoseconds in all, as they turned out
}

// Handle handles a record.
func (w *Work) Handle(partition int32, offset int64, value []byte) {
	w.Begin()
	if w.Latency != None {
		w.sleep(value)
	}
	w.Done(partition, offset)
}

func (w *Work) sleep(value []byte) {
	n := w.running.Add(1)
	for {
		peak := w.peak.Load()
		if n <= peak || w.peak.CompareAndSwap(peak, n) {
			break
		}
	}
	d := time.Duration(w.Latency)
	if w.Latency == Recorded {
		d = RecordedLatency(value)
	}
	began := time.Now()
	time.Sleep(d)
	w.slept.Add(int64(time.Since(began)))
	w.running.Add(-1)
}

// RecordedLatency reads the latency that a value carries; a value too short for one carries none.
func RecordedLatency(value []byte) time.Duration {
	if len(value) < 8 {
		return 0
	}
	return time.Duration(binary.BigEndian.Uint64(value))
}

// Slept is the time that handlers slept, all together, and how many did so at once at most.
func (w *Work) Slept() (total time.Duration, peak int64) {
	return time.Duration(w.slept.Load()), w.peak.Load()
}
