package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// writer produces outputs, or dead letters. Its client is made with the first of them, as many engines never write any.
//
// Dead letters have a writer of their own because they must not linger: the key of one waits for its acknowledgement (C6), so each record
// of a hot key whose records all fail would cost the linger and a round trip. What comes while a request is on its way goes
// together with the next one all the same. One client each, so that the records of a key keep their order.
type writer struct {
	linger time.Duration

	mu     sync.Mutex
	cl     *kgo.Client
	closed bool
	spent  sync.WaitGroup // clients that are being closed
}

// outputLinger is how long an output waits for others to go with.
const outputLinger = 5 * time.Millisecond

// get returns the client.
func (w *writer) get(c *Config) (*kgo.Client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, kgo.ErrClientClosed
	}
	if w.cl == nil {
		opts, err := c.sideOpts(kgo.ProducerLinger(w.linger))
		if err != nil {
			return nil, err
		}
		if w.cl, err = kgo.NewClient(opts...); err != nil {
			return nil, err
		}
	}
	return w.cl, nil
}

// failed is told of each error of a write. A client that was once refused a producer id never asks for one again, even when it
// would be given one by now: the next write gets a new client.
func (w *writer) failed(cl *kgo.Client, err error) {
	if !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cl != cl || w.closed {
		return
	}
	w.cl = nil
	w.spent.Go(cl.Close)
}

func (w *writer) flush(ctx context.Context) error {
	w.mu.Lock()
	cl := w.cl
	w.mu.Unlock()
	if cl == nil {
		return nil
	}
	return cl.Flush(ctx)
}

func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	cl := w.cl
	w.mu.Unlock()
	if cl != nil {
		cl.Close()
	}
	w.spent.Wait()
}

// flushAll waits until nothing is being produced any more.
func (e *Engine) flushAll(ctx context.Context) error {
	return errors.Join(e.outs.flush(ctx), e.dead.flush(ctx))
}
