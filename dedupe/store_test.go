package dedupe

import (
	"testing"
	"time"
)

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
