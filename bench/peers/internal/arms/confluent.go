//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && (amd64 || arm64)) || (windows && amd64))

package arms

import (
	"context"
	"errors"
	"fmt"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/gaplesshq/gapless/bench/peers/internal/ledger"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

const confluentMissing = ""

// confluentBackoff10 asks for more 10 ms after its queue was full. The default of a second makes it wait most of the time when the
// handler is quick.
func confluentBackoff10(ctx context.Context, t task.Task, w *ledger.Work) error {
	return confluent(ctx, t, w, kafka.ConfigMap{"fetch.queue.backoff.ms": 10})
}

func confluentDefaults(ctx context.Context, t task.Task, w *ledger.Work) error {
	return confluent(ctx, t, w, kafka.ConfigMap{})
}

// confluent is the poll loop of the library's README.
func confluent(ctx context.Context, t task.Task, w *ledger.Work, c kafka.ConfigMap) (err error) {
	c["bootstrap.servers"] = t.Bootstrap
	c["group.id"] = t.Group
	c["auto.offset.reset"] = "earliest"
	c["auto.commit.interval.ms"] = int(commitEvery.Milliseconds())
	consumer, err := kafka.NewConsumer(&c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	if err := consumer.SubscribeTopics([]string{t.Topic}, nil); err != nil {
		return err
	}
	for ctx.Err() == nil {
		switch e := consumer.Poll(100).(type) {
		case *kafka.Message:
			w.Handle(e.TopicPartition.Partition, int64(e.TopicPartition.Offset), e.Value)
		case kafka.Error:
			if e.IsFatal() {
				return fmt.Errorf("confluent-kafka-go: %w", e)
			}
		}
	}
	_, err = consumer.Commit()
	if e := (kafka.Error{}); errors.As(err, &e) && e.Code() == kafka.ErrNoOffset { // the last interval had it all
		return nil
	}
	return err
}
