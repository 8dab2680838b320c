package workers

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// thing is the item of most tests: a key, "" for none, and a name.
type thing struct {
	key  string
	name string
}

func thingKey(it *thing) []byte {
	if it.key == "" {
		return nil
	}
	return []byte(it.key)
}

// things makes items of the form "key/name"; without a slash there is no key.
func things(names ...string) (items []thing) {
	for _, s := range names {
		it := thing{name: s}
		for i := range s {
			if s[i] == '/' {
				it.key = s[:i]
			}
		}
		items = append(items, it)
	}
	return items
}

// stage is a pool of things whose handlers stop at gates, and a log of what happened. Tests run it in a synctest bubble:
// synctest.Wait says when everything that can happen has happened.
type stage struct {
	*Pool[thing]
	t testing.TB

	mu       sync.Mutex
	gates    map[string]chan struct{}
	begun    []string // as the handler got them
	seen     int      // of these, by wantBegun
	ended    []string // handler returned
	released []string
	tasks    [][]string
	lows     int
	holds    map[string]Ticket
	onTask   func(t *Task[thing]) // runs instead of passing the gates
}

func newStage(t testing.TB, o Options[thing]) *stage {
	s := &stage{t: t, gates: map[string]chan struct{}{}, holds: map[string]Ticket{}}
	o.Key = thingKey
	o.Handle = s.handle
	o.Release = func(items []thing) {
		for i := range items {
			s.note(&s.released, items[i].name)
		}
	}
	o.Low = func(*Lane[thing]) { s.mu.Lock(); s.lows++; s.mu.Unlock() }
	s.Pool = New(o)
	return s
}

func (s *stage) note(log *[]string, names ...string) {
	s.mu.Lock()
	*log = append(*log, names...)
	s.mu.Unlock()
}

// gate stops the items of these names until open.
func (s *stage) gate(names ...string) {
	s.mu.Lock()
	for _, name := range names {
		s.gates[name] = make(chan struct{})
	}
	s.mu.Unlock()
}

func (s *stage) open(names ...string) {
	s.mu.Lock()
	for _, name := range names {
		close(s.gates[name])
		delete(s.gates, name)
	}
	s.mu.Unlock()
	synctest.Wait()
}

func (s *stage) handle(t *Task[thing]) {
	var names []string
	for i := range t.Len() {
		names = append(names, t.Item(i).name)
	}
	s.note(&s.begun, names...)
	s.mu.Lock()
	s.tasks = append(s.tasks, names)
	onTask := s.onTask
	var gates []chan struct{}
	for _, name := range names {
		if g := s.gates[name]; g != nil {
			gates = append(gates, g)
		}
	}
	s.mu.Unlock()
	for _, g := range gates {
		<-g
	}
	if onTask != nil {
		onTask(t)
	}
	s.note(&s.ended, names...)
}

// hold makes a handler hold the items of these names the first time.
func (s *stage) holdOnce(names ...string) {
	s.onTask = func(t *Task[thing]) {
		for i := range t.Len() {
			if name := t.Item(i).name; slices.Contains(names, name) && !t.Resumed(i) {
				ticket := t.Hold(i, thing{key: t.Item(i).key, name: name}, nil)
				s.mu.Lock()
				s.holds[name] = ticket
				s.mu.Unlock()
			}
		}
	}
}

func (s *stage) want(what string, got []string, want ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// wantBegun compares what has begun so far, in order. With several workers, what has begun since it was last called is compared in order
// by key: handlers of several keys may begin at once.
func (s *stage) wantBegun(want ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	got := slices.Clone(s.begun)
	s.mu.Unlock()
	if s.o.Total > 1 {
		before := min(s.seen, len(got), len(want))
		byKey := func(a, b string) int { return strings.Compare(things(a)[0].key, things(b)[0].key) }
		slices.SortStableFunc(got[before:], byKey)
		slices.SortStableFunc(want[before:], byKey)
	}
	s.seen = len(got)
	s.want("begun", got, want...)
}

// wantReleased compares what has been released so far, in any order.
func (s *stage) wantReleased(want ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	got := slices.Clone(s.released)
	s.mu.Unlock()
	slices.Sort(got)
	slices.Sort(want)
	s.want("released", got, want...)
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
