package bench

import (
	"context"
	"fmt"
	"slices"
)

// Arm is one way to do the work of a case.
type Arm string

// The arms. The bare loop and the goroutines are controls, and always there.
const (
	// ArmEngine is Gapless.
	ArmEngine Arm = "gapless"
	// ArmBare is the leanest franz-go poll loop on the same log: pooled records, the engine's fetch options and commits, and no handler. It
	// is what fetching allows.
	ArmBare Arm = "bare-loop"
	// ArmGoroutines are as many goroutines as there are workers, which run the same handler with no log, no order and no commits. They are
	// what the machine's timers and cores allow.
	ArmGoroutines Arm = "goroutines"
	// ArmErrgroup is what people write by hand: franz-go, each poll's records on as many goroutines as there are workers, and the next poll
	// when all are done.
	ArmErrgroup Arm = "errgroup"
	// ArmPipeline is a run with no broker: batches of the log are decoded by the client's own decoder, numbered by package tracker, run by
	// package workers in the case's order, and tracked as settled. It has no group, epochs, commits, retries, dead letters or dedupe:
	// those need the engine, and the engine needs a broker.
	ArmPipeline Arm = "pipeline"
	// ArmDecode decodes the same batches and does nothing else: the bare loop of runs without a broker.
	ArmDecode Arm = "decode"
)

// runner is an arm at work.
type runner interface {
	// run works until ctx ends.
	run(ctx context.Context) error
	// ready is closed when records may come.
	ready() <-chan struct{}
	// done is how many records are through.
	done() int64
	// committed says that all of a log with an end is.
	committed() bool
	// peak is the most handlers that have run at once, as far as the arm knows by itself.
	peak() int
	// busy is the time spent in handlers, in nanoseconds, where the arm measures it by itself; else -1.
	busy() int64
}

func newRunner(j *job, m *meter) (runner, error) {
	switch j.Arm {
	case ArmEngine:
		return newEngineArm(j, m)
	case ArmBare, ArmErrgroup:
		return newLoopArm(j, m)
	case ArmGoroutines:
		return newGoroutines(j, m)
	case ArmPipeline, ArmDecode:
		return newPipeline(j, m)
	}
	return nil, fmt.Errorf("there is no arm %q; write one of %s, %s", j.Arm, ArmEngine, ArmErrgroup)
}

// idleRunner has what most arms do not know.
type idleRunner struct{}

func (idleRunner) committed() bool { return true }
func (idleRunner) peak() int       { return 0 }
func (idleRunner) busy() int64     { return -1 }

var always = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (idleRunner) ready() <-chan struct{} { return always }

// of is the case without what makes no difference to an arm, so that cases which are the same for it share its runs.
func (a Arm) of(c Case) Case {
	d := DefaultCase()
	switch a {
	case ArmBare, ArmDecode: // nothing of the handler, and of the engine only how it commits
		log := c
		c = d
		c.RecordBytes, c.Partitions, c.Keys, c.Nulls, c.Compression = log.RecordBytes, log.Partitions, log.Keys, log.Nulls, log.Compression
		c.Rate, c.Records, c.Commit, c.Members = log.Rate, log.Records, log.Commit, log.Members
	case ArmGoroutines: // nothing of the log but what the handler looks at
		work := c
		c = d
		c.RecordBytes, c.Keys, c.Nulls = work.RecordBytes, work.Keys, work.Nulls
		c.Handler, c.Batch, c.Workers = work.Handler, work.Batch, work.Workers*work.Members
	case ArmErrgroup:
		c.Order, c.Dedupe = engineOrderOfLoops, d.Dedupe
	}
	return c
}

// engineOrderOfLoops is the order that loops by hand keep: none.
const engineOrderOfLoops = "unordered"

// consumes says that the arm reads from a broker.
func (a Arm) consumes() bool { return slices.Contains([]Arm{ArmEngine, ArmBare, ArmErrgroup}, a) }
