package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

// errFlaky is what a handler returns for the share of first attempts that are to fail.
var errFlaky = errors.New("the first attempt was to fail")

// meter is a case's handler, as every arm runs it, with what it measures: how long it takes, how many run, and how late they end. It is
// cut in pieces, so that workers do not wait for one another to count. A handler that does nothing is not timed: that would take
// longer than the handler.
type meter struct {
	c      Case
	timed  bool
	url    string
	client *http.Client
	user   engine.Handler
	users  engine.BatchHandler

	pieces [64]piece
	gate   chan struct{} // closed when stuck records may go on
	open   sync.Once
}

type piece struct {
	begun, calls, nanos atomic.Int64 // calls are those that have ended

	mu   sync.Mutex
	late *hdrhistogram.Histogram
	_    [64]byte
}

// latencyMost bounds what a histogram counts, in nanoseconds.
const latencyMost = int64(10 * time.Minute)

func newMeter(c Case, url string) *meter {
	m := &meter{c: c, url: url, gate: make(chan struct{})}
	m.timed = c.Handler.Kind != HandlerNone || c.Rate > 0
	if c.Rate > 0 {
		for i := range m.pieces {
			m.pieces[i].late = hdrhistogram.New(1000, latencyMost, 3)
		}
	}
	if c.Handler.Kind == HandlerHTTP {
		m.client = &http.Client{Transport: &http.Transport{MaxIdleConns: c.Workers, MaxIdleConnsPerHost: c.Workers}}
	}
	return m
}

// release lets stuck records go on: the run is over.
func (m *meter) release() { m.open.Do(func() { close(m.gate) }) }

// close ends what the handler holds.
func (m *meter) close() {
	m.release()
	if m.client != nil {
		m.client.CloseIdleConnections()
	}
}

// handle is the handler of a single record; attempt counts from 1.
func (m *meter) handle(ctx context.Context, r *kgo.Record, attempt int) error {
	return m.run(ctx, r, attempt, nil, nil)
}

// run times what is done with a record, or, where there are several, with all of them at once.
func (m *meter) run(ctx context.Context, r *kgo.Record, attempt int, all []*kgo.Record, do func() error) error {
	if !m.timed {
		m.hold(r)
		touch(r)
		for _, r := range all {
			touch(r)
		}
		return m.fails(r, attempt)
	}
	p := &m.pieces[rand.Uint32()%uint32(len(m.pieces))]
	p.begun.Add(1)
	began := time.Now()
	var err error
	if do != nil {
		err = do()
	} else {
		err = m.work(ctx, r)
	}
	ended := time.Now()
	p.nanos.Add(int64(ended.Sub(began)))
	p.calls.Add(1)
	if err == nil {
		err = m.fails(r, attempt)
	}
	if err == nil && p.late != nil {
		if all == nil {
			p.note(ended, r)
		}
		for _, r := range all {
			p.note(ended, r)
		}
	}
	return err
}

func (m *meter) fails(r *kgo.Record, attempt int) error {
	if m.c.Fail > 0 && attempt == 1 && chance(r, 2) < m.c.Fail {
		return errFlaky
	}
	return nil
}

// note counts how long after its intended time of sending a record was through.
func (p *piece) note(ended time.Time, r *kgo.Record) {
	sent, ok := sentAt(r.Value)
	if !ok {
		sent = r.Timestamp.UnixNano()
	}
	late := min(max(ended.UnixNano()-sent, 0), latencyMost)
	p.mu.Lock()
	_ = p.late.RecordValue(late) // within its bounds
	p.mu.Unlock()
}

// touch looks at its record, as any handler would at the least.
//
//go:noinline
func touch(r *kgo.Record) int { return len(r.Value) } //nolint:unparam // the result is what makes it read the record

// work does what the case says.
func (m *meter) work(ctx context.Context, r *kgo.Record) error {
	m.hold(r)
	switch h := m.c.Handler; h.Kind {
	case HandlerNone:
		touch(r)
	case HandlerCPU:
		spin(h.Mean)
	case HandlerJSON:
		return decode(r.Value)
	case HandlerHTTP:
		return m.call(ctx, r.Value)
	default:
		time.Sleep(h.lasts(r))
	}
	return nil
}

// hold keeps a record that is to be stuck until the end of the run.
func (m *meter) hold(r *kgo.Record) {
	if m.c.Stuck > 0 && r.Offset == 0 && int(r.Partition) < m.c.Stuck {
		<-m.gate
	}
}

