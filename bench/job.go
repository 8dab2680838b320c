package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// job is one run of one arm, as a consumer's process is told of it.
type job struct {
	Arm  Arm
	Case Case

	Brokers        []string
	TLS            engine.TLS
	Mechanism      string
	User, Password string
	Topic, Group   string
	URL            string // of the server that handler http calls
	Dir            string // for dedupe stores
	Warm, Duration time.Duration
	Until          int64         // ends the run after so many records, however long that takes; 0 = after Duration
	Limit          time.Duration // of a run that waits for an end
	Window         bool          // a log with an end is measured for Duration
	Idle           bool          // nothing is consumed: what is measured is what stands by
	user           engine.Handler
	users          engine.BatchHandler
	Batch          []byte // of somebody's own records, where there are any
}

// canned is the batch of the job's log.
func (j *job) canned() (*canned, error) {
	if j.Batch != nil {
		return &canned{raw: j.Batch, records: int64(binary.BigEndian.Uint32(j.Batch[57:]))}, nil
	}
	return newCanned(j.Case, nil)
}

// answer is a line that a consumer's process writes: that it is about to consume, and in the end what it measured.
type answer struct {
	Ready  bool         `json:"ready,omitempty"`
	Result *Measurement `json:"result,omitempty"`
	Error  string       `json:"error,omitempty"`
}

// consumerRole is a process that runs one arm.
func consumerRole(ctx context.Context, in *bufio.Reader, out io.Writer) error {
	var j job
	if err := readJob(in, &j); err != nil {
		return err
	}
	ctx, cancel := untilClosed(ctx, in)
	defer cancel()
	context.AfterFunc(ctx, func() { // nobody waits for a handler that does not end
		time.AfterFunc(stopWithin, func() { os.Exit(1) })
	})
	enc := json.NewEncoder(out)
	m, err := j.run(ctx, func() error { return enc.Encode(answer{Ready: true}) })
	if err != nil {
		return enc.Encode(answer{Error: err.Error()})
	}
	return enc.Encode(answer{Result: m})
}

// The lengths of time that a run has for what should not take any.
const (
	readyWithin       = 2 * time.Minute
	firstRecordWithin = 60 * time.Second
	commitWithin      = 30 * time.Second
)

// run works as the arm does, and measures. ready is called when records may come.
func (j *job) run(ctx context.Context, ready func() error) (*Measurement, error) {
	m := newMeter(j.Case, j.URL)
	m.user, m.users = j.user, j.users
	defer m.close()
	r, err := newRunner(j, m)
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- r.run(working) }()
	w := &watching{j: j, m: m, r: r, ran: ran, began: time.Now()}
	result, err := w.watch(ctx, ready)
	m.release() // what is stuck goes on, or the stop would wait for it
	stop()
	if !w.ended {
		if rerr := <-ran; err == nil && rerr != nil {
			err = rerr
		}
	}
	return result, err
}

// watching looks at an arm while it works.
type watching struct {
	j     *job
	m     *meter
	r     runner
	ran   chan error
	ended bool // the arm has, and ran was read
	began time.Time

	firstAt time.Time // a record was seen to be handled
	series  []Moment
	peak    int
}

// every is how often it looks. A look at many partitions is not for nothing.
func (w *watching) every() time.Duration {
	switch {
	case w.j.Case.Partitions > 200 || w.j.Until > 0: // the latter is long, and its allocations are counted
		return 100 * time.Millisecond
	case w.toTheEnd():
		return 5 * time.Millisecond
	}
	return 20 * time.Millisecond
}

// until looks until there is what it waits for, for at most the given time.
func (w *watching) until(ctx context.Context, within time.Duration, there func() bool) (met bool, err error) {
	tick := time.NewTicker(w.every())
	defer tick.Stop()
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		if there() {
			return true, nil
		}
		select {
		case err := <-w.ran:
			w.ended = true
			return false, errors.Join(errors.New("the arm ended while it was measured"), err)
		case <-ctx.Done():
			return false, ctx.Err()
		case <-late.C:
			return false, nil
		case <-tick.C:
			w.look()
		}
	}
}

// look takes a sample of memory and of what runs.
func (w *watching) look() {
	w.peak = max(w.peak, int(w.m.counts().running))
	at := time.Since(w.began).Seconds()
	if n := len(w.series); n == 0 || at-w.series[n-1].At >= 0.05 {
		w.series = append(w.series, Moment{At: at, RSS: residentBytes(), Records: w.r.done()})
	}
}

