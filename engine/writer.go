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

	mu      sync.Mutex
	cl      *kgo.Client
	closed  bool
	looking bool           // whether the client is dead
	looks   sync.WaitGroup // and what is closed because of it
}

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
		if w.cl, err = newClient(opts...); err != nil {
			return nil, err
		}
	}
	return w.cl, nil
}

// failed is told of each error of a write. A client that was once refused a producer id never asks for one again, and fails whatever it
// is given, long after the broker is well or the right to write is granted. Then the next write gets a new client.
func (w *writer) failed(cl *kgo.Client, err error) {
	if !refusedForGood(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.looking || w.closed || w.cl != cl {
		return
	}
	w.looking = true
	w.looks.Go(func() {
		dead := isDead(cl)
		w.mu.Lock()
		w.looking = false
		if dead {
			w.cl = nil
		}
		w.mu.Unlock()
		if dead {
			cl.Close() // nothing is in it: what was has failed
		}
	})
}

// isDead says whether a client has been refused a producer id for good. It knows at once where that is so.
func isDead(cl *kgo.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, _, err := cl.ProducerID(ctx)
	return refusedForGood(err)
}

// refusedForGood says that a broker gave an answer that will not become another by itself.
func refusedForGood(err error) bool {
	var code *kerr.Error
	return errors.As(err, &code) && !code.Retriable
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
	w.mu.Unlock()
	w.looks.Wait()
	if w.cl != nil {
		w.cl.Close()
	}
}

// flushAll waits until nothing is being produced any more.
func (e *Engine) flushAll(ctx context.Context) error {
	return errors.Join(e.outs.flush(ctx), e.dead.flush(ctx))
}
