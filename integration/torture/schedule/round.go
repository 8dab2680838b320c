package schedule

import (
	"fmt"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// Kind is what a round's topic is like.
type Kind string

// The kinds of topics.
const (
	Plain         Kind = "plain"
	Compacted     Kind = "compacted"     // cleanup.policy=compact
	Retained      Kind = "retained"      // its records are deleted while the group reads them
	Transactional Kind = "transactional" // written in transactions
)

// Hosts is how many members there may be at most. They are numbered from 1.
const Hosts = 4

// Round is one torture of one group: its settings, and what happens to it.
type Round struct {
	Seed    uint64
	Brokers int // that the world has

	Protocol    engine.Protocol
	Balancer    engine.Balancer
	Static      bool // members have an instance id
	LeaveOnStop bool
	Partitions  int // at first
	Kind        Kind

	Order                engine.Order
	Batch                int // 0: one by one
	Workers              int
	Dedupe               bool
	Commit               engine.Commit
	Retry                engine.Retry
	Session, Heartbeat   time.Duration
	Rebalance, Drain     time.Duration
	Keys                 int // different ones; one record in five has none
	PartitionRecords     int
	MaxPending, MaxGroup int           // of the store; 0: the default
	MaxDelay             time.Duration // of the store
	Mix                  Mix

	Length time.Duration // until the last step; then everything heals
	Steps  []Step        // by time
}

// Mix says how the handlers of a round behave: of 1,000 records, so many.
type Mix struct {
	Slow   int // take up to a second
	Stuck  int // take longer than the drain, whatever their context says
	Fail   int // fail once or twice
	Poison int // fail for ever, and become dead letters
	Crash  int // of the round: end their process each time, up to so many
	Copies int // have the business key of an earlier one
}

// Step is something that happens.
type Step struct {
	At        time.Duration // since the round began
	Action    Action
	Member    int // from 1; 0: none
	Broker    int // from 1; 0: none, or all of them
	For       time.Duration
	Count     int
	Partition int32 // may be one that is not there yet; then modulo those that are
	Share     float64
	Latency   time.Duration
}

// String is the step in words.
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%7.3fs %s", s.At.Seconds(), s.Action)
	if s.Member > 0 {
		fmt.Fprintf(&b, " m%d", s.Member)
	}
	if s.Broker > 0 {
		fmt.Fprintf(&b, " broker %d", s.Broker)
	}
	switch s.Action {
	case Produce, Commit, Abort, SetWorkers, AddPartitions:
		fmt.Fprintf(&b, " %d", s.Count)
	case Reset, DeleteRecords:
		fmt.Fprintf(&b, " partition %d to %.0f%%", s.Partition, s.Share*100)
	case Delay:
		fmt.Fprintf(&b, " %v", s.Latency)
	}
	if s.For > 0 {
		fmt.Fprintf(&b, " for %v", s.For)
	}
	return b.String()
}

// String is the schedule, a line for the settings and one for each step.
func (r *Round) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: protocol %s, %s", r.Seed, r.Protocol, r.Balancer)
	for _, c := range []struct {
		on   bool
		text string
	}{
		{r.Static, ", static"}, {r.LeaveOnStop, ", leave on stop"}, {r.Batch > 0, fmt.Sprintf(", batches of %d", r.Batch)},
		{r.Dedupe, fmt.Sprintf(", dedupe (delay %v, group %d, pending %d)", r.MaxDelay, r.MaxGroup, r.MaxPending)},
	} {
		if c.on {
			b.WriteString(c.text)
		}
	}
	fmt.Fprintf(&b, ", order %s, %d workers, %s topic of %d partitions, %d keys, %d records held\n", r.Order, r.Workers, r.Kind, r.Partitions, r.Keys, r.PartitionRecords)
	fmt.Fprintf(&b, "  session %v, heartbeat %v, rebalance %v, drain %v, commit every %v (%d records, each %v), retry %d times from %v\n", r.Session, r.Heartbeat,
		r.Rebalance, r.Drain, r.Commit.Interval, r.Commit.Records, r.Commit.Each, r.Retry.Attempts, r.Retry.Base)
	fmt.Fprintf(&b, "  of 1,000 records: %d slow, %d stuck, %d fail, %d poison, %d copies; crashing: %d in all\n", r.Mix.Slow, r.Mix.Stuck, r.Mix.Fail, r.Mix.Poison, r.Mix.Copies, r.Mix.Crash)
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "  %s\n", s)
	}
	return b.String()
}
