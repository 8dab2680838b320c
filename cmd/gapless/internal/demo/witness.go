package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// witness reads from the broker what is there, by clients that have nothing to do with the engine's.
type witness struct {
	brokers []string
	cl      *kgo.Client
	adm     *kadm.Client
	latest  atomic.Pointer[sample]

	mu    sync.Mutex
	looks []time.Time
}

func newWitness(brokers []string) (*witness, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ClientID("gapless-demo-witness"), kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	return &witness{brokers: brokers, cl: cl, adm: kadm.NewClient(cl)}, nil
}

func (w *witness) close() { w.cl.Close() }

// sample is what the group had committed at a moment of the journal's clock.
type sample struct {
	clock     int64
	committed map[int32]commit
}

const sampleEvery = 100 * time.Millisecond

// watchCommits reads the group's offsets ten times a second until it is told to stop.
func (w *witness) watchCommits(ctx context.Context, j *journal) (stop func() []sample) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan []sample, 1)
	go func() {
		var samples []sample
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				done <- samples
				return
			case <-tick.C:
			}
			// What is committed in the answer was finished before the journal is read.
			c, err := w.committed(ctx)
			if err != nil || len(c) == 0 {
				continue
			}
			clock, err := j.catchUp()
			if err != nil {
				continue // whoever plays finds out as well
			}
			s := sample{clock, c}
			samples = append(samples, s)
			w.latest.Store(&s)
			w.looked()
		}
	}()
	return func() []sample { cancel(); return <-done }
}

// gapsOver is over how many looks the longest gap counts: some five seconds.
const gapsOver = 50

// looked notes when the group's offsets were looked at.
func (w *witness) looked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks = append(w.looks, time.Now())
	w.looks = w.looks[max(len(w.looks)-gapsOver, 0):]
}

// longestGap is the longest time of late between two looks at the group's offsets. On a machine that is busy it is longer than it
// should be, and so may be the time between the engine's commits.
func (w *witness) longestGap() (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.looks {
		if i+1 < len(w.looks) {
			longest = max(longest, w.looks[i+1].Sub(w.looks[i]))
		} else {
			longest = max(longest, time.Since(w.looks[i]))
		}
	}
	return longest
}

// committed is what the group holds now.
func (w *witness) committed(ctx context.Context) (map[int32]commit, error) {
	resp, err := w.adm.FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	c := map[int32]commit{}
	resp.Each(func(o kadm.OffsetResponse) {
		if o.Topic == topic && o.Err == nil && o.At >= 0 {
			c[o.Partition] = commitOf(o.Offset)
		}
	})
	return c, nil
}

// upTo is the offset that was committed for a partition when the witness looked last, as far as it has.
func (w *witness) upTo(partition int32) int64 {
	if s := w.latest.Load(); s != nil {
		return s.committed[partition].offset
	}
	return 0
}

// testimony is what the broker holds when all is over.
func (w *witness) testimony(ctx context.Context) (ev evidence, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if ev.ends, err = w.ends(ctx, topic); err != nil {
		return ev, err
	}
	last, err := w.committed(ctx)
	if err != nil {
		return ev, fmt.Errorf("read the committed offsets: %w", err)
	}
	ev.committed = map[int32]int64{}
	for p, c := range last {
		ev.committed[p] = c.offset
	}
	n := int64(0)
	for _, end := range ev.ends {
		n += end
	}
	ev.log = make([]placed, 0, n)
	err = w.read(ctx, topic, ev.ends, func(r *kgo.Record) error {
		p := placed{partition: r.Partition, offset: r.Offset, key: string(r.Key)}
		var v work
		if err := json.Unmarshal(r.Value, &v); err != nil {
			return fmt.Errorf("%s[%d]@%d: %w", topic, r.Partition, r.Offset, err)
		}
		p.seq, p.order = v.Seq, v.Order
		if p.poisonous = v.Kind.poisonous(); p.poisonous {
			p.value = string(r.Value)
		}
		ev.log = append(ev.log, p)
		return nil
	})
	if err != nil {
		return ev, err
	}
	dlq := topic + ".dlq"
	ends, err := w.ends(ctx, dlq)
	if err != nil {
		return ev, err
	}
	err = w.read(ctx, dlq, ends, func(r *kgo.Record) error {
		p, err := origin(r)
		ev.dead = append(ev.dead, p)
		return err
	})
	return ev, err
}

// origin is where a dead letter says that it comes from, with the key and value that it has.
func origin(r *kgo.Record) (placed, error) {
	h := map[string]string{}
	for _, x := range r.Headers {
		h[x.Key] = string(x.Value)
	}
	partition, err := strconv.ParseInt(h[engine.HeaderPartition], 10, 32)
	offset, err2 := strconv.ParseInt(h[engine.HeaderOffset], 10, 64)
	var v work
	err3 := json.Unmarshal(r.Value, &v)
	if err := errors.Join(err, err2, err3); err != nil || h[engine.HeaderTopic] != topic {
		return placed{}, fmt.Errorf("dead letter %s[%d]@%d does not say where it comes from: %v %w", r.Topic, r.Partition, r.Offset, h, err)
	}
	return placed{partition: int32(partition), offset: offset, key: string(r.Key), order: v.Order, seq: v.Seq, poisonous: v.Kind.poisonous(), value: string(r.Value)}, nil
}

func (w *witness) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := w.adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read the ends of %s: %w", topic, err)
	}
	ends := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends, nil
}

// read calls fn for every record of a topic, from its beginning to its ends.
func (w *witness) read(ctx context.Context, topic string, ends map[int32]int64, fn func(*kgo.Record) error) error {
	from := map[int32]kgo.Offset{}
	left := int64(0)
	for p, end := range ends {
		if end > 0 {
			from[p] = kgo.NewOffset().AtStart()
			left += end
		}
	}
	if left == 0 {
		return nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.ClientID("gapless-demo-witness"), kgo.DisableClientMetrics(),
		kgo.FetchMaxBytes(4<<20), kgo.FetchMaxPartitionBytes(512<<10), // there is no hurry, and the demo is to stay small
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return err
	}
	defer cl.Close()
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read %s back: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			if err == nil {
				err = fn(r)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
