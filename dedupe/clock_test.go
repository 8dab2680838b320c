package dedupe

import (
	"context"
	"testing"
	"time"
)

// restart closes a store and opens it again.
func restart(t *testing.T, s *Store, o Options) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, s.Dir(), o)
}

func TestRetentionCountsFromTheFirstMark(t *testing.T) {
	h := newHands()
	o := options(h)
	s := open(t, "d", o)
	mark(t, s, key(s, 1), 1)
	for range 59 {
		h.pass(time.Minute)
		claim(t, s, key(s, 1), 1, Seen)
		s = restart(t, s, o)
	}
	h.pass(time.Minute - time.Millisecond)
	claim(t, s, key(s, 1), 1, Seen)
	info, ok, err := s.Get(key(s, 1))
	if !ok || err != nil || info.Expires.Sub(info.At) != time.Hour {
		t.Error(info, ok, err)
	}
	h.pass(time.Millisecond)
	s.Release(claim(t, s, key(s, 1), 1, Mine))
	h.pass(16 * time.Minute)
	s.Touch()
	flush(t, s)
	settle(s)
	if st := s.Stats(); st.Buckets != 0 || st.Dropped != 1 {
		t.Errorf("%d buckets, %d dropped", st.Buckets, st.Dropped)
	}
}

func TestASetClockExpiresAndRevivesNothing(t *testing.T) {
	for _, d := range []time.Duration{-time.Hour, -50 * 365 * 24 * time.Hour, time.Hour, 70 * 365 * 24 * time.Hour} {
		h := newHands()
		o := options(h)
		s := open(t, "d", o)
		mark(t, s, key(s, 1), 1)
		h.pass(30 * time.Minute)
		mark(t, s, key(s, 2), 1)
		h.set(d)
		claim(t, s, key(s, 1), 1, Seen)
		mark(t, s, key(s, 3), 1)
		h.pass(30 * time.Minute)
		s.Release(claim(t, s, key(s, 1), 1, Mine))
		claim(t, s, key(s, 2), 1, Seen)
		claim(t, s, key(s, 3), 1, Seen)
		if d < 0 { // a step forward between runs cannot be told from downtime; a stream time can
			s = restart(t, s, o)
			s.Release(claim(t, s, key(s, 1), 1, Mine))
			claim(t, s, key(s, 2), 1, Seen)
			h.pass(30*time.Minute + time.Millisecond)
			s.Release(claim(t, s, key(s, 2), 1, Mine))
		}
		s.Close()
	}
}

func TestMarksAgeByTheStream(t *testing.T) {
	h := newHands()
	o := options(h)
	s := open(t, "d", o)
	begin := h.now().Add(-48 * time.Hour)
	s.Observe(begin)
	mark(t, s, key(s, 1), 1)
	h.pass(24 * time.Hour) // the consumer is slow, or was down
	s = restart(t, s, o)
	claim(t, s, key(s, 1), 1, Seen)
	s.Observe(h.now().Add(1000 * time.Hour)) // a future time is none
	claim(t, s, key(s, 1), 1, Seen)
	if s.Stats().FutureTimes != 1 {
		t.Error("a future time was taken")
	}
	for i := range 96 {
		s.Observe(begin.Add(time.Duration(i) * time.Hour))
	}
	s.Release(claim(t, s, key(s, 1), 1, Mine))
}

func TestRetentionMayChange(t *testing.T) {
	h := newHands()
	o := options(h)
	s := open(t, "d", o)
	mark(t, s, key(s, 1), 1)
	o.Retention = 10 * time.Minute
	s = restart(t, s, o)
	mark(t, s, key(s, 2), 1)
	h.pass(11 * time.Minute)
	claim(t, s, key(s, 1), 1, Seen)
	s.Release(claim(t, s, key(s, 2), 1, Mine))
	o.Retention = 1000 * time.Hour
	s = restart(t, s, o)
	mark(t, s, key(s, 3), 1)
	h.pass(2 * time.Hour)
	s.Release(claim(t, s, key(s, 1), 1, Mine))
	claim(t, s, key(s, 3), 1, Seen)
	s.Touch()
	flush(t, s)
	settle(s)
	if st := s.Stats(); st.Buckets != 1 {
		t.Errorf("%d buckets live", st.Buckets)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{Retention: -1}, {Retention: 1}, {Retention: MaxRetention + 1}, {MaxGroup: -1}, {MaxPending: -1}, {CloseTimeout: -1}} {
		if s, err := Open("d", o); err == nil {
			s.Close()
			t.Errorf("%+v passes", o)
		}
	}
	for _, r := range []time.Duration{time.Millisecond, MaxRetention} {
		h := newHands()
		o := options(h)
		o.Retention = r
		s := open(t, "d", o)
		mark(t, s, key(s, 1), 1)
		claim(t, s, key(s, 1), 1, Seen)
		h.pass(r + r/1e6)
		claim(t, s, key(s, 1), 1, Mine)
		s.Close()
	}
}

// C5: what was forgotten stays so where the retention was longer when it was marked than when it was forgotten.
func TestForgottenOutlivesTheMark(t *testing.T) {
	h := newHands()
	o := options(h)
	o.Retention = 7 * 24 * time.Hour
	s := open(t, "d", o)
	mark(t, s, key(s, 1), 1)
	mark(t, s, key(s, 2), 1)
	o.Retention = time.Hour
	s = restart(t, s, o)
	if err := s.Forget(context.Background(), key(s, 1)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also after a restart
		h.pass(2 * time.Hour)
		s.Touch()
		flush(t, s)
		settle(s)
		s.Release(claim(t, s, key(s, 1), 1, Mine))
		claim(t, s, key(s, 2), 1, Seen)
		s = restart(t, s, o)
	}
	h.pass(9 * 24 * time.Hour)
	s.Touch()
	flush(t, s)
	settle(s)
	if st := s.Stats(); st.Buckets != 0 {
		t.Errorf("%d buckets live", st.Buckets)
	}
}
