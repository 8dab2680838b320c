package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sort"
	"time"

	"github.com/gaplesshq/gapless/tracker"
)

// Status is a snapshot of the engine. Taking one costs the hot path nothing.
type Status struct {
	Group      string            `json:"group"`
	MemberID   string            `json:"member_id"`
	Generation int32             `json:"generation"`
	Protocol   Protocol          `json:"protocol"` // in use
	Ready      bool              `json:"ready"`
	Healthy    bool              `json:"healthy"`
	Suspended  bool              `json:"suspended"`
	Problems   map[string]string `json:"problems,omitempty"` // by subject: what makes it unhealthy
	Workers    WorkersStatus     `json:"workers"`
	Counts     Counts            `json:"counts"`
	Dedupe     *DedupeStatus     `json:"dedupe,omitempty"` // where there is a store
	Partitions []PartitionStatus `json:"partitions"`
}

// WorkersStatus is how busy the workers are.
type WorkersStatus struct {
	Limit             int `json:"limit"` // in force now
	LimitPerPartition int `json:"limit_per_partition"`
	Running           int `json:"running"`
	Peak              int `json:"peak"`
	// Reason says who or what decided on the limit: config, set (Engine.SetWorkers), or under Auto one of those of EventWorkers. Why
	// says it in words.
	Reason string `json:"reason"`
	Why    string `json:"why,omitempty"`
	// Auto is what the engine is at, where it finds the limit by itself.
	Auto *AutoStatus `json:"auto,omitempty"`
}

// AutoStatus is what Auto is at.
type AutoStatus struct {
	Min int `json:"min"`
	Max int `json:"max"`
	// PerPartition is what one partition may have; 0 = all.
	PerPartition int    `json:"per_partition,omitempty"`
	Settled      int    `json:"settled"` // the limit apart from the trial that may be under way
	State        string `json:"state"`   // in words
	Changes      int64  `json:"changes"` // of Settled so far
}

// Counts are counters since the start.
type Counts struct {
	Handled            int64               `json:"handled"`  // attempts that succeeded, outputs included, so that the record is settled
	Failures           int64               `json:"failures"` // attempts that failed
	Retries            int64               `json:"retries"`  // attempts that were scheduled anew
	DeadLettered       int64               `json:"dead_lettered"`
	DeadLetterFailures int64               `json:"dead_letter_failures"` // writes that failed
	Skipped            int64               `json:"skipped"`
	StaleCompletions   int64               `json:"stale_completions"` // of epochs that had ended
	Redelivered        int64               `json:"redelivered"`       // records that came again and were settled without their handler: an earlier owner had
	ShortenedWindows   int64               `json:"shortened_windows"` // commits that could not say all of what is settled beyond them
	Lost               int64               `json:"lost"`              // records that retention deleted before they were read
	Commits            int64               `json:"commits"`
	CommitErrors       int64               `json:"commit_errors"`
	CommitSeconds      float64             `json:"commit_seconds"`
	LostEpochs         int64               `json:"lost_epochs"`
	Suspensions        int64               `json:"suspensions"`
	Events             map[EventName]int64 `json:"events"`
}

// PartitionStatus is the state of one partition that is assigned here. Offsets are -1 where they are not known.
type PartitionStatus struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Epoch     Owner  `json:"epoch"`
	Phase     string `json:"phase"` // starting, active, draining

	Position  int64 `json:"position"`  // next to be fetched
	Frontier  int64 `json:"frontier"`  // everything delivered before it is settled
	Committed int64 `json:"committed"` // acknowledged by the broker
	LogStart  int64 `json:"log_start"`
	LogEnd    int64 `json:"log_end"` // high watermark
	// LogEndAge is how long ago, in seconds, LogEnd was heard of: Lag is as old.
	LogEndAge float64 `json:"log_end_age_seconds"`
	StableEnd int64   `json:"stable_end"` // last stable offset; equal to LogEnd where transactions are not looked at
	// Lag is LogEnd - Committed, as Kafka's own tools count.
	Lag int64 `json:"lag"`
	// LagSeconds is how old what is at the frontier is by its timestamp: that of the first record of the fetch that the oldest
	// unfinished record came in, so it may be too high by the time that one fetch spans. 0 = no lag, -1 = it has not been
	// fetched yet.
	LagSeconds float64 `json:"lag_seconds"`

	Waiting  int   `json:"waiting"`   // not started, and behind their key
	InFlight int   `json:"in_flight"` // in handlers
	Parked   int   `json:"parked"`    // waiting for a retry, outputs or a dead letter
	Bytes    int64 `json:"bytes"`     // memory that its records pin
	Lost     int64 `json:"lost"`
	// Redelivered counts the records that came again and had been settled by an earlier owner.
	Redelivered int64 `json:"redelivered,omitempty"`
	// Suspected: earlier processes ended while they were at these records, which now run one at a time.
	Suspected bool `json:"suspected,omitempty"`

	// Oldest is the record at the frontier, where one is unfinished.
	Oldest *OldestRecord `json:"oldest,omitempty"`
	// BusiestKey is the key that most records wait for, where any do; in the form of OldestRecord.Key.
	BusiestKey         string   `json:"busiest_key,omitempty"`
	BusiestKeyEncoding string   `json:"busiest_key_encoding,omitempty"`
	BusiestKeyWaiting  int      `json:"busiest_key_waiting,omitempty"`
	Paused             []string `json:"paused,omitempty"` // why fetching is paused
	PausedSeconds      float64  `json:"paused_seconds"`   // how long it has been, in all, since the assignment
	Error              string   `json:"error,omitempty"`
	CommitError        string   `json:"commit_error,omitempty"`
}

