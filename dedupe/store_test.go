package dedupe

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestAgainstAModel: whatever the order of marks, forgets, seals, restarts and passing time, the store says what a map says.
func TestAgainstAModel(t *testing.T) {
	h := newHands()
	c := newScript(t, random(t), h)
	c.exact = true
	o := crashOptions(h, vfs.NewMem())
	o.Rows = c.row
	for range 6 {
		s := open(t, "data/store", o)
		for range 10 {
			if err := c.run(s, 8); err != nil {
				t.Fatal(err)
			}
			c.verify(t, s, "opened again")
		}
		s.Close()
	}
}

// TestAnIdleStoreDropsWhatHasEnded, and writes nothing else with it.
// Seen at dgraph-io/badger#1124.
func TestAnIdleStoreDropsWhatHasEnded(t *testing.T) {
	h := newHands()
	o := options(h)
	groups := make(chan struct{}, 10)
	o.Rows = func(func(key, value []byte)) { groups <- struct{}{} }
	s := open(t, "d", o)
	mark(t, s, key(s, 1), 1)
	<-groups
	c := claim(t, s, key(s, 2), 1, Mine)
	h.pass(2 * time.Hour)
	s.q.poke()
	<-groups
	flush(t, s)
	settle(s)
	if st := s.Stats(); st.Keys != 0 || st.Marks != 1 || st.Dropped != 1 {
		t.Errorf("%+v", st)
	}
	claim(t, s, key(s, 2), 1, Busy)
	s.Release(c)
	s.Release(claim(t, s, key(s, 1), 1, Mine))
}

func TestAMarkOutlivesRestartsAndSeals(t *testing.T) {
	h := newHands()
	o := options(h)
	o.partSize = 1000
	const n = 5500
	for run := range 3 {
		s := open(t, "a/b", o)
		for i := range n {
			c, v, err := s.Claim(key(s, i+run*n), 7, Tag{})
			if err != nil || v != Mine {
				t.Fatal(i, v, err)
			}
			s.Mark([]Completion{{Claim: c}})
			if i%100 == 0 {
				flush(t, s)
			}
		}
		flush(t, s)
		settle(s)
		for i := range (run + 1) * n {
			claim(t, s, key(s, i), 7, Seen)
		}
		for i := range 1000 {
			s.Release(claim(t, s, key(s, 1e6+i), 7, Mine))
		}
		t.Log(s.Stats())
		h.pass(17 * time.Minute)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
