package kafkatest

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// echo is a server that answers with what it is told, and a proxy in front of it.
func echo(t *testing.T) (*proxy, *Network) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(conn, conn); conn.Close() }()
		}
	}()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(address(ports[0]), server.Addr().String())
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p, &Network{proxies: []*proxy{p}}
}

func dial(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	within(t, conn, time.Minute)
	return conn
}

func within(t *testing.T, conn net.Conn, limit time.Duration) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
}

func say(t *testing.T, conn net.Conn, words string) {
	t.Helper()
	if _, err := io.WriteString(conn, words); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, conn net.Conn, words string) {
	t.Helper()
	heard := make([]byte, len(words))
	if _, err := io.ReadFull(conn, heard); err != nil || string(heard) != words {
		t.Fatalf("heard %q instead of %q: %v", heard, words, err)
	}
}

// silence fails the test if anything, be it the connection's end, comes within a while.
func silence(t *testing.T, conn net.Conn) {
	t.Helper()
	within(t, conn, 200*time.Millisecond)
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("instead of silence: %d bytes, %v", n, err)
	}
	within(t, conn, time.Minute)
}

func TestCutIsSeenAndHeals(t *testing.T) {
	p, network := echo(t)
	conn := dial(t, p)
	say(t, conn, "before")
	hear(t, conn, "before")
	heal := must(t, network.Cut, network.Heal)
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection that is cut ends with %v", err)
	}
	if _, err := net.Dial("tcp", p.listen); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection gave %v", err)
	}
	heal()
	conn = dial(t, p)
	say(t, conn, "after")
	hear(t, conn, "after")
}

// must applies a fault and returns what heals it.
func must(t *testing.T, fault, heal func(...int) error) func() {
	t.Helper()
	if err := fault(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := heal(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBlackholeHoldsWhatIsSaidUntilItHeals(t *testing.T) {
	p, network := echo(t)
	old := dial(t, p)
	say(t, old, "before")
	hear(t, old, "before")
	heal := must(t, network.Blackhole, network.Heal)
	say(t, old, "during")
	silence(t, old)
	fresh := dial(t, p) // is accepted, and that is all
	say(t, fresh, "fresh")
	if err := fresh.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	silence(t, fresh)
	heal()
	hear(t, old, "during")
	hear(t, fresh, "fresh")
	if _, err := fresh.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the end that was held came as %v", err)
	}
}

func TestResetLosesWhatABlackholeHolds(t *testing.T) {
	p, network := echo(t)
	conn := dial(t, p)
	say(t, conn, "before") // for a reset, a connection is there once the broker has answered on it
	hear(t, conn, "before")
	heal := must(t, network.Blackhole, network.Heal)
	say(t, conn, "lost")
	must(t, network.Reset, network.Heal)
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a reset came as %d bytes, %v", n, err)
	}
	heal()
	conn = dial(t, p)
	say(t, conn, "after")
	hear(t, conn, "after")
}

func TestDelayedAnswersComeLaterInOrder(t *testing.T) {
	p, network := echo(t)
	conn := dial(t, p)
	const delay = 50 * time.Millisecond
	if err := network.Delay(delay, delay/2); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	say(t, conn, "one ")
	say(t, conn, "two ")
	say(t, conn, "three")
	hear(t, conn, "one two three")
	if took := time.Since(started); took < 2*delay {
		t.Errorf("there and back took %s", took)
	}
	// Healing ends a delay that has begun.
	if err := network.Delay(time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	say(t, conn, "soon")
	silence(t, conn)
	if err := network.Heal(); err != nil {
		t.Fatal(err)
	}
	hear(t, conn, "soon")
}

func TestLimitEndsAnAnswerInTheMiddle(t *testing.T) {
	p, network := echo(t)
	conn := dial(t, p)
	say(t, conn, "before")
	hear(t, conn, "before")
	if err := network.Limit(4); err != nil {
		t.Fatal(err)
	}
	say(t, conn, "in the middle")
	hear(t, conn, "in t")
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("more came than the limit allows")
	}
	if err := network.Limit(0); err == nil || !strings.Contains(err.Error(), "least is 1") {
		t.Errorf("a limit of nothing gave %v", err)
	}
}

func TestOneBrokerIsCutOff(t *testing.T) {
	first, _ := echo(t)
	second, _ := echo(t)
	network := &Network{proxies: []*proxy{first, second}}
	if err := network.Cut(2); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, first)
	say(t, conn, "one")
	hear(t, conn, "one")
	if _, err := net.Dial("tcp", second.listen); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the broker that is cut off: %v", err)
	}
	if err := network.Cut(3); err == nil || !strings.Contains(err.Error(), "no broker 3") {
		t.Errorf("a broker that does not exist gave %v", err)
	}
	if err := network.Heal(2); err != nil {
		t.Fatal(err)
	}
	conn = dial(t, second)
	say(t, conn, "two")
	hear(t, conn, "two")
}

// A client that reads nothing, as a process that is paused, holds up no fault, nor does its death.
func TestFaultsWaitForNoClient(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	stuck := make(chan struct{})
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for block := make([]byte, 1<<20); ; {
			// Stuck means that every buffer on the way is full.
			_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := conn.Write(block); err != nil {
				close(stuck)
				return
			}
		}
	}()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(address(ports[0]), server.Addr().String())
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	network := &Network{proxies: []*proxy{p}}
	client := dial(t, p)
	<-stuck
	must(t, network.Blackhole, network.Heal)()
	if err := network.Delay(time.Second, 0); err != nil {
		t.Fatal(err)
	}
	reset(client.(*net.TCPConn))
	must(t, network.Blackhole, network.Heal)()
	must(t, network.Cut, network.Heal)()
	p.close()
	if err := network.Heal(); err == nil {
		t.Error("a closed cluster's network was opened")
	}
}
