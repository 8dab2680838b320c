package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// orderCheck watches handlers: of one lane at most one runs, and they begin in offset order but for what was not settled.
type orderCheck struct {
	t  *testing.T
	mu sync.Mutex
	// by lane: a key of a partition, or a partition
	running map[string]bool
	done    map[string]int64 // the highest offset that was settled
}

func newOrderCheck(t *testing.T) *orderCheck {
	return &orderCheck{t: t, running: map[string]bool{}, done: map[string]int64{}}
}

func (o *orderCheck) enter(lane string, offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[lane] {
		o.t.Errorf("%s: two at once", lane)
	}
	o.running[lane] = true
	if last, ok := o.done[lane]; ok && offset > last+1 {
		o.t.Errorf("%s: %d starts after %d", lane, offset, last)
	}
}

func (o *orderCheck) leave(lane string, offset int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running[lane] = false
	if err == nil {
		o.done[lane] = max(o.done[lane], offset)
	}
}

// C6: OrderKey keeps the order of a key across retries; other keys go on meanwhile. A record without a key is bound to nothing,
// and an empty key is a key.
func TestOrderKey(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		check := newOrderCheck(t)
		seq := map[string]int64{} // value -> place among its key
		var log callLog
		gates := w.shut("nil-0", "empty-0")
		c := brisk(w.config(func(ctx context.Context, r *Record) error {
			log.add(r)
			if r.Key != nil {
				lane := string(r.Key)
				check.enter(lane, seq[string(r.Value)])
				err := gates.pass(ctx, r)
				time.Sleep(time.Millisecond)
				if r.Attempt == 1 && r.Offset%7 == 0 {
					err = errBoom
				}
				check.leave(lane, seq[string(r.Value)], err)
				return err
			}
			return gates.pass(ctx, r)
		}))
		c.Retry.Base = 300 * time.Millisecond
		var rs []*kgo.Record
		for i := range 40 {
			for _, key := range []string{"a", "b", "c", "empty", "nil"} {
				r := &kgo.Record{Topic: "t", Key: []byte(key), Value: fmt.Appendf(nil, "%s-%d", key, i)}
				switch key {
				case "empty":
					r.Key = []byte{}
				case "nil":
					r.Key = nil
				}
				seq[string(r.Value)] = int64(i) + 1
				rs = append(rs, r)
			}
		}
		for _, key := range []string{"a", "b", "c", ""} {
			check.done[key] = 0
		}
		if err := w.cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		m := w.start(c)
		w.eventually("all but the empty key's, and one of no key", func() bool { return m.part(0).Waiting == 39 && m.part(0).InFlight == 2 })
		calls := log.all()
		if slices.Contains(calls, "empty-1") || !slices.Contains(calls, "nil-39") || !slices.Contains(calls, "a-39") {
			t.Errorf("calls %v", calls)
		}
		gates.openAll()
		w.eventually("committed", func() bool { return w.committed("t", 0) == 200 })
		w.settled(m)
		m.stop()
	})
}

// C6: OrderPartition handles one record at a time and in order, across retries too; OrderUnordered holds nothing up.
func TestOrderPartitionAndUnordered(t *testing.T) {
	for _, order := range []Order{OrderPartition, OrderUnordered} {
		t.Run(string(order), func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				check := newOrderCheck(t)
				check.done["0"], check.done["1"] = -1, -1
				var mu sync.Mutex
				running, most := 0, 0
				c := brisk(w.config(func(_ context.Context, r *Record) (err error) {
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					lane := fmt.Sprint(r.Partition)
					if order == OrderPartition {
						check.enter(lane, r.Offset)
					}
					time.Sleep(10 * time.Millisecond)
					if r.Offset%10 == 5 && r.Attempt < 3 {
						err = errBoom
					}
					if order == OrderPartition {
						check.leave(lane, r.Offset, err)
					}
					mu.Lock()
					running--
					mu.Unlock()
					return err
				}))
				c.Order, c.Retry.Base = order, 100*time.Millisecond
				// Keys of their own, or none, must not free what a partition orders; the same key must not hold up what nothing orders.
				prefix := map[Order]string{OrderPartition: "", OrderUnordered: "k="}[order]
				w.produce(0, numbered(prefix, 50)...)
				w.produce(1, numbered(prefix, 50)...)
				m := w.start(c)
				w.eventually("committed", func() bool { return w.committed("t", 0) == 50 && w.committed("t", 1) == 50 })
				if want := map[Order]int{OrderPartition: 2, OrderUnordered: 16}[order]; most != want {
					t.Errorf("%d at once, not %d", most, want)
				}
				w.settled(m)
				m.stop()
			})
		})
	}
}

// SetWorkers changes the limits while handlers run.
func TestSetWorkers(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		var mu sync.Mutex
		running := map[int32]int{}
		now := func() (n, most int) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range running {
				n, most = n+r, max(most, r)
			}
			return n, most
		}
		c := brisk(w.config(func(_ context.Context, r *Record) error {
			mu.Lock()
			running[r.Partition]++
			mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			mu.Lock()
			running[r.Partition]--
			mu.Unlock()
			return nil
		}))
		c.Workers = 2
		w.produce(0, numbered("a", 2000)...)
		w.produce(1, numbered("b", 2000)...)
		m := w.start(c)
		for _, limit := range []struct{ total, per, n, most int }{{2, 0, 2, 2}, {10, 0, 10, 10}, {10, 3, 6, 3}, {1, 1, 1, 1}, {30, 15, 30, 15}} {
			if err := m.e.SetWorkers(limit.total, limit.per); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // what runs is not interrupted
			for range 20 {
				time.Sleep(20 * time.Millisecond)
				if n, most := now(); n > limit.n || most > limit.most {
					t.Errorf("%v: %d run, %d of one partition", limit, n, most)
				}
			}
			w.eventually("the limit is used", func() bool { n, _ := now(); return n == limit.n })
		}
		if m.e.SetWorkers(0, 0) == nil || m.e.SetWorkers(2, 3) == nil {
			t.Error("nonsense was taken")
		}
		w.eventually("committed", func() bool { return w.committed("t", 0) == 2000 && w.committed("t", 1) == 2000 })
		m.stop()
	})
}

// seeded is a random source whose seed is printed when the test fails, and can be given as GAPLESS_SEED.
func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("GAPLESS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("GAPLESS_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

// C1, C3, C5, C6, C7: random steps on two topics with the same partition numbers - produce, fail,
// join, leave, be thrown out, commit, change the workers, rewind - keep every record handled at least once, the keys in order, and
// the commit, and what it says of the records beyond it, below what is unfinished. At rest the gauges are 0 and nothing is paused.
// Seen at confluentinc/parallel-consumer#826, confluentinc/parallel-consumer#909, confluentinc/parallel-consumer#606,
// confluentinc/parallel-consumer#832, smallrye/smallrye-reactive-messaging#1396, nuclio/nuclio#2988.
func TestRandomSteps(t *testing.T) {
	var passed int64
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			rnd := seeded(t)
			inWorld(t, 3, func(w *world) {
				if err := w.cluster.CreateTopic("u", 3, nil); err != nil {
					t.Fatal(err)
				}
				r := newRandomWorld(w, rnd, p.set)
				r.join()
				for range 300 {
					r.step()
				}
				r.rest()
				passed += r.passed
				t.Logf("%d records were not handled again, %d rewinds", r.passed, r.rewinds)
			})
		})
	}
	if passed == 0 && !t.Failed() {
		t.Error("nothing was ever settled by an earlier owner")
	}
}
