package dedupe

import (
	"testing"
)

// The set of reservations does what a map does, also where keys share their place and the table wraps around.
func TestReservations(t *testing.T) {
	rnd := random(t)
	var set reservations
	twin := map[Key]uint64{}
	tags := map[Key]*[]Tag{}
	for token := uint64(1); token < 20_000; token++ {
		var k Key
		k[4], k[15] = byte(rnd.IntN(24)), byte(rnd.IntN(4)) // many on few places, at both ends of the table
		if rnd.IntN(2) == 0 {
			k[4] |= 0xf0
		}
		r := set.find(&k)
		if (r != nil) != (twin[k] != 0) || r != nil && (r.token != twin[k] || r.key != k || r.waiters != tags[k]) {
			t.Fatalf("%x: %+v, want token %d", k, r, twin[k])
		}
		switch {
		case r == nil:
			set.add(&k, token)
			twin[k] = token
		case rnd.IntN(3) == 0:
			r.waiters = &[]Tag{{Seq: token}}
			tags[k] = r.waiters
		default:
			if w := set.remove(&k); w != tags[k] {
				t.Fatalf("%x: waiters %v, want %v", k, w, tags[k])
			}
			delete(twin, k)
			delete(tags, k)
		}
		if set.n != len(twin) {
			t.Fatalf("%d held, want %d", set.n, len(twin))
		}
	}
	var none Key
	none[15] = 9
	if set.remove(&none) != nil || set.find(&none) != nil {
		t.Error("a key that nobody holds was found")
	}
}
