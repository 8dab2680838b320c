package engine

import (
	"testing"
	"testing/synctest"
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

// C8, C9: a member that stops is given less of a pause, as its leave waits for the session, but one: what it waits for besides needs time, too.
func TestSessionsArePacedWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Engine{cfg: Config{Protocol: ProtocolConsumer}, stopC: make(chan struct{})}
		begun := time.Now()
		for range 20 {
			e.pace(false)
		}
		if took := time.Since(begun); took < 5*time.Second {
			t.Errorf("20 sessions took %v", took)
		}
		close(e.stopC)
		begun = time.Now()
		for range 100 {
			e.pace(false)
		}
		if took := time.Since(begun); took < 99*firstPause || took > time.Second {
			t.Errorf("100 sessions of a member that stops took %v", took)
		}
	})
}
