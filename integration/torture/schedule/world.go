package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/integration/proof"
)

// Member is a life of a member on its host.
type Member struct {
	Host int // from 1 to Hosts
	Life int // from 1
}

// String is its name in the journal.
func (m Member) String() string { return fmt.Sprintf("m%d.%d", m.Host, m.Life) }

// Crash is the end of a member that nobody asked for.
type Crash struct {
	Member Member
	Err    error // nil: a record with Work.Crash has ended it, as it should
}

// NetworkFault is what is wrong with the connections of a member (of its host) or of a broker, in both directions.
type NetworkFault struct {
	Member  Member // zero: the broker's
	Broker  int    // from 1; 0: all
	Action  Action // Delay, Cut, HalfOpen; empty: nothing any more
	Latency time.Duration
}

// World is where a round takes place. Its methods may be called concurrently, but for one member or broker one after the other; each
// returns when the thing is done. An error ends the round: it is the world that is broken. One that the fault in force explains
// (a client that can't reach a paused broker) the world waits out.
type World interface {
	// Supports says whether the world can do it. Rounds are made without what it can't.
	Supports(a Action) bool
	// Begin makes the topic and whatever else the round needs. The group is new.
	Begin(ctx context.Context, r *Round) error

	// Start starts a life of a member, with the store that its host has. It returns when the engine is ready, or once its process runs
	// where the brokers are not well.
	Start(ctx context.Context, m Member) error
	// Stop stops it cleanly and waits for its end, until ctx ends. That the group could not be told of the last work is no error.
	Stop(ctx context.Context, m Member) error
	// Kill ends it as kill -9 does, also where it is paused. It is surely gone when Kill returns.
	Kill(ctx context.Context, m Member) error
	Pause(ctx context.Context, m Member) error
	Resume(ctx context.Context, m Member) error
	SetWorkers(ctx context.Context, m Member, n int) error
	// LoseStore removes the store of a host, where nothing runs.
	LoseStore(ctx context.Context, host int) error
	// Crashed gives the members that ended by themselves, once they are gone.
	Crashed() <-chan Crash

	// Network puts a fault in the place of the one before.
	Network(ctx context.Context, f NetworkFault) error
	KillBroker(ctx context.Context, broker int) error
	StopBroker(ctx context.Context, broker int) error
	StartBroker(ctx context.Context, broker int) error // and waits until it serves
	PauseBroker(ctx context.Context, broker int) error
	ResumeBroker(ctx context.Context, broker int) error

	// Produce writes messages and waits until they are acknowledged.
	Produce(ctx context.Context, ms []Message) error
	// Transact does so in a transaction that stays open for a while, and then is committed or aborted.
	Transact(ctx context.Context, ms []Message, open time.Duration, commit bool) error
	// DeadLetters says whether dead letters can be written.
	DeadLetters(ctx context.Context, can bool) error
	AddPartitions(ctx context.Context, n int) error
	// Reset sets the offset of a partition back to a share of what is committed. The group has no members that run. It says to where;
	// -1: there was nothing to go back from.
	Reset(ctx context.Context, partition int32, share float64) (offset int64, err error)
	DeleteRecords(ctx context.Context, partition int32, share float64) error
	Compact(ctx context.Context) error

	// Commits reads what the group has committed, through a client that no fault touches but those of the brokers. Their times are left to
	// the caller.
	Commits(ctx context.Context) ([]proof.Commit, error)
	// Done says whether the group has committed everything up to the ends of the log.
	Done(ctx context.Context) (bool, error)
	// Evidence reads all that there is to see: Records, Lines, DeadLetters, Marks and Ends. Nothing runs any more.
	Evidence(ctx context.Context) (*proof.Evidence, error)
	// Close frees everything, also amid a round.
	Close() error
}
