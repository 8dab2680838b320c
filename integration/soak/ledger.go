package main

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ledger knows every record that was sent, and what the journal says of it.
type ledger struct {
	seed  uint64
	rate  int
	every time.Duration

	mu      sync.Mutex
	began   time.Time
	records []record // by id
	lanes   map[lane][]uint64
	counts  counts
	ended   []*hdrhistogram.Histogram // by interval of the intended time: until the handler's end
	acked   []*hdrhistogram.Histogram // until the broker's acknowledgement
	own     []*hdrhistogram.Histogram // from there until the handler's end
	late    []*hdrhistogram.Histogram // how late a timer of this process was, by the interval of its time
}

// record is one that was sent.
type record struct {
	partition int32
	acked     uint32 // microseconds from the intended time to the acknowledgement
	fate      fate
}

// lane is what an order is promised in: a key in a partition.
type lane struct {
	key       uint64
	partition int32
}

// fate is what became of a record.
type fate uint8

const (
	isAcked    fate = 1 << iota // by the broker, to the producer
	isHandled                   // a handler has returned nil for it or its copy
	isGivenUp                   // the last attempt has failed
	isInLetter                  // it is in the dead-letter topic
)

// counts are what the journal adds up to.
type counts struct {
	Records       int `json:"records"` // sent, without copies
	Acked         int `json:"-"`
	Copies        int `json:"copies"`
	Handled       int `json:"handled"`        // records
	HandledAgain  int `json:"handled_again"`  // calls that succeeded for a record that had been handled, copies left out
	CopiesHandled int `json:"copies_handled"` // by a member whose store had no mark of them
	Failures      int `json:"failures"`       // attempts
	Cut           int `json:"cut"`            // attempts whose context ended: a drain, a loss
	DeadLettered  int `json:"dead_lettered"`
	Lost          int `json:"lost"`
	Violations    int `json:"order_violations"` // records that began before an earlier one of their key was settled
	Unknown       int `json:"unknown"`          // lines about records that were never sent, or not there
}

func newLedger(o options) *ledger {
	return &ledger{seed: o.seed, rate: o.rate, every: o.every, lanes: map[lane][]uint64{}}
}

// intended is when a record is meant to be sent.
func (l *ledger) intended(id uint64) time.Time {
	return l.began.Add(time.Duration(id * uint64(time.Second) / uint64(l.rate)))
}

// start begins the load.
func (l *ledger) start(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = at
}

// sends notes that a record is about to be produced. Its id is the next one.
func (l *ledger) sends(id uint64, key uint64, partition int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, record{partition: partition})
	l.counts.Records++
	at := lane{key, partition}
	l.lanes[at] = append(l.lanes[at], id)
}

func (l *ledger) sendsCopy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Copies++
}

// wasAcked notes the broker's acknowledgement of a record, not of a copy.
func (l *ledger) wasAcked(id uint64, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after := at.Sub(l.intended(id))
	l.records[id].fate |= isAcked
	l.records[id].acked = uint32(min(max(after.Microseconds(), 0), math.MaxUint32))
	l.counts.Acked++
	l.note(&l.acked, l.interval(id), after)
}

// hear takes in a line of the journal.
func (l *ledger) hear(x line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.id >= uint64(len(l.records)) || !x.copy && x.partition != l.records[x.id].partition {
		l.counts.Unknown++
		return
	}
	r := &l.records[x.id]
	switch x.what {
	case begun:
		if open := l.lanes[l.laneOf(x.id)]; !x.copy && len(open) > 0 && open[0] < x.id {
			l.counts.Violations++
		}
	case handled:
		switch {
		case x.copy:
			l.counts.CopiesHandled++
		case r.fate&isHandled != 0:
			l.counts.HandledAgain++
		default:
			after := time.Unix(0, x.at).Sub(l.intended(x.id))
			l.note(&l.ended, l.interval(x.id), after)
			if r.fate&isAcked != 0 { // else the handler was quicker than the acknowledgement, as it may be
				after -= time.Duration(r.acked) * time.Microsecond
			} else {
				after = 0
			}
			l.note(&l.own, l.interval(x.id), after)
		}
		if r.fate&isHandled == 0 {
			l.counts.Handled++
			r.fate |= isHandled
			l.settle(x.id) // the original behind a handled copy is passed over
		}
	case givenUp:
		l.counts.Failures++
		r.fate |= isGivenUp
		if !x.copy {
			l.settle(x.id)
		}
	case failed:
		l.counts.Failures++
	case cut:
		l.counts.Cut++
	}
}

