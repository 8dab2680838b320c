package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fill produces the whole log of a case, round robin over its partitions.
func (w *world) fill(ctx context.Context, c Case, topic string) error {
	cl, err := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec(c.Compression)),
		kgo.ProducerLinger(20*time.Millisecond), kgo.MaxBufferedRecords(200_000), kgo.MaxBufferedBytes(256<<20))
	if err != nil {
		return err
	}
	defer cl.Close()
	var failed firstError
	g := newGenerator(c, w.cfg.Record)
	for i := range c.Records {
		if ctx.Err() != nil || failed.get() != nil {
			break
		}
		r := &kgo.Record{Topic: topic, Partition: int32(i % int64(c.Partitions))}
		r.Key, r.Value = g.next(time.Now())
		cl.Produce(ctx, r, failed.note)
	}
	err = cl.Flush(ctx)
	if err := errors.Join(failed.get(), err); err != nil {
		return fmt.Errorf("produce the log: %w", err)
	}
	return nil
}

// feed produces at the case's rate until ctx ends. Each record carries the time at which it was due, so a producer that can't keep up
// shows in the latency.
func (w *world) feed(ctx context.Context, c Case, topic string) error {
	cl, err := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec(c.Compression)),
		kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1_000_000))
	if err != nil {
		return err
	}
	defer cl.Close()
	var failed firstError
	g := newGenerator(c, w.cfg.Record)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	sending, stop := context.WithCancel(context.Background()) // what is under way at the end is given up, and is no failure
	defer stop()
	began := time.Now()
	interval := float64(time.Second) / c.Rate
	for n := int64(0); ; {
		select {
		case <-ctx.Done():
			return failed.get()
		case <-tick.C:
		}
		if err := failed.get(); err != nil {
			return fmt.Errorf("produce at a rate: %w", err)
		}
		for due := int64(float64(time.Since(began)) / interval); n < due; n++ {
			r := &kgo.Record{Topic: topic, Partition: int32(n % int64(c.Partitions))}
			r.Key, r.Value = g.next(began.Add(time.Duration(float64(n) * interval)))
			cl.Produce(sending, r, failed.note)
		}
	}
}

// firstError keeps the first error of a producer.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) note(_ *kgo.Record, err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
