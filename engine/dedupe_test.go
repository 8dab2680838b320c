package engine

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// stored is a configuration with a dedupe store on a disk of its own.
func (w *world) stored(h HandlerFunc, disk vfs.FS) Config {
	c := w.config(h)
	c.Dedupe = Dedupe{Dir: "/dedupe", Key: RecordKey, FS: disk}
	return c
}

// C5: a producer's duplicate at another offset is settled without its handler, also after a restart with the same store.
func TestBusinessKeyIsHandledOnce(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var log callLog
		disk := vfs.NewMem()
		c := w.stored(func(_ context.Context, r *Record) error { log.add(r); return nil }, disk)
		w.produce(0, "a=1", "b=1", "a=1", "no key", "no key")
		m := w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 5 })
		m.stop()
		w.produce(0, "a=1", "c=1", "b=1")
		m = w.start(c)
		w.eventually("committed", func() bool { return w.committed("t", 0) == 8 })
		m.stop()
		counts := map[string]int{}
		for _, v := range log.all() {
			counts[v]++
		}
		if counts["a=1"] != 1 || counts["b=1"] != 1 || counts["c=1"] != 1 || counts["no key"] != 2 {
			t.Errorf("%v", counts)
		}
	})
}

// C5, C6: a second copy in flight waits for the first, without a worker. It is settled when the first's mark is durable, and runs
// if the first fails.
func TestSecondCopyInFlightWaits(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		var log callLog
		g := w.shut("x=1", "y=1")
		fail := map[string]bool{"y=1": true}
		c := w.stored(func(ctx context.Context, r *Record) error {
			log.add(r)
			if err := g.pass(ctx, r); err != nil {
				return err
			}
			if fail[string(r.Value)] { // one handler of a key at a time
				fail[string(r.Value)] = false
				return errBoom
			}
			return nil
		}, vfs.NewMem())
		c.Order, c.Dedupe.Scope, c.Workers = OrderUnordered, "all", 3
		c.Retry.Base = time.Minute
		c.Retry.Max = time.Minute
		m := w.start(c)
		w.produce(0, "x=1", "x=1", "x=1", "other=1")
		w.produce(1, "y=1", "y=1", "more=1")
		w.eventually("the rest is handled, and two copies wait without a worker", func() bool { return log.len() == 4 && g.isAt("x=1") && g.isAt("y=1") })
		g.open("x=1")
		w.eventually("settled by the first", func() bool { return w.committed("t", 0) == 4 })
		g.open("y=1")
		w.eventually("the second ran", func() bool { return log.len() == 5 })
		time.Sleep(2 * time.Minute) // the first's retry finds that the second has done it
		w.eventually("all", func() bool { return w.committed("t", 1) == 3 })
		m.stop()
		if n := log.len(); n != 5 {
			t.Errorf("%d calls: %v", n, log.all())
		}
	})
}
