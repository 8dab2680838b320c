package arms

import (
	"context"
	"errors"

	"github.com/segmentio/kafka-go"

	"github.com/gaplesshq/gapless/bench/peers/internal/ledger"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

// kafkaGoReader is the group reader of the library's README, committing at intervals.
func kafkaGoReader(ctx context.Context, t task.Task, w *ledger.Work) (err error) {
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        []string{t.Bootstrap},
		GroupID:        t.Group,
		Topic:          t.Topic,
		MaxBytes:       10e6,
		CommitInterval: commitEvery,
		StartOffset:    kafka.FirstOffset,
	})
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		m, err := r.FetchMessage(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		w.Handle(int32(m.Partition), m.Offset, m.Value)
		// Not ctx, for that of the last record ends at once.
		if err := r.CommitMessages(context.Background(), m); err != nil {
			return err
		}
	}
}
