package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// deadProducer writes dead letters. It is a client beside that for the outputs because it must not linger: the key of a dead letter
// waits for its acknowledgement (C6), so each record of a hot key whose records all fail would cost the linger and a round trip. What comes
// while a request is on its way goes together with the next one all the same. One client, so that the dead letters of a key keep
// their order; made with the first of them, as most engines never write one.
type deadProducer struct {
	mu     sync.Mutex
	cl     *kgo.Client
	closed bool
}

// get returns the client.
func (p *deadProducer) get(c *Config) (*kgo.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, kgo.ErrClientClosed
	}
	if p.cl == nil {
		opts, err := c.sideOpts(kgo.ProducerLinger(0))
		if err != nil {
			return nil, err
		}
		if p.cl, err = kgo.NewClient(opts...); err != nil {
			return nil, err
		}
	}
	return p.cl, nil
}

func (p *deadProducer) made() *kgo.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cl
}

func (p *deadProducer) close() {
	p.mu.Lock()
	p.closed = true
	cl := p.cl
	p.mu.Unlock()
	if cl != nil {
		cl.Close()
	}
}

// flushAll waits until nothing is being produced any more.
func (e *Engine) flushAll(ctx context.Context) error {
	err := e.side.Flush(ctx)
	if cl := e.dead.made(); cl != nil {
		err = errors.Join(err, cl.Flush(ctx))
	}
	return err
}