func (w *watching) watch(ctx context.Context, ready func() error) (*Measurement, error) {
	select {
	case err := <-w.ran:
		w.ended = true
		return nil, errors.Join(errors.New("the arm ended at its start"), err)
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.r.ready():
	case <-time.After(readyWithin):
		return nil, fmt.Errorf("the group did not have its partitions within %v", readyWithin)
	}
	if err := ready(); err != nil {
		return nil, err
	}
	if w.j.Idle {
		return w.idle(ctx)
	}
	before := usageNow()
	h := w.j.Case.Handler.Mean
	met, err := w.until(ctx, firstRecordWithin+4*h, func() bool { return w.r.done() > 0 })
	if err != nil {
		return nil, err
	}
	w.firstAt = time.Now()
	if !met {
		return nil, fmt.Errorf("no record was handled within %v", firstRecordWithin+4*h)
	}
	if !w.toTheEnd() && w.j.Until == 0 {
		if _, err := w.until(ctx, max(w.j.Warm, min(2*h, 2*time.Second)), never); err != nil {
			return nil, err
		}
		before = usageNow()
	}
	return w.measure(ctx, before)
}

// toTheEnd says that the run lasts until all of the log is handled.
func (w *watching) toTheEnd() bool { return w.j.Case.Records > 0 && !w.j.Window }

func never() bool { return false }

// measure is the run itself.
func (w *watching) measure(ctx context.Context, before usage) (*Measurement, error) {
	c := w.j.Case
	w.m.forget()
	first := time.Now()
	n0, counts0, busy0 := w.r.done(), w.m.counts(), w.r.busy()
	within, enough := w.j.Duration, never
	switch {
	case w.j.Until > 0:
		within, enough = w.j.Limit, func() bool { return w.r.done() >= w.j.Until }
	case w.toTheEnd():
		within, enough = w.j.Limit, func() bool { return w.r.done() >= c.Records }
	}
	if w.j.Until > 0 || w.toTheEnd() { // all of the run counts
		first, n0, counts0, busy0 = w.firstAt, 0, meterCounts{}, min(busy0, 0)
	}
	met, err := w.until(ctx, within, enough)
	if err != nil {
		return nil, err
	}
	n, counts, busy, after := w.r.done(), w.m.counts(), w.r.busy(), usageNow()
	w.look()
	m := &Measurement{Records: n - n0, Seconds: after.at.Sub(first).Seconds(), Series: w.series, PeakInFlight: max(w.peak, w.r.peak()), Ended: met}
	if w.m.timed {
		m.PeakInFlight = w.peak
	}
	m.CPUPerRecord = per(float64(after.cpu-before.cpu), m.Records)
	m.AllocsPerRecord = per(float64(after.allocs-before.allocs), m.Records)
	m.Rate = float64(m.Records) / m.Seconds
	nanos, calls := counts.nanos-counts0.nanos, counts.calls-counts0.calls
	if !w.m.timed && busy0 >= 0 {
		nanos, calls = busy-busy0, m.Records
	}
	m.HandlerNanos = per(float64(nanos), calls)
	m.SlotsFull = float64(nanos) / (m.Seconds * 1e9 * float64(c.Workers*c.Members))
	for _, s := range w.series {
		m.PeakRSS = max(m.PeakRSS, s.RSS)
	}
	if h := w.m.latencies(); h != nil && h.TotalCount() > 0 {
		m.Latency = percentiles(h)
	}
	if w.toTheEnd() && met {
		end, err := w.until(ctx, commitWithin, w.r.committed)
		if err != nil {
			return nil, err
		}
		if end {
			m.LagZero = time.Since(w.began).Seconds()
		}
	}
	return m, nil
}

// idle measures what stands by when nothing happens.
func (w *watching) idle(ctx context.Context) (*Measurement, error) {
	if _, err := w.until(ctx, commitWithin, w.r.committed); err != nil {
		return nil, err
	}
	if _, err := w.until(ctx, w.j.Duration, never); err != nil { // what the start left behind goes
		return nil, err
	}
	debug.FreeOSMemory() // collects, and pools need it twice
	debug.FreeOSMemory()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	before := usageNow()
	if _, err := w.until(ctx, w.j.Duration, never); err != nil {
		return nil, err
	}
	after := usageNow()
	return &Measurement{Heap: int64(s.HeapAlloc + s.StackInuse), Goroutines: runtime.NumGoroutine(), PeakRSS: residentBytes(),
		IdleCPU: (after.cpu - before.cpu).Seconds() / after.at.Sub(before.at).Seconds()}, nil
}

func per(x float64, n int64) float64 {
	if n <= 0 {
		return 0
	}
	return x / float64(n)
}
