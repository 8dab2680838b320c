package dedupe

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// worker runs a key as the engine would: claim, wait where it is busy, run, mark or release.
type workers struct {
	s    *Store
	mu   sync.Mutex
	free map[Tag]chan struct{}
}

func (w *workers) freed(tags []Tag) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tag := range tags {
		close(w.free[tag])
		delete(w.free, tag)
	}
}

func (w *workers) run(t *testing.T, k Key, tag Tag, handle func() bool) Verdict {
	for {
		c := make(chan struct{})
		w.mu.Lock()
		w.free[tag] = c
		w.mu.Unlock()
		claim, v, err := w.s.Claim(k, 1, tag)
		if err != nil {
			t.Error(err)
			return v
		}
		switch v {
		case Busy:
			<-c
		case Mine:
			if !handle() {
				w.s.Release(claim)
				return 0
			}
			w.s.Mark([]Completion{{claim, tag}})
			return Mine
		default:
			return v
		}
	}
}

// TestOfAThousandCopiesOneRuns (C5), and after a failure exactly one more.
// Seen at rudderlabs/rudder-server#5602.
func TestOfAThousandCopiesOneRuns(t *testing.T) {
	for _, failures := range []int64{0, 1, 3} {
		w := &workers{free: map[Tag]chan struct{}{}}
		o := options(newHands())
		o.OnFree = w.freed
		w.s = open(t, "d", o)
		k := key(w.s, 1)
		var runs, running, seen atomic.Int64
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				v := w.run(t, k, Tag{1, uint64(i)}, func() bool {
					if running.Add(1) != 1 {
						t.Error("two at once")
					}
					defer running.Add(-1)
					return runs.Add(1) > failures
				})
				if v == Seen {
					seen.Add(1)
				}
			})
		}
		wg.Wait()
		if runs.Load() != failures+1 || seen.Load() != 999-failures {
			t.Errorf("%d runs, %d seen, after %d failures", runs.Load(), seen.Load(), failures)
		}
		flush(t, w.s)
		if held := w.s.Stats().Held; held != 0 {
			t.Errorf("%d are held", held)
		}
	}
}

// TestOnlyTheOwnerReleases (C5): a claim that has ended, and one that was never held, release nothing and leave no mark.
// Seen at rudderlabs/rudder-server#5602.
func TestOnlyTheOwnerReleases(t *testing.T) {
	s := open(t, "d", options(newHands()))
	k := key(s, 1)
	old := claim(t, s, k, 1, Mine)
	s.Release(old)
	c := claim(t, s, k, 1, Mine)
	s.Release(old)
	s.Release(Claim{})
	claim(t, s, k, 1, Busy)
	s.Mark([]Completion{{Claim: old}}) // leaves no mark
	flush(t, s)
	claim(t, s, k, 1, Busy)
	s.Mark([]Completion{{Claim: c}})
	flush(t, s)
	s.Release(c)
	claim(t, s, k, 1, Seen)
	if st := s.Stats(); st.Stale != 3 {
		t.Errorf("%d stale claims, want 3", st.Stale)
	}
}

// TestMarkedIsNotReleased (C5): from Mark on a claim ends when its mark is durable, and not before: a copy that ran meanwhile would be
// the second one that succeeds.
func TestMarkedIsNotReleased(t *testing.T) {
	o := options(newHands())
	o.MaxDelay = time.Hour
	s := open(t, "d", o)
	k := key(s, 1)
	c := claim(t, s, k, 1, Mine)
	s.Mark([]Completion{{Claim: c}})
	s.Release(c)
	claim(t, s, k, 1, Busy)
	flush(t, s)
	claim(t, s, k, 1, Seen)
	if st := s.Stats(); st.Stale != 1 {
		t.Errorf("%d stale claims, want 1", st.Stale)
	}
}

func TestPayloadsOfOneKeyAreToldApart(t *testing.T) {
	s := open(t, "d", options(newHands()))
	k := key(s, 1)
	a, b := s.Fingerprint([]byte("a")), s.Fingerprint([]byte("b"))
	mark(t, s, k, a)
	claim(t, s, k, a, Seen)
	s.Release(claim(t, s, k, b, Differs))
	claim(t, s, k, a, Seen)
	c := claim(t, s, k, b, Differs)
	claim(t, s, k, a, Busy)
	s.Mark([]Completion{{Claim: c}})
	flush(t, s)
	claim(t, s, k, b, Seen)
	c, v, err := s.ClaimAnew(k, b, Tag{})
	if v != Mine || err != nil {
		t.Fatal(v, err)
	}
	s.Release(c)
	claim(t, s, k, b, Seen)
}

