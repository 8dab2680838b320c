package engine

import (
	"context"
	"encoding/json"
	"fmt"
)

// Handler does the work of one record. Returning nil settles the record; an error is retried, and then given up as
// Config.DeadLetter says, unless it steers (Permanent, RetryAfter, Skip, Hold, End). A panic counts as an error.
//
// The Record, its key and its value are the engine's: they are valid until Handle returns. Clone what is kept.
// ctx ends at Config.HandlerTimeout, at the drain deadline of a stop or a revoke, when the partition is lost or suspended
// (another member may own it by then), and on a hard stop.
type Handler interface {
	Handle(ctx context.Context, r *Record) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, r *Record) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r *Record) error { return f(ctx, r) }

// BatchHandler does the work of a batch. Records that are not marked by Batch.Fail count as done when it returns nil; an
// error fails them all. Under OrderKey a batch holds at most one record of a key; under OrderPartition the first failure ends
// the batch: what follows it is handled again, after it.
type BatchHandler interface {
	HandleBatch(ctx context.Context, b *Batch) error
}

// BatchHandlerFunc is a function as a BatchHandler.
type BatchHandlerFunc func(ctx context.Context, b *Batch) error

// HandleBatch calls f.
func (f BatchHandlerFunc) HandleBatch(ctx context.Context, b *Batch) error { return f(ctx, b) }

// Middleware wraps a Handler in another.
type Middleware func(Handler) Handler

// wrapHandlers puts the middleware around every handler, once.
func (c *Config) wrapHandlers() {
	wrap := func(h Handler) Handler {
		for i := len(c.Middleware) - 1; i >= 0; i-- {
			h = c.Middleware[i](h)
		}
		return h
	}
	if c.Handler != nil {
		c.Handler = wrap(c.Handler)
	}
	own := make(map[string]Handler, len(c.Handlers))
	for topic, h := range c.Handlers {
		own[topic] = wrap(h)
	}
	c.Handlers = own
}

// JSON is a Handler for values that are JSON. A value that can't be decoded is a Permanent error.
func JSON[T any](fn func(ctx context.Context, v T, r *Record) error) Handler {
	return Decoded(func(b []byte) (v T, err error) {
		err = json.Unmarshal(b, &v)
		return v, err
	}, fn)
}

// Decoded is a Handler for values that decode turns into a T. An error of decode is Permanent: the next attempt would read the
// same bytes.
func Decoded[T any](decode func(value []byte) (T, error), fn func(ctx context.Context, v T, r *Record) error) Handler {
	return HandlerFunc(func(ctx context.Context, r *Record) error {
		v, err := decode(r.Value)
		if err != nil {
			return Permanent(fmt.Errorf("decode the value: %w", err))
		}
		return fn(ctx, v, r)
	})
}

// Batch is what a BatchHandler is given: records of one partition, in offset order unless OrderUnordered or a retry mixed
// them. It is valid until HandleBatch returns.
type Batch struct {
	Topic     string
	Partition int32
	Records   []*Record

	errs   []error
	failed bool // one of errs was set
}

// Fail marks record i as failed with err; the others are not touched. A nil err takes the mark back.
func (b *Batch) Fail(i int, err error) {
	b.errs[i] = err
	b.failed = b.failed || err != nil
}
