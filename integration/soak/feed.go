package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// feed produces at a steady rate. Record n is due at n/rate seconds, whatever happened to those before it, and its latency counts from
// then: a load that waits for a slow system would hide how slow it is.
type feed struct {
	s          *soak
	cl         *kgo.Client
	partitions atomic.Int32
	err        atomic.Pointer[error]
}

func newFeed(s *soak) (*feed, error) {
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(s.brokers...), kgo.ClientID("soak-feed"), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(max(10_000, 120*s.o.rate)), // two minutes without a broker
		kgo.MetadataMinAge(250*time.Millisecond),          // a restarted broker is found soon
		kgo.ProducerLinger(5*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	f := &feed{s: s, cl: cl}
	f.partitions.Store(int32(s.o.partitions))
	return f, nil
}

// echo is a copy of a record that is yet to be sent.
type echo struct {
	id  uint64
	due time.Time
}

// run produces until the duration is over, and returns when all of it is acknowledged.
func (f *feed) run(ctx context.Context) error {
	o, l := f.s.o, f.s.ledger
	var echoes []echo
	total := uint64(o.duration.Seconds() * float64(o.rate))
	for id := uint64(0); id < total; {
		if err := f.err.Load(); err != nil {
			return *err
		}
		now := time.Now()
		for ; id < total && !l.intended(id).After(now); id++ {
			f.send(ctx, id)
			if copied(o.seed, id) { // some at once, some a few seconds later
				echoes = append(echoes, echo{id, now.Add(time.Duration(dice(o.seed, id, 7) % uint64(5*time.Second)))})
			}
		}
		left := echoes[:0]
		for _, e := range echoes {
			if e.due.After(now) {
				left = append(left, e)
				continue
			}
			f.sendCopy(ctx, e.id)
		}
		echoes = left
		before := time.Now()
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
		l.timer(before, time.Since(before)-time.Millisecond)
	}
	if err := f.cl.Flush(ctx); err != nil {
		return fmt.Errorf("flush the last records: %w", err)
	}
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *feed) send(ctx context.Context, id uint64) {
	o, l := f.s.o, f.s.ledger
	key := keyOf(o.seed, id)
	p := partitionOf(o.seed, key, int(f.partitions.Load()))
	l.sends(id, key, p)
	f.cl.Produce(ctx, &kgo.Record{
		Partition: p, Timestamp: l.intended(id), Key: fmt.Appendf(nil, "key-%d", key), Value: valueOf(o.seed, id),
		Headers: []kgo.RecordHeader{{Key: idHeader, Value: idBytes(id)}},
	}, func(_ *kgo.Record, err error) {
		if err != nil {
			f.failed(err)
			return
		}
		l.wasAcked(id, time.Now())
	})
}

// sendCopy sends a record again, as another one: at whatever partition, and without a key, so that it is in nobody's order.
func (f *feed) sendCopy(ctx context.Context, id uint64) {
	o := f.s.o
	f.s.ledger.sendsCopy()
	f.cl.Produce(ctx, &kgo.Record{
		Partition: int32(dice(o.seed, id, 8) % uint64(f.partitions.Load())), Value: valueOf(o.seed, id),
		Headers: []kgo.RecordHeader{{Key: idHeader, Value: idBytes(id)}, {Key: copyHeader, Value: []byte{1}}},
	}, func(_ *kgo.Record, err error) {
		if err != nil {
			f.failed(err)
		}
	})
}

func (f *feed) failed(err error) {
	err = fmt.Errorf("produce: %w", err)
	f.err.CompareAndSwap(nil, &err)
}

// widen has what is produced from now on use more partitions, once the producer knows them.
func (f *feed) widen(ctx context.Context, partitions int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("the producer does not see %d partitions within a minute", partitions))
	defer cancel()
	for p := int32(0); p < int32(partitions); {
		leader, _, err := f.cl.PartitionLeader(topic, p)
		if err == nil && leader >= 0 {
			p++
			continue
		}
		f.cl.ForceMetadataRefresh()
		if stop := pause(ctx, 100*time.Millisecond); stop != nil {
			return errors.Join(fmt.Errorf("%w: partition %d has the leader %d", stop, p, leader), err)
		}
	}
	f.partitions.Store(int32(partitions))
	return nil
}
