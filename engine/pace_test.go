package engine

import (
	"testing"
	"time"
)

// C8, C9: sessions that bring nothing, one at the heels of the other, are given a pause that grows to a second; what a healthy group does is
// given none.
func TestSessionsWithoutEndArePaced(t *testing.T) {
	var p pacer
	now := time.Unix(0, 0)
	begin := func(brings bool, later time.Duration) time.Duration {
		now = now.Add(later)
		wait := p.pause(brings, now)
		now = now.Add(wait)
		return wait
	}
	for range 100 { // heartbeats apart, as in a group at rest; and the two steps of a cooperative rebalance
		if w := begin(false, time.Second) + begin(false, time.Millisecond) + begin(true, time.Millisecond); w != 0 {
			t.Fatalf("a healthy session waited %v", w)
		}
	}
	total, n := time.Duration(0), 0
	for ; total < time.Minute && n < 1000; n++ {
		total += begin(false, 0)
	}
	if n > 80 {
		t.Errorf("%d sessions in %v", n, total)
	}
	if w := begin(false, 0); w != longestPause {
		t.Errorf("after a minute the pause is %v", w)
	}
	if w := begin(true, 0); w != 0 {
		t.Errorf("a session that brings something waited %v", w)
	}
	if w := begin(false, time.Millisecond); w != 0 {
		t.Errorf("the first one after that waited %v", w)
	}
}