// order is what handler json decodes values into; it fits the values that are generated.
type order struct {
	Sent int64  `json:"sent"`
	N    int64  `json:"n"`
	Pad  string `json:"pad"`
}

func decode(value []byte) error {
	var o order
	return json.Unmarshal(value, &o)
}

func (m *meter) call(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return errors.New("the local server answered " + resp.Status)
	}
	return nil
}

// spin computes for about that long. It counts rounds and does not look at the clock, so that a handler that is put off the core
// has as much left to do as before.
func spin(d time.Duration) {
	x := uint64(1)
	for range int64(float64(d) * roundsPerNano()) {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	spun.Store(x)
}

var spun atomic.Uint64

// roundsPerNano is measured once a process: the fastest of several goes, as what else the machine does only makes it slower.
var roundsPerNano = sync.OnceValue(func() float64 {
	best := 0.0
	for range 20 {
		const rounds = 100_000
		x, began := uint64(1), time.Now()
		for range rounds {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		spun.Store(x)
		best = max(best, rounds/float64(max(time.Since(began), 1)))
	}
	return best
})

// handler is the engine's handler.
func (m *meter) handler() engine.Handler {
	return engine.HandlerFunc(func(ctx context.Context, r *engine.Record) error {
		if m.user != nil {
			return m.run(ctx, r.Record, r.Attempt, nil, func() error { return m.user.Handle(ctx, r) })
		}
		return m.handle(ctx, r.Record, r.Attempt)
	})
}

// batchHandler is the engine's handler of batches: a whole batch takes as long as a record would. A record that is to fail fails alone.
func (m *meter) batchHandler() engine.BatchHandler {
	return engine.BatchHandlerFunc(func(ctx context.Context, b *engine.Batch) error {
		first := b.Records[0]
		if !m.timed && m.c.Fail == 0 {
			for _, r := range b.Records {
				m.hold(r.Record)
				touch(r.Record)
			}
			return nil
		}
		do := func() error { return m.work(ctx, first.Record) }
		if m.users != nil {
			do = func() error { return m.users.HandleBatch(ctx, b) }
		}
		var all []*kgo.Record
		if m.c.Rate > 0 {
			all = make([]*kgo.Record, len(b.Records))
			for i, r := range b.Records {
				all[i] = r.Record
			}
		}
		if err := m.run(ctx, first.Record, 2, all, do); err != nil {
			return err
		}
		for i, r := range b.Records {
			if err := m.fails(r.Record, r.Attempt); err != nil {
				b.Fail(i, err)
			}
		}
		return nil
	})
}

// meterCounts are the meter's at one moment.
type meterCounts struct{ running, calls, nanos int64 }

// counts reads what has ended after what has begun, so that what is said to run did: no call is counted twice.
func (m *meter) counts() (c meterCounts) {
	for i := range m.pieces {
		c.running += m.pieces[i].begun.Load()
	}
	for i := range m.pieces {
		p := &m.pieces[i]
		c.running -= p.calls.Load()
		c.calls += p.calls.Load()
		c.nanos += p.nanos.Load()
	}
	c.running = max(c.running, 0)
	return c
}

// forget drops the latencies so far: they are the warm-up's.
func (m *meter) forget() {
	for i := range m.pieces {
		if p := &m.pieces[i]; p.late != nil {
			p.mu.Lock()
			p.late.Reset()
			p.mu.Unlock()
		}
	}
}

// latencies are those noted so far; nil where none are.
func (m *meter) latencies() *hdrhistogram.Histogram {
	if m.pieces[0].late == nil {
		return nil
	}
	sum := hdrhistogram.New(1000, latencyMost, 3)
	for i := range m.pieces {
		p := &m.pieces[i]
		p.mu.Lock()
		sum.Merge(p.late)
		p.mu.Unlock()
	}
	return sum
}

// pass notes a record that went past with no handler.
func (m *meter) pass(r *kgo.Record) {
	touch(r)
	if p := &m.pieces[0]; p.late != nil {
		p.note(time.Now(), r)
	}
}

// chunk runs the handler on a record, or on several as on a batch, for arms that have no engine.
func (m *meter) chunk(ctx context.Context, records []*kgo.Record) error {
	r := records[0]
	if m.user != nil {
		return m.run(ctx, r, 1, nil, func() error { return m.user.Handle(ctx, &engine.Record{Record: r, Attempt: 1}) })
	}
	if len(records) == 1 {
		return m.handle(ctx, r, 1)
	}
	return m.run(ctx, r, 1, records, nil)
}
