package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
)

// randomStores takes random steps with members that have a store each, and die, and with a producer that sends things twice.
type randomStores struct {
	*world
	rnd  *rand.Rand
	live []*machine

	mu       sync.Mutex
	fail     *rand.Rand
	produced map[int32][]string // by partition
	sent     int
	dups     int
}

const randomPartitions = 3

// config is a member's. What a handler begins that is durable in the store of its own machine has been handled before, and must not
// have been begun.
func (r *randomStores) config(m *machine) Config {
	c := m.once(byValue, nil)
	c.Handler = HandlerFunc(func(ctx context.Context, rec *Record) error {
		v := string(rec.Value)
		s := m.member.e.Store()
		_, marked, err := s.Get(s.Scope("all").Key(rec.Value))
		r.mu.Lock()
		wait, bad := time.Duration(r.fail.IntN(150))*time.Millisecond, r.fail.IntN(8) == 0
		r.mu.Unlock()
		if err == nil && marked && !m.isDead() {
			r.Errorf("%s[%d]@%d %q was marked, and begins", rec.Topic, rec.Partition, rec.Offset, v)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
		if bad {
			return errBoom
		}
		return m.did(v)
	})
	c.Dedupe.Scope = "all"
	c.Retry = Retry{Attempts: 1000, Base: 50 * time.Millisecond, Max: 500 * time.Millisecond}
	c.Order = []Order{OrderUnordered, OrderKey, OrderPartition}[r.rnd.IntN(3)]
	c.PartitionRecords, c.Workers = 20+r.rnd.IntN(100), 4+r.rnd.IntN(20)
	c.FetchMaxPartitionBytes, c.FetchMaxBytes = 2048, 8192
	c.Dedupe.MaxDelay = time.Duration(1+r.rnd.IntN(50)) * time.Millisecond
	c.Dedupe.MaxPending = 2 + r.rnd.IntN(50)
	c.Commit.Interval = time.Duration(20+r.rnd.IntN(1000)) * time.Millisecond
	if r.rnd.IntN(2) == 0 {
		c = batched(c, 2+r.rnd.IntN(10))
	}
	return c
}

func (m *machine) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// run starts a member on a machine. Its handlers may begin before start returns.
func (r *randomStores) run(m *machine) {
	m.mu.Lock()
	m.member = nil
	m.mu.Unlock()
	c := r.config(m)
	ready := make(chan struct{})
	inner := c.Handler
	innerBatch := c.BatchHandler
	if inner != nil {
		c.Handler = HandlerFunc(func(ctx context.Context, rec *Record) error { <-ready; return inner.Handle(ctx, rec) })
	} else {
		c.BatchHandler = BatchHandlerFunc(func(ctx context.Context, b *Batch) error { <-ready; return innerBatch.HandleBatch(ctx, b) })
	}
	m.start(c)
	close(ready)
	r.live = append(r.live, m)
}

func (r *randomStores) take() *machine {
	i := r.rnd.IntN(len(r.live))
	m := r.live[i]
	r.live = slices.Delete(r.live, i, i+1)
	return m
}

func (r *randomStores) step() {
	switch n := r.rnd.IntN(100); {
	case n < 45:
		p := int32(r.rnd.IntN(randomPartitions))
		var values []string
		for range 1 + r.rnd.IntN(20) {
			if r.sent > 0 && r.rnd.IntN(3) == 0 { // once more, here or elsewhere
				values = append(values, r.value(r.rnd.IntN(r.sent)))
				r.dups++
			} else {
				values = append(values, r.value(r.sent))
				r.sent++
			}
		}
		r.produce(p, values...)
		r.produced[p] = append(r.produced[p], values...)
	case n < 80:
		time.Sleep(time.Duration(r.rnd.IntN(400)) * time.Millisecond)
	case n < 85 && len(r.live) < 3:
		r.run(r.machine(r.live[0]))
	case n < 92: // one dies; its machine is back at once, with what a power loss leaves
		m := r.take()
		next := m.crash([]int{0, 50, 100}[r.rnd.IntN(3)])
		m.bury()
		r.run(next)
	case n < 96:
		r.expel(r.live[r.rnd.IntN(len(r.live))].member.id())
	default:
		r.rewind()
	}
}

func (r *randomStores) value(i int) string { return fmt.Sprintf("%d=%d", i%7, i) }

// rewind has an operator go back while nobody is there. Marks count all the same.
func (r *randomStores) rewind() {
	if _, err := r.adm.FetchOffsets(context.Background(), testGroup); err != nil {
		return // there is no group yet
	}
	var back []*machine
	for len(r.live) > 0 {
		m := r.take()
		back = append(back, m.crash(0))
		m.bury()
	}
	at, _, win := r.saved()
	if at > 0 {
		at = r.rnd.Int64N(at + 1)
		metadata := ""
		if r.rnd.IntN(2) == 0 {
			w := window.Window{TopicID: win.TopicID, Partitions: win.Partitions, Frontier: at, Highest: at - 1, Trying: -1}
			metadata = string(w.Append(nil, 0))
		}
		r.save(at, metadata)
	}
	for _, m := range back {
		r.run(m)
	}
}

// rest waits until all is done. Everything that was sent was handled, by somebody.
func (r *randomStores) rest() {
	r.eventually("all is committed", func() bool {
		for p, values := range r.produced {
			if r.committed("t", p) < int64(len(values)) {
				return false
			}
		}
		return true
	})
	effects := r.live[0].effects
	for p, values := range r.produced {
		for i, v := range values {
			if effects.of(v) == 0 {
				r.Errorf("[%d]@%d %q was never handled", p, i, v)
			}
		}
	}
	for _, m := range r.live {
		r.settled(m.member)
		r.eventually("nobody waits for a key", func() bool { return m.member.waiting() == 0 })
		r.eventually("it is well", func() bool { ok, _ := m.member.e.Healthy(); return ok })
		if held := m.member.e.Store().Stats().Held; held != 0 {
			r.Errorf("%d keys are held", held)
		}
		m.member.stop()
	}
}

// C1, C5: whatever happens, nothing is lost, and what is durable in a machine's store is not handled there again. With the seed of a
// failure (GAPLESS_SEED) the steps are the same.
func TestRandomStepsWithStores(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rnd := seeded(t)
			inWorld(t, randomPartitions, func(w *world) {
				r := &randomStores{world: w, rnd: rnd, fail: rand.New(rand.NewPCG(rnd.Uint64(), 1)), produced: map[int32][]string{}}
				r.run(w.machine(nil))
				for range 150 {
					r.step()
				}
				r.rest()
				t.Logf("%d records, %d of them sent before; %d members", r.sent+r.dups, r.dups, len(w.members))
			})
		})
	}
}
