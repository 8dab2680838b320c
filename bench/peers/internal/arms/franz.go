package arms

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/gaplesshq/gapless/bench/peers/internal/ledger"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

func franzClient(t task.Task, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(t.Bootstrap), kgo.ConsumerGroup(t.Group), kgo.ConsumeTopics(t.Topic),
	}, opts...)...)
}

// poll gives the next fetches, and none once ctx has ended.
func poll(ctx context.Context, cl *kgo.Client) (kgo.Fetches, error) {
	fs := cl.PollFetches(ctx)
	select {
	case <-ctx.Done():
		return nil, nil
	default:
		return fs, fs.Err()
	}
}

// franzPooled is the leanest loop that the client allows, with the fetch options of Gapless: records are pooled, a rebalance waits
// for the poll to be handled, and a commit is on its way while the loop goes on.
func franzPooled(ctx context.Context, t task.Task, w *ledger.Work) error {
	cl, err := franzClient(t, kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.WithPools(new(slabs)),
		kgo.FetchMaxBytes(16<<20), kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxWait(250*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	committed := time.Now()
	for {
		fs, err := poll(ctx, cl)
		if err != nil {
			return err
		}
		if fs == nil {
			return commitAll(cl)
		}
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				w.Handle(r.Partition, r.Offset, r.Value)
				r.Recycle()
			}
		})
		if now := time.Now(); now.Sub(committed) >= commitEvery {
			committed = now
			cl.CommitOffsets(ctx, cl.UncommittedOffsets(), nil)
		}
		cl.AllowRebalance()
	}
}

// franzDefaults is the loop of the client's own documentation: it commits by itself what earlier polls gave, and once more at the end.
func franzDefaults(ctx context.Context, t task.Task, w *ledger.Work) error {
	cl, err := franzClient(t, kgo.AutoCommitInterval(commitEvery))
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		fs, err := poll(ctx, cl)
		if err != nil {
			return err
		}
		if fs == nil {
			return commitAll(cl)
		}
		fs.EachRecord(func(r *kgo.Record) { w.Handle(r.Partition, r.Offset, r.Value) })
	}
}

// franzErrgroup is what people write by hand: a goroutine a record, so many at once, and the next poll when all are done.
func franzErrgroup(ctx context.Context, t task.Task, w *ledger.Work) error {
	cl, err := franzClient(t, kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer cl.Close()
	committed := time.Now()
	for {
		fs, err := poll(ctx, cl)
		if err != nil {
			return err
		}
		if fs == nil {
			return commitAll(cl)
		}
		handleInGroup(fs, t.Workers, w)
		if now := time.Now(); now.Sub(committed) >= commitEvery {
			committed = now
			if err := cl.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

func handleInGroup(fs kgo.Fetches, workers int, w *ledger.Work) {
	var g errgroup.Group
	g.SetLimit(workers)
	fs.EachRecord(func(r *kgo.Record) {
		g.Go(func() error {
			w.Handle(r.Partition, r.Offset, r.Value)
			return nil
		})
	})
	_ = g.Wait() // this handler does not fail
}

func commitAll(cl *kgo.Client) error {
	ctx, cancel := afterwards()
	defer cancel()
	return cl.CommitUncommittedOffsets(ctx)
}

// franzShare is a share group. What a poll gave is accepted by the next one, or by the flush at the end.
func franzShare(ctx context.Context, t task.Task, w *ledger.Work) error {
	opts := []kgo.Opt{kgo.SeedBrokers(t.Bootstrap), kgo.ShareGroup(t.Group), kgo.ConsumeTopics(t.Topic)}
	if t.Workers > shareMaxRecords {
		opts = append(opts, kgo.ShareMaxRecords(int32(t.Workers)))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		fs, err := poll(ctx, cl)
		if err != nil {
			return err
		}
		if fs == nil {
			break
		}
		if t.Workers > 0 {
			handleInGroup(fs, t.Workers, w)
		} else {
			fs.EachRecord(func(r *kgo.Record) { w.Handle(r.Partition, r.Offset, r.Value) })
		}
		cl.MarkAcks(kgo.AckAccept)
	}
	flush, cancel := afterwards()
	defer cancel()
	return cl.FlushAcks(flush)
}

// shareMaxRecords is the client's default.
const shareMaxRecords = 500

// slabs is the leanest pool of records: a stack.
type slabs struct {
	mu    sync.Mutex
	stack [][]kgo.Record
}

// GetRecords implements kgo.PoolRecords.
func (s *slabs) GetRecords(n int) []kgo.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.stack) - 1; i >= 0; i-- {
		if recs := s.stack[i]; cap(recs) >= n {
			s.stack[i] = s.stack[len(s.stack)-1]
			s.stack = s.stack[:len(s.stack)-1]
			return recs[:n]
		}
	}
	return make([]kgo.Record, n)
}

// PutRecords implements kgo.PoolRecords.
func (s *slabs) PutRecords(recs []kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.stack) < 256 {
		s.stack = append(s.stack, recs)
	}
}
