package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// A proxy stands in front of one broker for the clients of one network, and damages what passes.
//
// It is written here because toxiproxy 2.5.0, the last that can be had as a library, changes a fault by
// interrupting the copying of each connection: a client that reads nothing for a while, such as a
// process that is paused, blocks the change, and one that is killed then blocks it for ever. Here a
// fault is a state that the copying looks at, so that changing it waits for nobody.
type proxy struct {
	listen   string
	upstream string

	mu       sync.Mutex
	faults   faults
	changed  chan struct{} // closed and replaced with every change of the faults
	listener net.Listener  // nil while the network is cut
	hangUp   func()        // ends dialling
	closed   bool
	conns    map[*proxied]bool
	running  sync.WaitGroup
}

// faults say what happens to a proxy's connections, those that are open as well as those to come.
type faults struct {
	hold   [2]bool // by direction: what is sent waits
	delay  time.Duration
	jitter time.Duration
	limit  *limit // nil for none
}

// A limit is compared by identity: setting the same one again counts from zero again.
type limit struct{ bytes int64 }

type direction int

const (
	requests direction = iota // from the client to the broker
	answers
)

func newProxy(listen, upstream string) *proxy {
	return &proxy{listen: listen, upstream: upstream, changed: make(chan struct{}), conns: make(map[*proxied]bool)}
}

// open takes connections, until the next cut.
func (p *proxy) open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("kafkatest: the cluster of this network is closed")
	}
	if p.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", p.listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: %w", errPortTaken, err)
		}
		return fmt.Errorf("kafkatest: proxy of the broker at %s: %w", p.upstream, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.listener, p.hangUp = l, cancel
	p.running.Go(func() { p.accept(ctx, l) })
	return nil
}

func (p *proxy) accept(ctx context.Context, l net.Listener) {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, which may pass
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.running.Go(func() { p.serve(ctx, client.(*net.TCPConn)) })
	}
}

// serve connects a client with the broker until one of them, or a fault, ends it.
func (p *proxy) serve(ctx context.Context, client *net.TCPConn) {
	broker, err := new(net.Dialer).DialContext(ctx, "tcp", p.upstream)
	if err != nil {
		reset(client) // as near as an accepted connection comes to a refused one
		return
	}
	c := &proxied{proxy: p, client: client, broker: broker.(*net.TCPConn), ended: make(chan struct{})}
	p.mu.Lock()
	if ctx.Err() != nil { // cut meanwhile
		p.mu.Unlock()
		c.end()
		return
	}
	p.conns[c] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { c.carry(requests, c.client, c.broker) })
	both.Go(func() { c.carry(answers, c.broker, c.client) })
	both.Wait()
	c.end()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// cut ends all connections and has new ones refused.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.hangUp()
		p.listener = nil
	}
	for c := range p.conns {
		c.end()
	}
}

// resetAll ends the connections that are open.
func (p *proxy) resetAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.end()
	}
}

// close returns when nothing of the proxy runs any more.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cut()
	p.running.Wait()
}

func (p *proxy) set(change func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxy) now() (faults, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults, p.changed
}

// proxied is a connection of a client to a broker.
type proxied struct {
	proxy          *proxy
	client, broker *net.TCPConn
	once           sync.Once
	ended          chan struct{}
}

// end breaks both sides off, whatever they still had to say.
func (c *proxied) end() {
	c.once.Do(func() {
		close(c.ended)
		reset(c.client)
		reset(c.broker)
	})
}

// reset closes a connection in such a way that the other side gets a reset (RST), not an end.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// A chunk is what one read brought; the last one of a stream is nothing but its error.
type chunk struct {
	data []byte
	read time.Time
	err  error
}

// A delayed stream has this many chunks on their way; the sender waits when there are more.
const (
	chunkSize = 32 << 10
	underway  = 64
)

// carry copies one direction to its end, through the faults.
func (c *proxied) carry(d direction, from, to *net.TCPConn) {
	chunks := make(chan chunk, underway)
	var reader sync.WaitGroup
	reader.Go(func() { c.read(from, chunks) })
	defer reader.Wait()
	s := stream{conn: c, direction: d}
	for {
		var next chunk
		select {
		case next = <-chunks:
		case <-c.ended:
			return
		}
		if !s.admit(next.read) {
			return
		}
		switch {
		case next.err == io.EOF: //nolint:errorlint // a reader's io.EOF is io.EOF
			_ = to.CloseWrite() // the other direction may have more to say
			return
		case next.err != nil || !s.write(to, next.data):
			c.end()
			return
		}
	}
}

func (c *proxied) read(from *net.TCPConn, chunks chan<- chunk) {
	for {
		data := make([]byte, chunkSize)
		n, err := from.Read(data)
		if n > 0 && !c.pass(chunks, chunk{data: data[:n], read: time.Now()}) {
			return
		}
		if err != nil {
			c.pass(chunks, chunk{read: time.Now(), err: err})
			return
		}
	}
}

func (c *proxied) pass(chunks chan<- chunk, next chunk) bool {
	select {
	case chunks <- next:
		return true
	case <-c.ended:
		return false
	}
}

// stream is the writing end of one direction of a connection.
type stream struct {
	conn      *proxied
	direction direction
	limit     *limit // the one that is being counted for
	passed    int64
}

// admit returns when the faults let through what was read at the given time, or false when the
// connection has ended before.
func (s *stream) admit(read time.Time) bool {
	share := rand.Float64()
	for {
		f, changed := s.conn.proxy.now()
		wait := time.Until(read.Add(f.delay + time.Duration(share*float64(f.jitter))))
		if !f.hold[s.direction] && wait <= 0 {
			return true
		}
		var due <-chan time.Time
		if !f.hold[s.direction] {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-changed:
		case <-s.conn.ended:
			return false
		}
	}
}

// write reports whether the connection may go on: neither has its peer gone, nor is its limit reached.
func (s *stream) write(to io.Writer, data []byte) bool {
	f, _ := s.conn.proxy.now()
	if f.limit == nil || s.direction != answers {
		_, err := to.Write(data)
		return err == nil
	}
	if s.limit != f.limit {
		s.limit, s.passed = f.limit, 0
	}
	left := f.limit.bytes - s.passed
	n, err := to.Write(data[:min(left, int64(len(data)))])
	s.passed += int64(n)
	return err == nil && s.passed < f.limit.bytes
}
