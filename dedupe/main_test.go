package dedupe

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
		return
	}
	code := m.Run()
	// Where a manifest could not be written, goroutines are stopped for good, and so is what waits for them: see fatalf.
	if code == 0 && left.Load() == 0 {
		if err := goleak.Find(goleak.IgnoreTopFunction("github.com/gaplesshq/gapless/dedupe.(*Store).stopHere")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// random returns a source whose seed is printed, and can be given with GAPLESS_SEED.
func random(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("GAPLESS_SEED"); v != "" {
		seed, _ = strconv.ParseUint(v, 10, 64)
	}
	t.Logf("GAPLESS_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// everyOperation says whether tests that sample the file system's operations take each of them: GAPLESS_EVERY_OPERATION is set.
func everyOperation() bool { return os.Getenv("GAPLESS_EVERY_OPERATION") != "" }

// hands is a clock that stands still until a test moves it: a wall clock and a monotonic one.
type hands struct {
	mu   sync.Mutex
	wall time.Time
	mono time.Duration
}

func newHands() *hands { return &hands{wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (h *hands) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wall
}

func (h *hands) elapsed() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mono
}

// pass lets time pass; set moves the wall clock only.
func (h *hands) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall = h.wall.Add(d)
	h.mono += d
}

func (h *hands) set(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall = h.wall.Add(d)
}

// options are for a store in memory whose clock is still.
func options(h *hands) Options {
	return Options{
		FS: vfs.NewMem(), Now: h.now, elapsed: h.elapsed,
		Retention: time.Hour, MaxDelay: -1, pause: time.Millisecond,
	}
}

func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func flush(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// settle waits until the sealer has nothing to do.
func settle(s *Store) {
	c := &s.sealer
	for {
		c.mu.Lock()
		n, less := len(c.jobs), c.less
		c.mu.Unlock()
		if n == 0 || s.health.fatal.Load() != nil {
			return
		}
		<-less
	}
}

func claim(t testing.TB, s *Store, k Key, fp uint64, want Verdict) Claim {
	t.Helper()
	c, v, err := s.Claim(k, fp, Tag{})
	if err != nil {
		t.Fatal(err)
	}
	if v != want {
		t.Fatalf("claim of %x: %v, want %v", k[:4], v, want)
	}
	return c
}

// mark makes a key durable.
func mark(t testing.TB, s *Store, k Key, fp uint64) {
	t.Helper()
	s.Mark([]Completion{{Claim: claim(t, s, k, fp, Mine)}})
	flush(t, s)
}

func key(s *Store, i int) Key { return s.Scope("t").Key([]byte(strconv.Itoa(i))) }