func (l *ledger) laneOf(id uint64) lane { return lane{keyOf(l.seed, id), l.records[id].partition} }

// settle takes a record out of its lane, so that the next one of its key may begin.
func (l *ledger) settle(id uint64) {
	at := l.laneOf(id)
	if i, found := slices.BinarySearch(l.lanes[at], id); found {
		l.lanes[at] = slices.Delete(l.lanes[at], i, i+1)
	}
}

// The histograms hold microseconds, up to an hour, to three figures.
const (
	histogramMost    = int64(time.Hour / time.Microsecond)
	histogramFigures = 3
)

// interval is the number of the one that a record's intended time is in.
func (l *ledger) interval(id uint64) int { return int(l.intended(id).Sub(l.began) / l.every) }

func (l *ledger) note(to *[]*hdrhistogram.Histogram, interval int, took time.Duration) {
	for len(*to) <= interval {
		*to = append(*to, hdrhistogram.New(1, histogramMost, histogramFigures))
	}
	_ = (*to)[interval].RecordValue(min(max(took.Microseconds(), 1), histogramMost))
}

// timer notes how late a timer was: what the machine alone does to whoever waits.
func (l *ledger) timer(at time.Time, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(&l.late, int(at.Sub(l.began)/l.every), late)
}

// inLetter notes what was read from the dead-letter topic.
func (l *ledger) inLetter(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id < uint64(len(l.records)) && l.records[id].fate&isInLetter == 0 {
		l.records[id].fate |= isInLetter
		l.counts.DeadLettered++
	}
}

// close counts what was lost, in the end: sent, and neither handled nor in the dead-letter topic.
func (l *ledger) close() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Lost = 0
	for _, r := range l.records {
		if r.fate&(isHandled|isInLetter) == 0 {
			l.counts.Lost++
		}
	}
	return l.counts
}

func (l *ledger) now() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// latency is how long the records took that were meant to be sent in one interval, in milliseconds.
type latency struct {
	At      float64 `json:"at"` // seconds since the start of the load: the interval's end
	Records int64   `json:"records"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
	AckP50  float64 `json:"ack_p50_ms"` // until the broker's acknowledgement: what the engine has no part in
	AckP99  float64 `json:"ack_p99_ms"`
	OwnP50  float64 `json:"own_p50_ms"` // from there until the handler's end: mostly the engine's part
	OwnP99  float64 `json:"own_p99_ms"`
	Timer   float64 `json:"timer_p99_ms"` // how late a timer of the soak's process was
}

// latencyOf is one interval's, as far as it is known.
func (l *ledger) latencyOf(i int) (latency, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i < 0 || i >= len(l.ended) || l.ended[i].TotalCount() == 0 {
		return latency{}, false
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	h := l.ended[i]
	x := latency{
		At: (time.Duration(i+1) * l.every).Seconds(), Records: h.TotalCount(),
		P50: ms(h.ValueAtQuantile(50)), P99: ms(h.ValueAtQuantile(99)), Max: ms(h.Max()),
	}
	x.OwnP50, x.OwnP99 = ms(l.own[i].ValueAtQuantile(50)), ms(l.own[i].ValueAtQuantile(99))
	if i < len(l.acked) {
		x.AckP50, x.AckP99 = ms(l.acked[i].ValueAtQuantile(50)), ms(l.acked[i].ValueAtQuantile(99))
	}
	if i < len(l.late) {
		x.Timer = ms(l.late[i].ValueAtQuantile(99))
	}
	return x, true
}

// latencies are those of all intervals.
func (l *ledger) latencies() (all []latency) {
	l.mu.Lock()
	n := len(l.ended)
	l.mu.Unlock()
	for i := range n {
		if x, ok := l.latencyOf(i); ok {
			all = append(all, x)
		}
	}
	return all
}
