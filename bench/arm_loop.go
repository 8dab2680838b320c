package bench

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// loopArm is a franz-go poll loop, bare or with an errgroup for each poll.
type loopArm struct {
	idleRunner
	j       *job
	m       *meter
	clients []*kgo.Client
	n       atomic.Int64

	mu    sync.Mutex
	acked map[int32]int64 // committed offsets
	owns  []int           // partitions that each client has
	all   chan struct{}   // closed when all partitions are assigned, and each client that can have some has
}

func newLoopArm(j *job, m *meter) (*loopArm, error) {
	a := &loopArm{j: j, m: m, acked: map[int32]int64{}, owns: make([]int, j.Case.Members), all: make(chan struct{})}
	for i := range j.Case.Members {
		opts, err := j.connect()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.ConsumerGroup(j.Group), kgo.ConsumeTopics(j.Topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
			kgo.KeepControlRecords(), kgo.WithPools(&recordpool.Pool{}), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.FetchMaxBytes(16<<20), kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxWait(250*time.Millisecond), kgo.DisableClientMetrics(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { a.moved(i, len(m[j.Topic])) }),
			kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { a.moved(i, -len(m[j.Topic])) }))
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			return nil, err
		}
		a.clients = append(a.clients, cl)
	}
	return a, nil
}

// connect are the client's options for the connection.
func (j *job) connect() ([]kgo.Opt, error) {
	return engine.Config{Brokers: j.Brokers, TLS: j.TLS, SASL: engine.SASL{Mechanism: j.Mechanism, User: j.User, Password: j.Password}}.ConnectOpts()
}

// moved notes that a client has more or fewer partitions.
func (a *loopArm) moved(client, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owns[client] += n
	sum := 0
	for _, n := range a.owns {
		if n == 0 && a.j.Case.Partitions >= len(a.owns) {
			return
		}
		sum += n
	}
	if sum < a.j.Case.Partitions {
		return
	}
	select {
	case <-a.all: // after a rebalance, again
	default:
		close(a.all)
	}
}

func (a *loopArm) ready() <-chan struct{} { return a.all }
func (a *loopArm) done() int64            { return a.n.Load() }

// committed sums the offsets: the log has no holes.
func (a *loopArm) committed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := int64(0)
	for _, o := range a.acked {
		sum += o
	}
	return sum >= a.j.Case.Records
}

func (a *loopArm) run(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, len(a.clients))
	for i, cl := range a.clients {
		wg.Go(func() { errs[i] = a.consume(ctx, cl) })
	}
	wg.Wait()
	for _, cl := range a.clients {
		cl.CloseAllowingRebalance()
	}
	return errors.Join(errs...)
}

func (a *loopArm) consume(ctx context.Context, cl *kgo.Client) error {
	next := map[int32]kgo.EpochOffset{}
	interval := a.j.Case.Commit.interval()
	at, dirty := time.Now(), false
	for ctx.Err() == nil {
		poll, cancel := ctx, context.CancelFunc(func() {})
		if dirty && a.j.Case.Records > 0 { // at the end of the log nothing else would bring up the last commit
			poll, cancel = context.WithTimeout(ctx, max(interval, time.Millisecond))
		}
		fs := cl.PollFetches(poll)
		cancel()
		for _, e := range fs.Errors() {
			if !errors.Is(e.Err, context.Canceled) && !errors.Is(e.Err, context.DeadlineExceeded) {
				return e.Err
			}
		}
		if err := a.handle(ctx, fs); err != nil || ctx.Err() != nil { // the latter in the midst of a poll
			return err
		}
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) == 0 {
				return
			}
			last := p.Records[len(p.Records)-1]
			next[p.Partition] = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
			for _, r := range p.Records {
				r.Recycle()
			}
			if a.j.Arm == ArmBare {
				a.n.Add(int64(len(p.Records)))
			}
			dirty = true
		})
		cl.AllowRebalance()
		if dirty && time.Since(at) >= interval {
			at, dirty = time.Now(), false
			a.commit(ctx, cl, maps.Clone(next))
		}
	}
	return nil
}

func (a *loopArm) commit(ctx context.Context, cl *kgo.Client, offsets map[int32]kgo.EpochOffset) {
	cl.CommitOffsets(ctx, map[string]map[int32]kgo.EpochOffset{a.j.Topic: offsets}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		for p, o := range offsets {
			a.acked[p] = max(a.acked[p], o.Offset)
		}
	})
}

// handle runs the handler on what a poll brought, as the arm does.
func (a *loopArm) handle(ctx context.Context, fs kgo.Fetches) error {
	if a.j.Arm == ArmBare {
		if a.m.timed { // the time since they should have been sent, without any handler
			fs.EachRecord(func(r *kgo.Record) { a.m.pass(r) })
			return nil
		}
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				touch(r)
			}
		})
		return nil
	}
	var g errgroup.Group
	g.SetLimit(a.j.Case.Workers)
	step := max(a.j.Case.Batch, 1)
	fs.EachPartition(func(p kgo.FetchTopicPartition) {
		for i := 0; i < len(p.Records) && ctx.Err() == nil; i += step {
			chunk := p.Records[i:min(i+step, len(p.Records))]
			g.Go(func() error {
				defer a.n.Add(int64(len(chunk)))
				return a.m.chunk(ctx, chunk)
			})
		}
	})
	if err := g.Wait(); err != nil && !errors.Is(err, errFlaky) && ctx.Err() == nil {
		return err
	}
	return nil
}
