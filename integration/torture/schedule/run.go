package schedule

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gaplesshq/gapless/integration/proof"
)

// Options say how Run goes about it.
type Options struct {
	Sample   time.Duration // between two looks at the group's commits. Default 100 ms
	Patience time.Duration // with a group whose commits do not move, once nothing is broken any more. Default 3 min
}

// Run drives a round and judges it. The error is one of the world; then nothing can be said of the engine. Where ctx ends the round is cut
// short: it heals, comes to rest and is judged.
func Run(ctx context.Context, r *Round, w World, log *Log, o Options) (proof.Verdict, error) {
	if o.Sample == 0 {
		o.Sample = 100 * time.Millisecond
	}
	if o.Patience == 0 {
		o.Patience = 3 * time.Minute
	}
	run := &runner{r: r, w: w, log: log, o: o, messages: r.Messages(), partitions: r.Partitions, begun: time.Now(),
		operator: semaphore.NewWeighted(everybody)}
	for i := range run.lanes {
		run.lanes[i] = semaphore.NewWeighted(1)
	}
	run.failed, run.fail = context.WithCancelCause(context.WithoutCancel(ctx))
	defer run.fail(nil)
	v := proof.Verdict{Rounds: 1, Seed: r.Seed}
	if err := w.Begin(run.failed, r); err != nil {
		return v, fmt.Errorf("begin the round: %w", err)
	}
	stop := run.watch()
	run.steps(ctx)
	done := run.rest()
	stop()
	run.noMembers()
	run.stopAll()
	if err := context.Cause(run.failed); err != nil {
		return v, err
	}
	ev, err := w.Evidence(run.failed)
	if err != nil {
		return v, fmt.Errorf("read the evidence: %w", err)
	}
	ev.Order, ev.Dedupe, ev.Session, ev.Drain = r.Order, r.Dedupe, r.Session, r.Drain
	ev.Commits, ev.Incidents, ev.Seed, ev.Took = run.commits, run.incidents, r.Seed, time.Since(run.begun)
	v = proof.Judge(ev)
	v.Findings = append(v.Findings, run.findings...)
	if !done {
		log.Printf("not everything is done, and no commit has moved for %v", run.still(run.begun))
	}
	return v, nil
}

// runner is a round under way.
type runner struct {
	r          *Round
	w          World
	log        *Log
	o          Options
	messages   *Messages
	partitions int
	begun      time.Time

	failed context.Context // ends when the world breaks
	fail   context.CancelCauseFunc

	busy sync.WaitGroup // steps under way

	// Both are held for long. A bubble of synctest can't go on where a goroutine waits for a mutex, but it can with these.
	lanes    [Hosts + 3]*semaphore.Weighted
	operator *semaphore.Weighted // everybody's is taken while no members may be started

	disturbed atomic.Bool // a broker was

	mu        sync.Mutex
	lives     [Hosts + 1]int // so many so far
	live      [Hosts + 1]bool
	incidents []proof.Incident
	commits   []proof.Commit
	sum       int64     // of the commits that were seen last
	moved     time.Time // when it was seen to change
	findings  []proof.Finding
}

// The lanes beyond those of the hosts: what happens in one happens one after the other.
const (
	brokersLane  = 0
	producerLane = Hosts + 1
	deadLane     = Hosts + 2
)

// everybody is how many may start members at a time.
const everybody = 1 << 10

// noMembers waits for the starts that are under way, and holds up those to come.
func (run *runner) noMembers() { _ = run.operator.Acquire(context.Background(), everybody) }

// lane is where a step belongs.
func (s *Step) lane() int {
	switch s.Action {
	case Produce, Commit, Abort, AddPartitions, DeleteRecords, Compact:
		return producerLane
	case DeadLetters:
		return deadLane
	}
	return s.Member // 0: the brokers
}

// steps takes the steps, each at its time, or later where its lane is busy.
func (run *runner) steps(ctx context.Context) {
	var queues [Hosts + 3]chan Step
	for i := range queues {
		queues[i] = make(chan Step, len(run.r.Steps))
		go func() {
			for s := range queues[i] {
				run.try(ctx, i, s)
				run.busy.Done()
			}
		}()
	}
	for _, s := range run.r.Steps {
		if !sleep(ctx, run.failed, time.Until(run.begun.Add(s.At))) {
			break
		}
		if s.Action == Reset {
			run.busy.Wait()
			run.try(ctx, brokersLane, s)
			continue
		}
		run.busy.Add(1)
		queues[s.lane()] <- s
	}
	run.busy.Wait()
	for _, q := range queues {
		close(q)
	}
}

// sleep says whether it slept that long.
func sleep(ctx, failed context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-failed.Done():
	}
	return false
}

// try takes a step; an error ends the round.
func (run *runner) try(ctx context.Context, lane int, s Step) {
	_ = run.lanes[lane].Acquire(context.Background(), 1)
	defer run.lanes[lane].Release(1)
	if run.failed.Err() != nil {
		return
	}
	if err := run.take(ctx, s); err != nil && run.failed.Err() == nil {
		run.log.Printf("%s: %v", s.Action, err)
		run.fail(fmt.Errorf("%s: %w", s.Action, err))
	}
}