// OldestRecord is the unfinished record that holds the frontier.
type OldestRecord struct {
	Offset   int64         `json:"offset"`
	Age      time.Duration `json:"age_ns"`   // since it was delivered here
	Attempts int           `json:"attempts"` // that have failed
	// Key is the record's: base64 where it is not UTF-8, and KeyEncoding then says so. A stand-in with Config.HideKeys.
	Key         string `json:"key,omitempty"`
	KeyEncoding string `json:"key_encoding,omitempty"`
	State       string `json:"state"` // waiting, running, retrying, outputs, dead-letter, held, duplicate
	Error       string `json:"error,omitempty"`
}

var phaseNames = [...]string{"starting", "active", "draining", "closed"}

// Status takes a snapshot.
func (e *Engine) Status() Status {
	s := Status{Group: e.cfg.Group, Protocol: e.protocol(), Problems: map[string]string{}, Suspended: e.clock.suspended.Load()}
	s.Ready = isClosed(e.ready) && !isClosed(e.done)
	e.health.mu.Lock()
	for subject, err := range e.health.ill {
		s.Problems[subject] = err.Error()
	}
	e.health.mu.Unlock()
	if s.Suspended {
		s.Problems["group"] = errSuspended.Error()
	}
	if s.Ready {
		s.MemberID, s.Generation = e.cl.GroupMetadata()
	}
	p := e.pool.Stats()
	s.Workers = e.sizes.status()
	s.Workers.Running, s.Workers.Peak = p.Running, p.Peak
	running := map[stuckRecord]OldestRecord{}
	e.pool.EachRunning(func(l *lane, in look, _ time.Duration) {
		it := itemOf(in)
		running[stuckRecord{l.Owner().(*epoch), it.seq}] = it.describe("running")
	})
	s.Counts = e.Counts()
	now := time.Now()
	eps := e.allEpochs()
	if n, oldest := staleEnds(eps, now); n > 0 {
		s.Problems["log ends"] = staleEndsText(n, oldest)
	}
	for _, ep := range eps {
		e.account(ep) // an idle partition has no fetch that would do it
		ps := ep.status(now, running)
		e.showKeys(&ps)
		if ps.Suspected && ps.Frontier < ps.LogEnd {
			s.Problems[fmt.Sprintf("crash loop %s[%d]", ep.topic, ep.partition)] = fmt.Sprintf("%d assignments ended uncleanly at its frontier; its records run one at a time", ep.crash.count()-1)
		}
		ep.writeProblems(s.Problems)
		for _, why := range ps.Paused {
			if why == "hold" || why == "data_loss" || why == "fetch_error" || why == "dead_letter_keys" || why == "not_assigned" {
				s.Problems[fmt.Sprintf("%s %s[%d]", why, ep.topic, ep.partition)] = cmp.Or(ps.Error, "the partition is paused")
			}
		}
		s.Partitions = append(s.Partitions, ps)
	}
	sort.Slice(s.Partitions, func(i, j int) bool {
		a, b := &s.Partitions[i], &s.Partitions[j]
		return a.Topic < b.Topic || a.Topic == b.Topic && a.Partition < b.Partition
	})
	s.Dedupe = e.marks.status()
	s.Healthy = len(s.Problems) == 0
	return s
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Counts returns the counters alone, without a look at each partition as Status has it: for who asks often.
func (e *Engine) Counts() Counts {
	c := &e.counts
	out := Counts{
		Handled: e.breakers.handled(), Failures: c.failures.Load(), Retries: c.retries.Load(), DeadLettered: c.deadLettered.Load(),
		DeadLetterFailures: c.deadLetterFailures.Load(), Skipped: c.skipped.Load(), StaleCompletions: c.stale.Load(), Lost: c.lost.Load(),
		Redelivered: c.passed.Load(), ShortenedWindows: c.cutWindows.Load(),
		Commits: c.commits.Load(), CommitErrors: c.commitErrors.Load(), CommitSeconds: float64(c.commitNanos.Load()) / 1e9,
		LostEpochs: c.lostEpochs.Load(), Suspensions: c.suspensions.Load(), Events: map[EventName]int64{},
	}
	c.mu.Lock()
	for n, v := range c.events {
		out.Events[n] = v
	}
	c.mu.Unlock()
	return out
}

// writeProblems adds what of the partition can't be written now.
func (ep *epoch) writeProblems(to map[string]string) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	t := ep.troubled()
	for what, f := range map[string]writeFailure{"dead letter ": t.deadLetters, "outputs ": t.outputs} {
		if f.n > 0 {
			to[what+ep.topic] = f.err.Error()
		}
	}
}

