package arms

import (
	"context"

	"github.com/gaplesshq/gapless/bench/peers/internal/ledger"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
	"github.com/gaplesshq/gapless/engine"
)

// gapless has the default settings but for the order, the number of workers, and that there is no dead-letter topic: the handler
// does not fail.
func gapless(ctx context.Context, t task.Task, w *ledger.Work) error {
	e, err := engine.New(engine.Config{
		Brokers: []string{t.Bootstrap},
		Group:   t.Group,
		Topics:  []string{t.Topic},
		Handler: engine.HandlerFunc(func(_ context.Context, r *engine.Record) error {
			w.Handle(r.Partition, r.Offset, r.Value)
			return nil
		}),
		Order:      engine.Order(t.Mode),
		Workers:    t.Workers,
		Commit:     engine.Commit{Interval: commitEvery},
		DeadLetter: engine.DeadLetter{GiveUp: engine.GiveUpSkip},
	})
	if err != nil {
		return err
	}
	return e.Run(ctx)
}
