package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetcher makes fetches out of a canned batch as the client does: a buffer for each response, records out of a pool.
type fetcher struct {
	batch   []byte
	records int64 // in the batch
	pool    *recordpool.Pool
	next    [benchPartitions]int64
}

func newFetcher() *fetcher {
	f := &fetcher{batch: keyedBatch(), pool: new(recordpool.Pool)}
	f.records = int64(binary.BigEndian.Uint32(f.batch[57:]))
	return f
}

func (f *fetcher) fetch(partition int32) kgo.FetchPartition {
	raw := append(make([]byte, 0, len(f.batch)), f.batch...)
	offset := f.next[partition]
	binary.BigEndian.PutUint64(raw, uint64(offset))
	f.next[partition] += f.records
	p, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Topic: "t", Partition: partition, Offset: offset, DisableCRCValidation: true, Pools: []kgo.Pool{f.pool},
	}, &kmsg.FetchResponseTopicPartition{Partition: partition, RecordBatches: raw, HighWatermark: f.next[partition], LogStartOffset: -1}, nil, nil)
	return p
}

// pathPolls are as many rounds of fetches as make about 900,000 records.
const pathPolls = 10

func barePath(f *fetcher, polls int) float64 {
	began := cpuTime()
	for range polls {
		for partition := range int32(benchPartitions) {
			for _, r := range f.fetch(partition).Records {
				handleNothing(r)
				r.Recycle()
			}
		}
	}
	return float64(cpuTime()-began) / float64(int64(polls)*benchPartitions*f.records)
}

func enginePath(b *testing.B, f *fetcher, order Order, batch, polls int) float64 {
	c := Config{Brokers: []string{"none:9092"}, Group: "g", Topics: []string{"t"}, Order: order, Workers: 8,
		DeadLetter: DeadLetter{GiveUp: GiveUpSkip}}
	if batch == 0 {
		c.Handler = HandlerFunc(func(_ context.Context, r *Record) error { handleNothing(r.Record); return nil })
	} else {
		c.BatchSize, c.BatchLinger = batch, time.Millisecond
		c.BatchHandler = BatchHandlerFunc(func(_ context.Context, batch *Batch) error {
			for _, r := range batch.Records {
				handleNothing(r.Record)
			}
			return nil
		})
	}
	e, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	e.records, e.lender = f.pool, f.pool
	var eps []*epoch
	for partition := range int32(benchPartitions) {
		ep := e.assign(tp{"t", partition}, Owner{MemberID: "m"})
		e.activate(ep, f.next[partition], -1)
		eps = append(eps, ep)
	}
	full := func() bool {
		for _, ep := range eps {
			if waiting, running, _ := ep.lane.Len(); waiting+running >= e.cfg.PartitionRecords {
				return true
			}
		}
		return false
	}
	var d delivery
	began := cpuTime()
	for range polls {
		for partition := range int32(benchPartitions) {
			p := f.fetch(partition)
			e.deliver(&d, "t", &p)
		}
		for full() {
			<-e.flowKick
		}
	}
	e.pool.Wait()
	took := cpuTime() - began
	for _, ep := range eps {
		if frontier := ep.frontier(); frontier != f.next[ep.partition] {
			b.Fatalf("partition %d: settled up to %d of %d", ep.partition, frontier, f.next[ep.partition])
		}
		e.account(ep)
		ep.lane.Close()
		ep.endCtx(nil)
	}
	return float64(took) / float64(int64(polls)*benchPartitions*f.records)
}

var paths = []struct {
	order Order
	batch int
}{{OrderUnordered, 0}, {OrderKey, 0}, {OrderPartition, 0}, {OrderUnordered, 100}, {OrderKey, 100}, {OrderPartition, 100}}

// BenchmarkPathOnly goes that path b.N times, for who counts instructions (bench/instructions).
func BenchmarkPathOnly(b *testing.B) {
	f := newFetcher()
	records := func(b *testing.B) { b.ReportMetric(float64(benchPartitions*f.records), "records/op") }
	b.Run("bare", func(b *testing.B) {
		barePath(f, b.N)
		records(b)
	})
	for _, x := range paths {
		b.Run(fmt.Sprintf("order=%s/batch=%d", x.order, x.batch), func(b *testing.B) {
			enginePath(b, f, x.order, x.batch, b.N)
			records(b)
		})
	}
}

// BenchmarkPath is BenchmarkOverhead without a broker, a network and a group: what becomes of fetched bytes until their records
// are settled, and what a bare loop over the same fetches takes. It shows what a change to that path does. On a machine that
// others use the difference of the least figures says more than the median of the differences.
func BenchmarkPath(b *testing.B) {
	for _, x := range paths {
		b.Run(fmt.Sprintf("order=%s/batch=%d", x.order, x.batch), func(b *testing.B) {
			f := newFetcher()
			var bare, engine, over []float64
			for i := range 4 * benchRounds() {
				bare, engine = append(bare, barePath(f, pathPolls)), append(engine, enginePath(b, f, x.order, x.batch, pathPolls))
				over = append(over, engine[i]-bare[i])
			}
			least := slices.Min(engine) - slices.Min(bare)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(over), "over-ns/record")
			b.ReportMetric(least, "least-over-ns/record")
			b.Logf("over the bare loop: %s ns a record, by the least %.2f; that takes %s", spread(over), least, spread(bare))
		})
	}
}
