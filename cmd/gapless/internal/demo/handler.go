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

// handler is what member does with a record. All it does is write to the journal, and behave as the record asks.
func (d *demo) handler(member string) engine.Handler {
	return engine.JSON(func(ctx context.Context, w work, r *engine.Record) error {
		i := d.journal.start(handling{
			Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Seq: w.Seq, Attempt: r.Attempt, Member: member,
		})
		err := w.do(ctx, r.Attempt)
		// The end stands in the journal before the engine hears of it: what is committed then can be held against it.
		d.journal.end(i, err == nil)
		if errors.Is(err, errPanics) {
			panic(err)
		}
		return err
	})
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
