package dedupe

import (
	"testing"
	"time"
)

// TestSpaceIsBoundedByTheRetention (C5, C7): marks that come at a steady rate for ten retentions take the space of one and a quarter, in keys
// and on the disk: what has ended is removed, and not only hidden.
// Seen at dgraph-io/badger#1124, cockroachdb/pebble#720.
func TestSpaceIsBoundedByTheRetention(t *testing.T) {
	h := newHands()
	o := options(h)
	o.partSize, o.memtable = 500, 64<<10
	s := open(t, "d", o)
	const perStep, steps = 500, 20 // of a retention
	most, mostDisk, after := int64(0), int64(0), int64(0)
	for step := range 10 * steps {
		var done []Completion
		for i := range perStep {
			done = append(done, Completion{Claim: claim(t, s, key(s, step*perStep+i), 1, Mine)})
		}
		s.Mark(done)
		flush(t, s)
		settle(s)
		st := s.Stats()
		most = max(most, st.Keys)
		if step < 2*steps {
			mostDisk = max(mostDisk, st.DiskBytes)
		} else {
			after = max(after, st.DiskBytes)
		}
		h.pass(o.Retention / steps)
	}
	if bound := int64(perStep*steps*3/2 + perStep); most > bound {
		t.Errorf("%d keys at once, want at most %d", most, bound)
	}
	if mostDisk == 0 || after > 2*mostDisk {
		t.Errorf("%d bytes on the disk in the first two retentions, and up to %d later", mostDisk, after)
	}
	h.pass(2 * time.Hour)
	s.q.poke()
	flush(t, s)
	settle(s)
	if st := s.Stats(); st.Keys != 0 {
		t.Errorf("%d keys after the last retention", st.Keys)
	}
}