func (ep *epoch) status(now time.Time, running map[stuckRecord]OldestRecord) PartitionStatus {
	s := PartitionStatus{
		Topic: ep.topic, Partition: ep.partition, Epoch: ep.owner, Phase: phaseNames[ep.phase.Load()],
		Position: -1, Frontier: -1, LogStart: ep.logStart.Load(), LogEnd: ep.hwm.Load(), StableEnd: ep.lso.Load(),
		Lost: ep.lostRecords.Load(), Redelivered: ep.passed.Load(), LagSeconds: -1, LogEndAge: -1,
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	s.Committed, s.Bytes = ep.acked, ep.bytes
	t := ep.troubled()
	s.Paused, s.PausedSeconds = ep.stops.strings(), t.pause.lasted(now).Seconds()
	if t.stopErr != nil {
		s.Error = t.stopErr.Error()
	}
	if t.commitErr != nil {
		s.CommitError = t.commitErr.Error()
	}
	if ep.tr == nil || ep.lane == nil {
		return s
	}
	s.LogEndAge = ep.endAge(now).Seconds()
	s.Waiting, s.InFlight, s.Parked = ep.lane.Len()
	s.Frontier, _ = ep.tr.Frontier()
	s.Suspected = ep.suspected && !ep.crash.passed(s.Frontier)
	_, s.Position = ep.tr.Next()
	s.LogEnd = max(s.LogEnd, s.Position)
	if s.StableEnd < 0 {
		s.StableEnd = s.LogEnd
	}
	if s.Committed >= 0 {
		s.Lag = max(s.LogEnd-s.Committed, 0)
	} else {
		s.Lag = max(s.LogEnd-s.Frontier, 0)
	}
	if s.LogEnd <= s.Frontier {
		s.LagSeconds = 0
	}
	ep.lane.BusyKeys(1, func(key []byte, waiting int) { s.BusiestKey, s.BusiestKeyWaiting = string(key), waiting })
	seq, offset, ok := ep.tr.Oldest()
	if !ok {
		return s
	}
	s.Oldest = ep.oldest(seq, running)
	s.Oldest.Offset = offset
	if i := ep.sliceOf(seq); i >= 0 {
		s.Oldest.Age = now.Sub(ep.slices[i].at)
		s.LagSeconds = max(now.Sub(ep.slices[i].timestamp).Seconds(), 0)
	}
	return s
}

// oldest says what is known of the record that holds the frontier: parked, running or waiting. ep.mu is held.
func (ep *epoch) oldest(seq tracker.Seq, running map[stuckRecord]OldestRecord) *OldestRecord {
	for st := range ep.held {
		if st.seq == seq {
			it := item{rec: st.rec, st: st}
			o := it.describe([...]string{"retrying", "outputs", "dead-letter", "held", "duplicate"}[st.stage])
			if st.lastErr != nil {
				o.Error = st.lastErr.Error()
			}
			return &o
		}
	}
	if o, ok := running[stuckRecord{ep, seq}]; ok {
		return &o
	}
	o := OldestRecord{State: "waiting"}
	ep.lane.EachWaiting(func(in look) {
		if it := itemOf(in); it.seq == seq {
			o = it.describe("waiting")
		}
	})
	return &o
}

// describe copies what a status shows of a record; the lane's lock is held, or the record is parked.
func (it *item) describe(state string) OldestRecord {
	o := OldestRecord{State: state, Key: string(it.rec.Key)}
	if it.st != nil {
		o.Attempts = int(it.st.attempts.Load())
	}
	return o
}

// Healthy says whether anything speaks against the engine being well, and what. A member without partitions is healthy.
func (e *Engine) Healthy() (ok bool, problems map[string]string) {
	s := e.Status()
	return s.Healthy, s.Problems
}

// Latency is the histogram of handler times so far: counts by LatencyBounds (one more above the last), and their sum.
func (e *Engine) Latency() (buckets []int64, sum time.Duration) {
	buckets = make([]int64, len(e.lat.buckets))
	for i := range e.lat.buckets {
		buckets[i] = e.lat.buckets[i].records.Load()
	}
	return buckets, time.Duration(e.lat.nanos())
}

// String is the snapshot as JSON.
func (s Status) String() string {
	b, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
