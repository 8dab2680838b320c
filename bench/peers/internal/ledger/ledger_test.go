package ledger

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestCountTellsEveryFault(t *testing.T) {
	l := New([]int64{3, 2, 0})
	for _, r := range []struct {
		partition int32
		offset    int64
	}{{0, 0}, {0, 2}, {1, 1}, {0, 2}, {0, 2}, {0, 3}, {1, -1}, {2, 0}, {3, 0}, {-1, 0}} {
		l.Begin()
		l.Done(r.partition, r.offset)
	}
	want := Count{Records: 5, Distinct: 3, Again: 2, Strange: 5}
	if got := l.Count(); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	if wall, cpu := l.Took(); wall != 0 || cpu != 0 {
		t.Errorf("an unfinished run took %v and %v", wall, cpu)
	}
}

func TestWatchSeesTheEndWhateverTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Work{Ledger: New([]int64{100, 50}), Latency: Latency(10 * time.Millisecond)}
		var handlers sync.WaitGroup
		for i := range int64(100) {
			handlers.Go(func() { w.Handle(0, 99-i, nil) })
		}
		handlers.Go(func() {
			for i := range int64(50) {
				w.Handle(1, i, nil)
			}
		})
		if err := w.Watch(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		handlers.Wait()
		if got, want := w.Count(), (Count{Records: 150, Distinct: 150}); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
		// The watch looks each millisecond.
		if wall, _ := w.Took(); wall < 500*time.Millisecond || wall > 502*time.Millisecond {
			t.Errorf("50 handlers of 10 ms, one after the other, took %v", wall)
		}
		if slept, peak := w.Slept(); slept != 1500*time.Millisecond || peak != 101 {
			t.Errorf("handlers slept %v, at most %d at once", slept, peak)
		}
	})
}

func TestWatchGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New([]int64{2})
		l.Begin()
		l.Done(0, 1) // not the first one: the run has not moved
		if err := l.Watch(t.Context(), time.Second); err == nil || !strings.Contains(err.Error(), "after 1 of 2 records") {
			t.Errorf("a run that stands: %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cut := errors.New("cut off")
		cancel(cut)
		if err := l.Watch(ctx, time.Second); !errors.Is(err, cut) {
			t.Errorf("a run that was cut off: %v", err)
		}
	})
}

func TestWorkTakesTheLatencyOfTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Work{Ledger: New([]int64{2}), Latency: Recorded}
		w.Handle(0, 0, []byte{0, 0, 0, 0, 0, 0x2d, 0xc6, 0xc0, 'x'}) // 3,000,000
		w.Handle(0, 1, []byte("short"))
		if slept, peak := w.Slept(); slept != 3*time.Millisecond || peak != 1 {
			t.Errorf("slept %v, at most %d at once", slept, peak)
		}
	})
}
