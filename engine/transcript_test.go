package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
)

// A transcript is a scenario that people can read: commands, and what came of them (testdata/*.txt). `go test -tags synctests
// -run Transcripts -rewrite` writes down what comes of them now. Commands:
//
//	produce p=0            records, one a line ("key=value" has a key)
//	start m [order=key workers=16 attempts=3]
//	script                 "VALUE hold", "VALUE fail [times]", "VALUE fatal", one a line: what handlers do with a record
//	open VALUE ...         lets held records finish
//	advance 1s             lets virtual time pass
//	calls                  what handlers were called with since the last look, sorted
//	committed              the group's offsets, read from the broker by an independent client
//	status m               partitions of a member
//	events m               the events of a member since the last look
//	stop m                 a clean stop
//	dead                   the dead letters so far
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		inWorld(t, 2, func(w *world) {
			s := &theatre{world: w, running: map[string]*member{}, seen: map[string]int{}, gates: map[string]chan struct{}{}, fails: map[string]int{}}
			defer s.openAll()
			datadriven.RunTest(t, path, s.run)
		})
	})
}

// theatre is what a transcript acts on.
type theatre struct {
	*world
	running map[string]*member
	seen    map[string]int // events that were shown

	mu    sync.Mutex
	calls []string
	gates map[string]chan struct{}
	fails map[string]int // -1 = permanently
}

func (s *theatre) handle(name string) HandlerFunc {
	return func(ctx context.Context, r *Record) error {
		v := string(r.Value)
		s.mu.Lock()
		s.calls = append(s.calls, fmt.Sprintf("%s: %s[%d]@%d attempt %d", name, v, r.Partition, r.Offset, r.Attempt))
		gate, fails := s.gates[v], s.fails[v]
		if fails > 0 {
			s.fails[v]--
		}
		s.mu.Unlock()
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		switch {
		case fails < 0:
			return Permanent(errBoom)
		case fails > 0:
			return errBoom
		}
		return nil
	}
}

func (s *theatre) run(t *testing.T, d *datadriven.TestData) string {
	var lines []string
	if d.Input != "" {
		lines = strings.Split(d.Input, "\n")
	}
	var name string
	if len(d.CmdArgs) > 0 {
		name = d.CmdArgs[0].Key
	}
	switch d.Cmd {
	case "produce":
		var p int
		d.ScanArgs(t, "p", &p)
		s.produce(int32(p), lines...)
		return fmt.Sprintf("%d records", len(lines))
	case "start":
		c := s.config(s.handle(name))
		c.Retry.Jitter = -1
		c.DeadLetter.BreakerRatio = 1
		var order string
		if d.HasArg("order") {
			d.ScanArgs(t, "order", &order)
			c.Order = Order(order)
		}
		if d.HasArg("workers") {
			d.ScanArgs(t, "workers", &c.Workers)
		}
		if d.HasArg("attempts") {
			d.ScanArgs(t, "attempts", &c.Retry.Attempts)
		}
		s.running[name] = s.start(c)
		s.settleDown(2 * time.Second)
		return "ready"
	case "script":
		s.script(lines)
		return "ok"
	case "open":
		for _, a := range d.CmdArgs {
			v := a.Key
			if len(a.Vals) > 0 {
				v += "=" + a.Vals[0]
			}
			s.open(v)
		}
		s.settleDown(time.Second)
		return "ok"
	case "advance":
		by, err := time.ParseDuration(name)
		if err != nil {
			t.Fatal(err)
		}
		s.settleDown(by)
		return "ok"
	case "calls":
		s.mu.Lock()
		defer s.mu.Unlock()
		calls := s.calls
		s.calls = nil
		slices.Sort(calls)
		return orNone(calls)
	case "committed":
		return fmt.Sprintf("t[0]: %d\nt[1]: %d", s.committed("t", 0), s.committed("t", 1))
	case "status":
		return s.status(name)
	case "events":
		m := s.running[name]
		m.mu.Lock()
		defer m.mu.Unlock()
		var out []string
		for _, ev := range m.events[s.seen[name]:] {
			if ev.Name != EventRebalanced {
				out = append(out, describe(ev))
			}
		}
		s.seen[name] = len(m.events)
		return orNone(out)
	case "stop":
		m := s.running[name]
		m.cancel()
		if err := <-m.done; err != nil {
			return err.Error()
		}
		s.settleDown(time.Second)
		return "stopped"
	case "dead":
		return s.deadLetters()
	}
	t.Fatalf("no such command: %s", d.Cmd)
	return ""
}

func (s *theatre) settleDown(d time.Duration) {
	time.Sleep(d) // virtual: everything that is due happens
	synctest.Wait()
}

func (s *theatre) script(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lines {
		f := strings.Fields(l)
		switch f[1] {
		case "hold":
			s.gates[f[0]] = make(chan struct{})
		case "fatal":
			s.fails[f[0]] = -1
		case "fail":
			n := 1
			if len(f) > 2 {
				_, _ = fmt.Sscan(f[2], &n)
			}
			s.fails[f[0]] = n
		}
	}
}

func (s *theatre) open(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.gates[v]; g != nil {
		close(g)
		delete(s.gates, v)
	}
}

func (s *theatre) openAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gates {
		close(g)
	}
	s.gates = map[string]chan struct{}{}
}

func (s *theatre) status(name string) string {
	var b strings.Builder
	for _, p := range s.running[name].e.Status().Partitions {
		fmt.Fprintf(&b, "t[%d] %s frontier=%d committed=%d position=%d waiting=%d running=%d parked=%d", p.Partition, p.Phase, p.Frontier, p.Committed, p.Position, p.Waiting, p.InFlight, p.Parked)
		if p.Oldest != nil {
			fmt.Fprintf(&b, " oldest=%d %s", p.Oldest.Offset, p.Oldest.State)
		}
		if len(p.Paused) > 0 {
			fmt.Fprintf(&b, " paused=%v", p.Paused)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func describe(ev Event) string {
	out := string(ev.Name)
	if ev.Topic != "" && ev.Partition >= 0 {
		out += fmt.Sprintf(" %s[%d]@%d", ev.Topic, ev.Partition, ev.Offset)
	}
	if ev.Err != nil {
		out += ": " + ev.Err.Error()
	}
	return out
}

func (s *theatre) deadLetters() string {
	offsets, err := s.adm.ListEndOffsets(context.Background(), "t.dlq")
	if err != nil {
		return err.Error()
	}
	n := int64(0)
	for _, p := range offsets["t.dlq"] {
		n += p.Offset
	}
	var out []string
	for _, r := range s.dead("t.dlq", int(n)) {
		out = append(out, fmt.Sprintf("%s from %s[%s]@%s after %s attempts: %s", r.Value, header(r, HeaderTopic), header(r, HeaderPartition), header(r, HeaderOffset), header(r, HeaderAttempts), header(r, HeaderError)))
	}
	slices.Sort(out)
	return orNone(out)
}

func orNone(lines []string) string {
	if len(lines) == 0 {
		return "(none)"
	}
	return strings.Join(lines, "\n")
}