func (run *runner) take(ctx context.Context, s Step) error {
	w, in := run.w, run.failed
	if s.Member > 0 {
		return run.toMember(ctx, s)
	}
	switch s.Action {
	case KillBroker, PauseBroker, RollBrokers:
		run.disturbed.Store(true)
	}
	switch s.Action {
	case Produce:
		run.log.Printf("produce %d", s.Count)
		return w.Produce(in, run.messages.Next(s.Count, run.partitions, false))
	case Commit, Abort:
		run.log.Printf("%s %d in a transaction that is open for %v", s.Action, s.Count, s.For)
		return w.Transact(in, run.messages.Next(s.Count, run.partitions, s.Action == Abort), s.For, s.Action == Commit)
	case AddPartitions:
		run.log.Printf("add %d partitions", s.Count)
		run.partitions += s.Count
		return w.AddPartitions(in, s.Count)
	case DeleteRecords:
		run.log.Printf("delete records of partition %d up to %.0f%%", int(s.Partition)%run.partitions, s.Share*100)
		return w.DeleteRecords(in, s.Partition%int32(run.partitions), s.Share)
	case Compact:
		run.log.Printf("compact")
		return w.Compact(in)
	case Reset:
		return run.reset(s)
	case DeadLetters:
		return run.during(ctx, s, proof.Note, "", func() error { return w.DeadLetters(in, false) }, func() error { return w.DeadLetters(in, true) })
	case Delay, Cut, HalfOpen:
		return run.network(ctx, s, Member{})
	case KillBroker:
		return run.during(ctx, s, proof.Cut, "", func() error { return w.KillBroker(in, s.Broker) }, func() error { return w.StartBroker(in, s.Broker) })
	case PauseBroker:
		return run.during(ctx, s, proof.Cut, "", func() error { return w.PauseBroker(in, s.Broker) }, func() error { return w.ResumeBroker(in, s.Broker) })
	case RollBrokers:
		return run.roll(ctx, s)
	}
	return fmt.Errorf("the schedule has a step that nobody knows: %s", s)
}

// during does something, lets it last, and undoes it. The incident begins before it is done, and ends when it is undone.
func (run *runner) during(ctx context.Context, s Step, what proof.What, member string, do, undo func() error) error {
	from := time.Now()
	run.log.Printf("%s %s%s", s.Action, member, brokerName(s))
	if err := do(); err != nil {
		return err
	}
	sleep(ctx, run.failed, s.For)
	err := undo()
	run.log.Printf("%s %s%s is over", s.Action, member, brokerName(s))
	run.note(proof.Incident{What: what, From: from, To: time.Now(), Member: member, Text: s.String()})
	return err
}

func brokerName(s Step) string {
	if s.Member > 0 || s.Broker == 0 {
		return ""
	}
	return fmt.Sprintf("broker %d", s.Broker)
}

func (run *runner) network(ctx context.Context, s Step, m Member) error {
	what, name := proof.Cut, ""
	if s.Action == Delay {
		what = proof.Note // it slows a member down, and excuses nothing
	}
	f := NetworkFault{Broker: s.Broker, Action: s.Action, Latency: s.Latency}
	if m != (Member{}) {
		f, name = NetworkFault{Member: m, Action: s.Action, Latency: s.Latency}, m.String()
	}
	heal := NetworkFault{Member: f.Member, Broker: f.Broker}
	return run.during(ctx, s, what, name, func() error { return run.w.Network(run.failed, f) }, func() error { return run.w.Network(run.failed, heal) })
}

func (run *runner) roll(ctx context.Context, s Step) error {
	for b := 1; b <= run.r.Brokers; b++ {
		one := s
		one.Broker = b
		err := run.during(ctx, one, proof.Cut, "", func() error { return run.w.StopBroker(run.failed, b) }, func() error { return run.w.StartBroker(run.failed, b) })
		if err != nil {
			return err
		}
	}
	return nil
}

// reset stops all members, as an operator must, and starts them again.
func (run *runner) reset(s Step) error {
	run.noMembers()
	defer run.operator.Release(everybody)
	run.log.Printf("reset: stop all members")
	stopped := run.stopAll()
	from := time.Now()
	p := s.Partition % int32(run.partitions)
	at, err := run.w.Reset(run.failed, p, s.Share)
	if err != nil {
		return err
	}
	if at >= 0 {
		run.log.Printf("reset partition %d to %d", p, at)
		run.note(proof.Incident{What: proof.Reset, From: from, To: time.Now(), Partition: p, Offset: at})
	}
	for _, host := range stopped {
		if err := run.start(host); err != nil {
			return err
		}
	}
	return nil
}

func (run *runner) note(i proof.Incident) {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.incidents = append(run.incidents, i)
}
