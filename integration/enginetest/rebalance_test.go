package enginetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// protocols are the ways a group can share its partitions out.
var protocols = []struct {
	name string
	set  func(*engine.Config)
}{
	{"cooperative-sticky", func(*engine.Config) {}},
	{"range", func(c *engine.Config) { c.Balancer = engine.BalancerRange }},
	{"KIP-848", func(c *engine.Config) { c.Protocol = engine.ProtocolConsumer }},
}

func inEachProtocol(t *testing.T, test func(t *testing.T, set func(*engine.Config))) {
	for _, p := range protocols {
		if p.name == "KIP-848" && onOlder(t) {
			continue // see testOlderKafkaRefusesTheConsumerProtocol
		}
		t.Run(p.name, func(t *testing.T) { test(t, p.set) })
	}
}

// inBothProtocols leaves range out where the client does the same as with cooperative-sticky.
func inBothProtocols(t *testing.T, test func(t *testing.T, set func(*engine.Config))) {
	for _, p := range protocols {
		if p.name == "range" || p.name == "KIP-848" && onOlder(t) {
			continue
		}
		t.Run(p.name, func(t *testing.T) { test(t, p.set) })
	}
}

// C3, C6, C8: two members join one that works, and leave again, while records keep coming. Partitions move cleanly: nothing is
// lost, nothing comes twice, and the order of keys holds across the moves.
func TestMembersJoinAndLeave(t *testing.T) {
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		w := newWorld(t, 6)
		l := w.ledger()
		work := func(_ context.Context, _ *engine.Record) error {
			time.Sleep(time.Millisecond) // work, so that there always are running handlers when partitions move
			return nil
		}
		c := w.config(l.inOrder(byKey, work))
		set(&c)
		stream := w.stream(20)

		a := w.start(c)
		a.owns(6)
		l.reaches(300)
		b := w.start(c)
		b.owns(3)
		a.owns(3)
		d := w.start(c)
		for _, m := range []*member{a, b, d} {
			m.owns(2)
		}
		now := l.handled()
		l.reaches(now + 300)
		b.stop()
		a.owns(3)
		d.owns(3)
		a.stop() // the first one, which led the group
		d.owns(6)
		now = l.handled()
		l.reaches(now + 300)

		n := stream.end()
		l.reaches(int(n * 6))
		w.noLagLeft()
		d.stop()
		l.eachOnce(n)
		l.orderly()
		for _, m := range []*member{a, b, d} {
			m.quiet(engine.EventLost, engine.EventSuspended, engine.EventSessionEnded, engine.EventCommitFailed)
		}
	})
}

// stream produces to all partitions until it is ended.
type stream struct {
	w    *world
	stop chan struct{}
	n    chan int64
}

func (w *world) stream(keys int) *stream {
	s := &stream{w: w, stop: make(chan struct{}), n: make(chan int64, 1)}
	w.Cleanup(func() { s.end() })
	go func() {
		var n int64
		defer func() { s.n <- n; close(s.n) }()
		tick := time.NewTicker(10 * time.Millisecond) // some thousand records a second: the broker shares the machine
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
			for p := range w.parts {
				var values []string
				for i := range int64(5) {
					values = append(values, fmt.Sprintf("k%d=%d", (n+i)%int64(keys), n+i))
				}
				ctx, cancel := patient()
				err := w.cl.ProduceSync(ctx, w.records(p, values...)...).FirstErr()
				cancel()
				if err != nil {
					w.Errorf("produce: %v", err)
					return
				}
			}
			n += 5
		}
	}()
	return s
}

// end stops producing and says how many records each partition got.
func (s *stream) end() int64 {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	return <-s.n
}

// C1, C2: a restart goes on where the group committed, and each stop commits all that is settled.
func TestRestartContinuesWhereCommitted(t *testing.T) {
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		w := newWorld(t, 3)
		l := w.ledger()
		c := w.config(l.keep(nil))
		c.Commit.Interval = time.Hour // only the stop commits
		set(&c)
		for run := range 3 {
			w.produceAll(50, 5)
			m := w.start(c)
			m.owns(3)
			l.reaches((run + 1) * 150)
			for p, at := range m.owned() {
				if want := int64(run * 50); at != want {
					t.Errorf("run %d: partition %d began at %d, not at %d", run, p, at, want)
				}
			}
			m.stop()
			for p := range w.parts {
				if at := w.committed(p); at != int64(run+1)*50 {
					t.Errorf("run %d: partition %d: committed %d on stop", run, p, at)
				}
			}
		}
		l.eachOnce(150)
	})
}

// C8: a stop waits for running handlers, not for what has not started. What it gave up comes again, and only that.
func TestStopLeavesWhatHasNotStarted(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, keyed(100, 100)...)
	l := w.ledger()
	g := w.newGate()
	c := w.config(l.keep(func(_ context.Context, r *engine.Record) error { g.wait(r); return nil }))
	c.Workers = 4
	m := w.start(c)
	g.reached(w, 4)
	m.cancel()
	m.hears(engine.EventStopping)
	w.eventually("the partition drains", func() bool { return m.partition(0).Phase == "draining" })
	g.lift()
	m.stop()
	if at := w.committed(0); at != 4 || l.handled() != 4 {
		t.Errorf("committed %d, handled %d; 4 handlers ran at the stop", at, l.handled())
	}
	m = w.start(c)
	l.reaches(100)
	w.noLagLeft()
	m.stop()
	l.eachOnce(100)
}
