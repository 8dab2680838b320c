package demo

import (
	"context"
	"errors"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

var (
	errFlaky  = errors.New("the payment service did not answer") // a made-up reason, as all of these
	errFails  = errors.New("the payment service refuses this order")
	errBad    = errors.New("the order names no customer")
	errPanics = errors.New("index out of range, or so")
)

// handler is what a member does with a record. All it does is write to the journal, and behave as the record asks.
func handler(p *pen) engine.Handler {
	return engine.JSON(func(ctx context.Context, w work, r *engine.Record) error {
		n := p.start(handling{Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Order: w.Order, Seq: w.Seq, Attempt: r.Attempt})
		err := w.do(ctx, r.Attempt)
		// The end stands in the journal before the engine hears of it: what is committed then can be held against it.
		p.end(n, outcomeOf(ctx, r.Attempt, err))
		if errors.Is(err, errPanics) {
			panic(err)
		}
		return err
	})
}

// outcomeOf is what an attempt came to.
func outcomeOf(ctx context.Context, attempt int, err error) outcome {
	switch {
	case err == nil:
		return outcomeOK
	case ctx.Err() != nil:
		return outcomeCut
	case errors.Is(err, errBad), attempt >= attempts:
		return outcomeGivenUp
	}
	return outcomeFailed
}

func (w *work) do(ctx context.Context, attempt int) error {
	if w.Micros > 0 {
		t := time.NewTimer(time.Duration(w.Micros) * time.Microsecond)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	switch w.Kind {
	case kindFlaky:
		if attempt <= w.Failures {
			return errFlaky
		}
	case kindFails:
		return errFails
	case kindBad:
		return engine.Permanent(errBad)
	case kindPanics:
		return errPanics
	}
	return nil
}