// TestKeysOfAllShapesAreThemselves: nothing of a key is cut off or mixed up with its scope.
func TestKeysOfAllShapesAreThemselves(t *testing.T) {
	s := open(t, "d", options(newHands()))
	big := bytes.Repeat([]byte{7}, 1<<20)
	raw := [][]byte{{}, {0}, {0, 0}, []byte("a"), []byte("ab"), []byte("abc"), big, big[:1<<20-1], big[:240], big[:241], big[:239]}
	seen := map[Key]int{}
	for _, name := range []string{"", "a", "ab", "t", "t\x00"} {
		for i, b := range raw {
			k := s.Scope(name).Key(b)
			if j, ok := seen[k]; ok {
				t.Errorf("keys %d and %d are one, in %q", i, j, name)
			}
			seen[k] = i
			mark(t, s, k, uint64(i))
			if s.Scope(name).Key(b) != k {
				t.Error("a key has two values")
			}
		}
	}
	if s.Scope("t").Key(nil) != s.Scope("t").Key([]byte{}) {
		t.Error("nil and empty differ")
	}
	for k, i := range seen {
		claim(t, s, k, uint64(i), Seen)
	}
	other := open(t, "e", options(newHands()))
	if other.Scope("t").Key(raw[3]) == s.Scope("t").Key(raw[3]) || other.Fingerprint(big) == s.Fingerprint(big) {
		t.Error("another store hashes alike")
	}
	if n := testing.AllocsPerRun(100, func() { s.Scope("t").Key(raw[3]); s.Fingerprint(big[:1000]) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestForgetting(t *testing.T) {
	ctx := context.Background()
	h := newHands()
	o := options(h)
	o.partSize = 10
	s := open(t, "d", o)
	for i := range 100 {
		mark(t, s, key(s, i), 1)
	}
	settle(s)
	if err := s.Forget(ctx, key(s, 3), key(s, 99), key(s, 1000)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also after a restart
		for i := range 100 {
			if i == 3 || i == 99 {
				s.Release(claim(t, s, key(s, i), 1, Mine))
			} else {
				claim(t, s, key(s, i), 1, Seen)
			}
		}
		s.Close()
		s = open(t, "d", o)
	}
	mark(t, s, key(s, 3), 2)
	claim(t, s, key(s, 3), 2, Seen)

	other := s.Scope("other").Key([]byte("x"))
	mark(t, s, other, 1)
	scope := s.Scope("t")
	if err := s.ForgetScope(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for i := range 100 {
			s.Release(claim(t, s, key(s, i), 1, Mine))
		}
		claim(t, s, other, 1, Seen)
		if scope.Key([]byte("1")) == (Key{}) {
			t.Error("no key")
		}
		s.Close()
		s = open(t, "d", o)
	}
}

func TestRowsGoWithTheGroup(t *testing.T) {
	ctx := context.Background()
	var value atomic.Pointer[string]
	o := options(newHands())
	o.Rows = func(put func(key, value []byte)) {
		if v := value.Load(); v != nil {
			put([]byte("p0"), []byte(*v))
			put([]byte("p1"), []byte{})
		}
	}
	s := open(t, "d", o)
	v := "one"
	value.Store(&v)
	s.Touch()
	flush(t, s)
	seq := s.Seq()
	value.Store(nil)
	id := s.ID()
	s.Close()
	s = open(t, "d", o)
	if got, ok, err := s.Row([]byte("p0")); string(got) != "one" || !ok || err != nil {
		t.Error(got, ok, err)
	}
	if got, ok, err := s.Row([]byte("p1")); got == nil || !ok || err != nil {
		t.Error(got, ok, err)
	}
	n := 0
	if err := s.EachRow([]byte("p"), func(k, v []byte) bool { n++; return true }); err != nil || n != 2 {
		t.Error(n, err)
	}
	if s.ID() != id || s.Seq() != seq+1 { // Close wrote one
		t.Error("the store is another one")
	}
	seq = s.Seq()
	if err := s.DeleteRow(ctx, []byte("p0")); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Row([]byte("p0")); ok || err != nil {
		t.Error(ok, err)
	}
	if s.Seq() != seq+1 {
		t.Errorf("group %d, want %d", s.Seq(), seq+1)
	}
}
