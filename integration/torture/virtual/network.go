package virtual

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// firstPort is that of the first broker.
const firstPort = 9093

// network lies between members and brokers, and has faults.
type network struct {
	kfake.VirtualNetwork

	mu      sync.Mutex
	changed chan struct{} // closed when anything changes
	brokers []*side
}

// side is one end of connections, a member or a broker, and what is wrong with its network. The network's mutex guards it.
type side struct {
	n       *network
	frozen  int // so many reasons for which nothing arrives
	down    int // so many reasons for which there are no connections
	latency time.Duration
	patient bool // a dial waits for a broker that is down
	conns   map[*conn]struct{}
}

func newNetwork(brokers int) *network {
	n := &network{changed: make(chan struct{})}
	for range brokers {
		n.brokers = append(n.brokers, n.side())
	}
	return n
}

func (n *network) side() *side { return &side{n: n, conns: map[*conn]struct{}{}} }

// change changes a side. Connections of one that is down are closed.
func (s *side) change(f func(s *side)) {
	s.n.mu.Lock()
	f(s)
	var dead []*conn
	if s.down > 0 {
		for c := range s.conns {
			dead = append(dead, c)
		}
	}
	close(s.n.changed)
	s.n.changed = make(chan struct{})
	s.n.mu.Unlock()
	for _, c := range dead {
		c.end()
	}
}

// errDown is what a client sees of a broker that is not there.
var errDown = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// dial connects a side with the broker of an address.
func (s *side) dial(ctx context.Context, network, address string) (net.Conn, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < firstPort || port >= firstPort+len(s.n.brokers) {
		return nil, errDown
	}
	broker := s.n.brokers[port-firstPort]
	for {
		s.n.mu.Lock()
		down, frozen, changed := s.down+broker.down > 0, s.frozen+broker.frozen > 0, s.n.changed
		s.n.mu.Unlock()
		if down && !s.patient {
			return nil, errDown
		}
		if !frozen && !down {
			break
		}
		select { // the packet that asks for a connection is lost, and sent again
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	out, err := s.n.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	c := &conn{member: s, broker: broker, near: far, far: out, closed: make(chan struct{})}
	s.n.mu.Lock()
	down := s.down+broker.down > 0
	if !down {
		s.conns[c], broker.conns[c] = struct{}{}, struct{}{}
	}
	s.n.mu.Unlock()
	if down {
		c.end()
		return nil, errDown
	}
	go c.pump(far, out)
	go c.pump(out, far)
	return end{near}, nil
}

// end is a client's end of a connection. One that broke has the errors that TCP has, not those of a pipe.
type end struct{ net.Conn }

func (e end) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	return n, broken("read", err, syscall.ECONNRESET)
}

func (e end) Write(b []byte) (int, error) {
	n, err := e.Conn.Write(b)
	return n, broken("write", err, syscall.EPIPE)
}

func broken(op string, err error, errno syscall.Errno) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, errno)}
	}
	return err
}

// conn carries bytes between a member and a broker.
type conn struct {
	member, broker *side
	near, far      net.Conn
	once           sync.Once
	closed         chan struct{}
}

// end closes it for both.
func (c *conn) end() {
	c.once.Do(func() {
		close(c.closed)
		_ = c.near.Close()
		_ = c.far.Close()
		n := c.member.n
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(c.member.conns, c)
		delete(c.broker.conns, c)
	})
}

// chunk is some bytes on their way.
type chunk struct {
	sent time.Time
	data []byte
}

// pump carries bytes in one direction, as late as the network is, and holds them up while it stands still. What was on its way when the
// sender closed still arrives.
func (c *conn) pump(from, to net.Conn) {
	way := make(chan chunk, 64)
	go func() {
		defer close(way)
		for {
			buf := make([]byte, 8192)
			n, err := from.Read(buf)
			if n > 0 {
				select {
				case way <- chunk{time.Now(), buf[:n]}:
				case <-c.closed:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer c.end()
	for ch := range way {
		if !c.pass(ch.sent) {
			return
		}
		if _, err := to.Write(ch.data); err != nil {
			return
		}
	}
	c.pass(time.Now()) // nor does the end arrive any earlier
}

// pass waits until what was sent then may arrive.
func (c *conn) pass(sent time.Time) bool {
	n := c.member.n
	for {
		n.mu.Lock()
		frozen, changed := c.member.frozen+c.broker.frozen > 0, n.changed
		late := time.Until(sent.Add(c.member.latency + c.broker.latency))
		n.mu.Unlock()
		switch {
		case frozen:
			select {
			case <-changed:
			case <-c.closed:
				return false
			}
		case late > 0:
			select {
			case <-time.After(late):
			case <-c.closed:
				return false
			}
		default:
			return true
		}
	}
}
