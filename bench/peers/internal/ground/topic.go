package ground

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	fillLinger   = 10 * time.Millisecond
	fillBuffered = 50_000
	// fillMetadata lets the producer ask for a topic as soon as it is made: by default it would wait five seconds.
	fillMetadata = 100 * time.Millisecond
	// fillTimeout ends the wait for a broker that has died, as one does whose disk is full.
	fillTimeout = time.Minute
	// keys are how many different ones a topic has, uniformly distributed.
	keys = 10_000
	// smallest is the size of a value that holds a latency.
	smallest = 8
)

// A Topic is what a topic looks like. It is filled once, and read by every arm that is to read so much.
type Topic struct {
	Partitions int
	Records    int
	Size       int           // of a value, in bytes
	Mean       time.Duration // of the latencies that the values carry
}

// A Filled topic is there to be read.
type Filled struct {
	Name string
	Ends []int64 // by partition; all begin at 0
}

// Fill returns a topic, which it makes if it is not there yet.
func (g *Ground) Fill(ctx context.Context, t Topic) (*Filled, error) {
	if f := g.topics[t]; f != nil {
		return f, nil
	}
	f := &Filled{Name: fmt.Sprintf("peers-%d-%d-%d-%d", t.Partitions, t.Records, t.Size, rand.Uint32())}
	if err := g.fill(ctx, f, t); err != nil {
		return nil, fmt.Errorf("fill topic %s: %w", f.Name, err)
	}
	g.topics[t] = f
	return f, nil
}

func (g *Ground) fill(ctx context.Context, f *Filled, t Topic) error {
	if t.Size < smallest {
		return fmt.Errorf("a value of %d bytes does not hold a latency: it takes %d", t.Size, smallest)
	}
	if _, err := g.admin.CreateTopic(ctx, int32(t.Partitions), -1, nil, f.Name); err != nil {
		return err
	}
	if err := g.produce(ctx, f.Name, t); err != nil {
		return fmt.Errorf("filling the topic of %d records: %w (the broker's log may say more; is there room on the disk?)", t.Records, err)
	}
	starts, err := g.admin.ListStartOffsets(ctx, f.Name)
	if err != nil {
		return err
	}
	ends, err := g.admin.ListEndOffsets(ctx, f.Name)
	if err != nil {
		return err
	}
	f.Ends, err = extent(starts, ends, f.Name, t)
	return err
}

// extent are the log ends of a topic that holds exactly what was produced.
func extent(starts, ends kadm.ListedOffsets, name string, t Topic) ([]int64, error) {
	if err := ends.Error(); err != nil {
		return nil, err
	}
	all := make([]int64, t.Partitions)
	var records int64
	for p := range all {
		start, _ := starts.Lookup(name, int32(p))
		end, _ := ends.Lookup(name, int32(p))
		if start.Offset != 0 {
			return nil, fmt.Errorf("partition %d begins at offset %d", p, start.Offset)
		}
		all[p] = end.Offset
		records += end.Offset
	}
	if records != int64(t.Records) {
		return nil, fmt.Errorf("the log holds %d records of %d: a write was repeated", records, t.Records)
	}
	return all, nil
}

func (g *Ground) produce(ctx context.Context, name string, t Topic) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	written := func(_ *kgo.Record, err error) {
		if err != nil {
			fail(err)
		}
	}
	// The same records in every run, for comparability.
	seed := [32]byte{1}
	random := rand.NewChaCha8(seed)
	draw := rand.New(random)
	latency := newPareto(t.Mean)
	names := make([][]byte, keys)
	for i := range names {
		names[i] = strconv.AppendInt([]byte("key-"), int64(i), 10)
	}
	for range t.Records {
		value := make([]byte, t.Size)
		_, _ = random.Read(value)
		binary.BigEndian.PutUint64(value, uint64(latency.draw(draw.Float64())))
		g.client.Produce(ctx, &kgo.Record{Topic: name, Key: names[draw.IntN(keys)], Value: value}, written)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := g.client.Flush(ctx); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// A pareto draws from a bounded Pareto distribution: most latencies are short, and a few are very long.
type pareto struct{ least float64 } // in nanoseconds

const (
	// paretoShape 1.5 is heavy: without the bound the variance would be infinite.
	paretoShape = 1.5
	// paretoRange is how often the longest latency is the shortest.
	paretoRange = 300
)

// newPareto makes the distribution that has this mean.
func newPareto(mean time.Duration) pareto {
	a := paretoShape
	factor := a / (a - 1) * (1 - math.Pow(paretoRange, 1-a)) / (1 - math.Pow(paretoRange, -a))
	return pareto{least: float64(mean) / factor}
}

// draw is the latency at the quantile u, from 0 to 1.
func (p pareto) draw(u float64) time.Duration {
	return time.Duration(p.least / math.Pow(1-u*(1-math.Pow(paretoRange, -paretoShape)), 1/paretoShape))
}
