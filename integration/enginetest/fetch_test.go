package enginetest

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wiretap reads along what a client writes to its brokers.
type wiretap struct {
	mu      sync.Mutex
	clients map[string]bool // client ids
	fetches []*kmsg.FetchRequest
}

func (tap *wiretap) dial(ctx context.Context, network, host string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	return &tappedConn{Conn: conn, tap: tap}, nil
}

type tappedConn struct {
	net.Conn
	tap *wiretap
	buf []byte // of a request that has not been written whole
}

func (c *tappedConn) Write(b []byte) (int, error) {
	c.buf = append(c.buf, b...)
	for len(c.buf) >= 4 {
		size := 4 + int(binary.BigEndian.Uint32(c.buf))
		if len(c.buf) < size {
			break
		}
		c.tap.note(c.buf[4:size])
		c.buf = c.buf[size:]
	}
	return c.Conn.Write(b)
}

// note reads a request: key, version, correlation id, client id, (tags,) body.
func (tap *wiretap) note(req []byte) {
	key, version := int16(binary.BigEndian.Uint16(req)), int16(binary.BigEndian.Uint16(req[2:]))
	end := 10 + int(binary.BigEndian.Uint16(req[8:]))
	tap.mu.Lock()
	defer tap.mu.Unlock()
	tap.clients[string(req[10:end])] = true
	if key != kmsg.Fetch.Int16() {
		return
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.SetVersion(version)
	body := req[end:]
	if fetch.IsFlexible() {
		body = body[1:] // the count of tags, of which the client writes none
	}
	if fetch.ReadFrom(append([]byte(nil), body...)) == nil {
		tap.fetches = append(tap.fetches, fetch)
	}
}

// C7: rack, client id, isolation and the limits of a fetch reach the broker as the configuration says.
func TestRackAndFetchLimitsAreInTheRequests(t *testing.T) {
	w := newWorld(t, 2)
	w.produceAll(10, 2)
	l := w.ledger()
	tap := &wiretap{clients: map[string]bool{}}
	c := w.config(l.keep(nil))
	c.ClientID, c.Rack = "tapped", "rack-7"
	c.FetchMinBytes, c.FetchMaxBytes, c.FetchMaxPartitionBytes, c.FetchMaxWait = 3, 1<<20, 1<<16, 123*time.Millisecond
	c.KgoOpts = append(c.KgoOpts, kgo.Dialer(tap.dial))
	m := w.start(c)
	l.reaches(20)
	w.noLagLeft()
	m.stop()

	tap.mu.Lock()
	defer tap.mu.Unlock()
	if len(tap.clients) != 1 || !tap.clients["tapped"] {
		t.Errorf("client ids %v", tap.clients)
	}
	seen := 0
	for _, f := range tap.fetches {
		if f.SessionEpoch == -1 {
			continue // the client's good-bye to the fetch session
		}
		if f.Rack != "rack-7" || f.MinBytes != 3 || f.MaxBytes != 1<<20 || f.MaxWaitMillis != 123 || f.IsolationLevel != 1 {
			t.Fatalf("rack %q, min %d, max %d, wait %d, isolation %d", f.Rack, f.MinBytes, f.MaxBytes, f.MaxWaitMillis, f.IsolationLevel)
		}
		for _, topic := range f.Topics {
			for _, p := range topic.Partitions {
				seen++
				if p.PartitionMaxBytes != 1<<16 {
					t.Fatalf("partition max %d", p.PartitionMaxBytes)
				}
			}
		}
	}
	if seen == 0 {
		t.Errorf("no partition in %d fetches", len(tap.fetches))
	}
}
