package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// C8: an attempt that the engine ended (here: a suspension) is not the record's fault, whatever error the handler makes
// of it: it is neither counted nor dead-lettered, and the record is tried again.
func TestEndedAttemptsDoNotCount(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.produce(0, "v")
		begun := make(chan struct{})
		var attempts []int
		c := brisk(w.config(func(ctx context.Context, r *Record) error {
			if attempts = append(attempts, r.Attempt); len(attempts) > 1 {
				return nil
			}
			close(begun)
			<-ctx.Done()
			return Permanent(fmt.Errorf("rpc: %v", ctx.Err())) // wraps nothing
		}))
		c.Retry.Attempts = 1
		m := w.start(c)
		<-begun
		m.e.clock.judge(true)
		m.e.clock.judge(false)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		if n := m.count(EventRetryExhausted) + m.count(EventDeadLettered); n != 0 || !slices.Equal(attempts, []int{1, 1}) {
			t.Errorf("given up: %v; attempts %v", m.names(), attempts)
		}
		m.stop()
	})
}

type brokenError struct{ inner *int }

func (b *brokenError) Error() string { return fmt.Sprint(*b.inner) }

// An error whose text can't be had, and a classifier that panics, are errors like any other and not the end of the process.
func TestBrokenErrors(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.produce(0, "typed nil", "classify")
		c := w.config(func(_ context.Context, r *Record) error {
			if string(r.Value) == "classify" {
				return errBoom
			}
			var b *brokenError
			return b
		})
		c.Retry.Attempts = 1
		c.Retry.Classify = func(err error) error {
			if errors.Is(err, errBoom) {
				panic("classifier")
			}
			return err
		}
		m := w.start(c)
		w.eventually("both are given up", func() bool { return w.committed("t", 0) == 2 })
		m.stop()
		w.dead("t.dlq", 2)
	})
}

// Steering nothing is nothing: `return Permanent(do())` is right when do succeeds.
func TestSteeringNil(t *testing.T) {
	for _, err := range []error{Permanent(nil), RetryAfter(time.Second, nil), Hold(nil), End(nil)} {
		if err != nil {
			t.Error(err)
		}
	}
}
