package demo

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// feed produces the plan, partition by partition.
type feed struct {
	plan *plan
	rate float64
	cl   *kgo.Client
	fail func(error)

	sent  []int          // by partition; the feed's own
	ends  []atomic.Int64 // offset behind the last acknowledged record
	acked []atomic.Int64
	done  chan struct{} // all is sent and acknowledged
}

func newFeed(p *plan, rate int, cl *kgo.Client, fail func(error)) *feed {
	n := len(p.queues)
	return &feed{
		plan: p, rate: float64(rate), cl: cl, fail: fail, done: make(chan struct{}),
		sent: make([]int, n), ends: make([]atomic.Int64, n), acked: make([]atomic.Int64, n),
	}
}

func (f *feed) produced() (n int64) {
	for p := range f.acked {
		n += f.acked[p].Load()
	}
	return n
}

// feedTick is short, so that records trickle in as they would from many producers, and not in bursts.
const feedTick = 5 * time.Millisecond

// chunk is the most that a partition gets in a tick, so that no partition is far ahead of the others at full speed.
const chunk = 500

func (f *feed) run(ctx context.Context) {
	credit := make([]float64, len(f.sent))
	tick := time.NewTicker(feedTick)
	defer tick.Stop()
	last := time.Now()
	for {
		elapsed := time.Since(last)
		last = last.Add(elapsed)
		left := false
		for p, queue := range f.plan.queues {
			most := chunk
			if f.rate > 0 {
				perSecond := f.rate * float64(len(queue)) / float64(f.plan.sent())
				credit[p] = min(credit[p]+perSecond*elapsed.Seconds(), chunk)
				most = int(credit[p])
			}
			n := min(most, len(queue)-f.sent[p])
			for range n {
				f.send(ctx, queue[f.sent[p]], int32(p))
				f.sent[p]++
			}
			if n > 0 {
				credit[p] -= float64(n)
			}
			left = left || f.sent[p] < len(queue)
		}
		if !left {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	if f.cl.Flush(ctx) == nil {
		close(f.done)
	}
}

func (f *feed) send(ctx context.Context, i, partition int32) {
	f.cl.Produce(ctx, f.plan.record(i, partition), func(r *kgo.Record, err error) {
		if err != nil {
			if ctx.Err() != nil { // told to stop
				return
			}
			f.fail(fmt.Errorf("produce: %w", err))
			return
		}
		f.acked[partition].Add(1)
		f.ends[partition].Store(r.Offset + 1) // acknowledged in order
	})
}
