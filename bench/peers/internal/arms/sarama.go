package arms

import (
	"context"
	"errors"

	"github.com/IBM/sarama"

	"github.com/gaplesshq/gapless/bench/peers/internal/ledger"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

// saramaGroup is the consumer group of the library's own example.
func saramaGroup(ctx context.Context, t task.Task, w *ledger.Work) (err error) {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = commitEvery
	g, err := sarama.NewConsumerGroup([]string{t.Bootstrap}, t.Group, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{t.Topic}, saramaHandler{w}); err != nil {
			return err
		}
	}
	return nil
}

type saramaHandler struct{ w *ledger.Work }

func (saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h saramaHandler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			h.w.Handle(m.Partition, m.Offset, m.Value)
			s.MarkMessage(m, "")
		case <-s.Context().Done():
			return nil
		}
	}
}
