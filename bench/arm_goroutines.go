package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// goroutinesArm is the handler on as many goroutines as there are workers, and nothing else.
type goroutinesArm struct {
	idleRunner
	j     *job
	m     *meter
	log   []*kgo.Record
	tally []tally
}

type tally struct {
	n atomic.Int64
	_ [56]byte
}

func newGoroutines(j *job, m *meter) (*goroutinesArm, error) {
	b, err := j.canned()
	if err != nil {
		return nil, err
	}
	d := newDecoder(b, nil)
	return &goroutinesArm{j: j, m: m, log: d.next(0).Records, tally: make([]tally, j.Case.Workers)}, nil
}

func (a *goroutinesArm) run(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, len(a.tally))
	for w := range a.tally {
		wg.Go(func() { errs[w] = a.work(ctx, w) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// work handles the log's records under ever higher offsets: a goroutine's own partition, as far as the handler can tell.
func (a *goroutinesArm) work(ctx context.Context, w int) error {
	step := max(a.j.Case.Batch, 1)
	own := make([]kgo.Record, step)
	chunk := make([]*kgo.Record, step)
	for i := range own {
		chunk[i] = &own[i]
	}
	done := ctx.Done()
	from := w * len(a.log) / len(a.tally)
	for offset := int64(1); ; {
		select {
		case <-done:
			return nil
		default:
		}
		for i := range own {
			own[i] = *a.log[(from+int(offset))%len(a.log)]
			own[i].Partition, own[i].Offset = int32(w), offset
			offset++
		}
		if err := a.m.chunk(ctx, chunk); err != nil && !errors.Is(err, errFlaky) && ctx.Err() == nil {
			return err
		}
		a.tally[w].n.Add(int64(step))
	}
}

func (a *goroutinesArm) done() (n int64) {
	for i := range a.tally {
		n += a.tally[i].n.Load()
	}
	return n
}

func (a *goroutinesArm) peak() int { return len(a.tally) }

// decoder makes fetches out of a canned batch as the client does: a buffer for each response, records out of a pool.
type decoder struct {
	b     *canned
	pools []kgo.Pool
	at    map[int32]int64
}

func newDecoder(b *canned, pools []kgo.Pool) *decoder {
	return &decoder{b: b, pools: pools, at: map[int32]int64{}}
}

// next is the next fetch of a partition.
func (d *decoder) next(partition int32) kgo.FetchPartition {
	raw := append(make([]byte, 0, len(d.b.raw)), d.b.raw...)
	offset := d.at[partition]
	for i := range 8 {
		raw[i] = byte(uint64(offset) >> (56 - 8*i))
	}
	d.at[partition] += d.b.records
	p, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: endlessTopic, Partition: partition, Offset: offset, Pools: d.pools},
		&kmsg.FetchResponseTopicPartition{Partition: partition, RecordBatches: raw, HighWatermark: d.at[partition], LogStartOffset: -1}, kgo.DefaultDecompressor(), nil)
	return p
}
