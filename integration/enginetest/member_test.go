package enginetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// member is a running engine and what it has told.
type member struct {
	w      *world
	e      *engine.Engine
	cancel context.CancelFunc
	done   chan struct{}
	err    error // what Run returned; to be read after done

	mu      sync.Mutex
	events  []engine.Event
	times   []time.Time   // of the events
	changed chan struct{} // closed and replaced with every event
}

// start runs an engine until the test ends, and returns when its checks at start have passed.
func (w *world) start(c engine.Config) *member {
	w.Helper()
	m := w.launch(c)
	select {
	case <-m.e.Ready():
	case <-m.done:
		w.Fatalf("Run returned at once: %v", m.err)
	case <-time.After(patience):
		w.Fatalf("the engine is not ready: %v", m.told())
	}
	return m
}

// launch runs an engine, which may well fail to start.
func (w *world) launch(c engine.Config) *member {
	w.Helper()
	m := &member{w: w, done: make(chan struct{}), changed: make(chan struct{})}
	c.OnEvent = m.note
	var err error
	if m.e, err = engine.New(c); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() { defer close(m.done); m.err = m.e.Run(ctx) }()
	w.Cleanup(func() { // what a failed test left running
		cancel()
		ctx, end := context.WithTimeout(context.Background(), 5*time.Second)
		defer end()
		_ = m.e.Stop(ctx)
		select {
		case <-m.done:
		case <-time.After(patience):
			w.Errorf("Run has not returned: %v", m.told())
		}
		if w.Failed() {
			w.Logf("a member told:\n%s", strings.Join(m.told(), "\n"))
		}
	})
	return m
}

// stop ends the member cleanly: it drains, commits and leaves.
func (m *member) stop() {
	m.w.Helper()
	m.cancel()
	if err := m.ended(); err != nil {
		m.w.Errorf("Run: %v", err)
	}
}

// becomesHealthy waits until nothing speaks against the member's being well.
func (m *member) becomesHealthy() {
	m.w.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		ok, problems := m.e.Healthy()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			m.w.Fatalf("not healthy: %v", problems)
		}
	}
}

// commit commits on demand what is settled now.
func (m *member) commit() {
	m.w.Helper()
	ctx, cancel := patient()
	defer cancel()
	if err := m.e.Commit(ctx); err != nil {
		m.w.Error(err)
	}
}

// ended waits for Run and returns its error.
func (m *member) ended() error {
	m.w.Helper()
	select {
	case <-m.done:
		return m.err
	case <-time.After(patience):
		m.w.Fatalf("Run has not returned: %v", m.told())
		return nil
	}
}

func (m *member) note(ev engine.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, ev)
	m.times = append(m.times, time.Now())
	close(m.changed)
	m.changed = make(chan struct{})
}

// when waits until cond holds of what the member has told.
func (m *member) when(what string, cond func([]engine.Event) bool) {
	m.w.Helper()
	timeout := time.After(patience)
	for {
		m.mu.Lock()
		ok, changed := cond(m.events), m.changed
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-m.done:
			m.w.Fatalf("Run returned (%v) before: %s", m.err, what)
		case <-timeout:
			m.w.Fatalf("never: %s", what)
		}
	}
}

// await returns the first event that matches, past or to come.
func (m *member) await(what string, match func(engine.Event) bool) (found engine.Event) {
	m.w.Helper()
	m.when(what, func(evs []engine.Event) bool {
		for _, ev := range evs {
			if match(ev) {
				found = ev
				return true
			}
		}
		return false
	})
	return found
}

// hears waits for an event of that name.
func (m *member) hears(n engine.EventName) engine.Event {
	m.w.Helper()
	return m.await("event "+string(n), func(ev engine.Event) bool { return ev.Name == n })
}

// owns waits until the member has so many partitions, and knows where each of them begins.
func (m *member) owns(n int) {
	m.w.Helper()
	m.when(fmt.Sprintf("%d partitions", n), func(evs []engine.Event) bool { return len(ownedAfter(evs)) == n })
}

// owned is the member's assignment, as its events tell it: partition and the offset that it began at.
func (m *member) owned() map[int32]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return ownedAfter(m.events)
}

func ownedAfter(evs []engine.Event) map[int32]int64 {
	owned := map[int32]int64{}
	for _, ev := range evs {
		switch ev.Name {
		case engine.EventAssigned:
			owned[ev.Partition] = ev.Offset
		case engine.EventRevoked, engine.EventReleased, engine.EventLost:
			delete(owned, ev.Partition)
		}
	}
	return owned
}

// all is what the member has told so far.
func (m *member) all() []engine.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

// count is how many events of that name were told so far.
func (m *member) count(n engine.EventName) (c int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ev := range m.events {
		if ev.Name == n {
			c++
		}
	}
	return c
}

func (m *member) told() (lines []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, ev := range m.events {
		line := fmt.Sprintf("%s %s [%d]@%d", m.times[i].Format("05.000"), ev.Name, ev.Partition, ev.Offset)
		if ev.Count != 0 {
			line += fmt.Sprintf(" count %d", ev.Count)
		}
		if ev.Err != nil {
			line += " " + ev.Err.Error()
		}
		if ev.Hint != "" {
			line += " (" + ev.Hint + ")"
		}
		lines = append(lines, line)
	}
	return lines
}

// partition is the member's status of a partition.
func (m *member) partition(p int32) engine.PartitionStatus {
	for _, s := range m.e.Status().Partitions {
		if s.Partition == p {
			return s
		}
	}
	return engine.PartitionStatus{Partition: -1, Phase: "not assigned"}
}

// quiet fails the test if the member told any of these.
func (m *member) quiet(names ...engine.EventName) {
	m.w.Helper()
	for _, n := range names {
		if c := m.count(n); c > 0 {
			m.w.Errorf("event %s came %d times: %v", n, c, m.told())
		}
	}
}
