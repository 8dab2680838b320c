package dedupe

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gaplesshq/gapless/internal/crashfs"
)

// oracle knows what was acknowledged.
type oracle struct {
	mu     sync.Mutex
	marked map[int]uint64 // acknowledged, with the fingerprint
	doubt  map[int]bool   // a mark or a forget of it is under way, so anything goes
	never  int            // from this number on, never marked
	seq    uint64         // of the last acknowledged group
	rows   uint64         // the counter that the last acknowledged row held
}

// snapshot is the oracle at the moment of a crash.
func (o *oracle) snapshot() *oracle {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := &oracle{marked: map[int]uint64{}, doubt: map[int]bool{}, never: o.never, seq: o.seq, rows: o.rows}
	for k, v := range o.marked {
		c.marked[k] = v
	}
	for k := range o.doubt {
		c.doubt[k] = true
	}
	return c
}

// verify checks a store that was opened after a crash; when says which, for the report.
func (o *oracle) verify(t *testing.T, s *Store, when string) {
	t.Helper()
	if s.Seq() < o.seq {
		t.Errorf("%s: group %d was acknowledged, the store is at %d", when, o.seq, s.Seq())
	}
	if o.rows > 0 {
		v, _, err := s.Row([]byte("counter"))
		if err != nil || len(v) != 8 || binary.BigEndian.Uint64(v) < o.rows {
			t.Errorf("%s: the row is %x, %v; want at least %d", when, v, err, o.rows)
		}
	}
	var lost, invented []int
	for i := range o.never + 50 {
		if o.doubt[i] {
			continue
		}
		m, ok, err := s.Get(key(s, i))
		want, marked := o.marked[i]
		switch {
		case err != nil:
			t.Errorf("%s: key %d: %v", when, i, err)
		case marked && !ok, marked && m.Fingerprint != want:
			lost = append(lost, i)
		case !marked && ok:
			invented = append(invented, i)
		}
	}
	if len(lost) > 0 || len(invented) > 0 {
		t.Errorf("%s: of %d acknowledged marks, %v are lost, and %v are seen that are not marked; from %d on, none ever was",
			when, len(o.marked), lost, invented, o.never)
	}
}

// script does everything that a store does, in an order that depends on the source alone, and keeps the oracle up to date.
// Expiry is left to the caller's clock: keys that may have expired are in doubt.
type script struct {
	*oracle
	t    *testing.T
	r    *rand.Rand
	h    *hands
	born map[int]time.Duration

	exact   bool // nobody looks while time passes: what has expired is known not to be seen
	counter atomic.Uint64
}

func newScript(t *testing.T, r *rand.Rand, h *hands) *script {
	return &script{
		oracle: &oracle{marked: map[int]uint64{}, doubt: map[int]bool{}}, t: t, r: r, h: h, born: map[int]time.Duration{},
	}
}

// run runs so many steps against a store and returns early on its first error.
func (c *script) run(s *Store, steps int) error {
	ctx := c.t.Context()
	for range steps {
		switch c.r.IntN(20) {
		case 0: // forget one
			i := c.r.IntN(c.never + 1)
			c.do(func() { c.doubt[i] = true })
			if err := s.Forget(ctx, key(s, i)); err != nil {
				return err
			}
			c.do(func() { delete(c.marked, i); delete(c.doubt, i) })
		case 1, 3, 4: // time passes
			d := time.Duration(c.r.IntN(25)) * time.Minute
			c.mu.Lock()
			for i, at := range c.born {
				if c.h.elapsed()+d-at >= time.Hour {
					delete(c.marked, i)
					c.doubt[i] = true // until the clock has moved, it counts
				}
			}
			c.mu.Unlock()
			c.h.pass(d)
			c.mu.Lock()
			for i, at := range c.born {
				if c.h.elapsed()-at >= time.Hour {
					delete(c.born, i)
					if c.exact {
						delete(c.doubt, i)
					}
				}
			}
			c.mu.Unlock()
		case 2: // one comes again
			i := c.r.IntN(c.never + 1)
			if err := c.add(s, []int{i}); err != nil {
				return err
			}
		default:
			n := 1 + c.r.IntN(30)
			keys := make([]int, n)
			for j := range keys {
				keys[j] = c.never + j
			}
			c.mu.Lock()
			c.never += n
			c.mu.Unlock()
			if err := c.add(s, keys); err != nil {
				return err
			}
		}
		if c.r.IntN(4) == 0 {
			settle(s)
		}
	}
	settle(s)
	return nil
}

func (c *script) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *script) add(s *Store, keys []int) error {
	fp := c.r.Uint64() & fingerprintMask
	var done []Completion
	c.mu.Lock()
	for _, i := range keys {
		c.doubt[i] = true
		c.never = max(c.never, i+1)
	}
	c.mu.Unlock()
	for _, i := range keys {
		k, v, err := s.Claim(key(s, i), fp, Tag{})
		if err != nil {
			return err
		}
		if v == Mine || v == Differs {
			done = append(done, Completion{Claim: k, Tag: Tag{Seq: uint64(i)}})
		}
	}
	before := c.counter.Add(1)
	s.Mark(done)
	if err := s.Flush(c.t.Context()); err != nil {
		return err
	}
	c.mu.Lock()
	for _, i := range keys {
		delete(c.doubt, i)
		c.marked[i] = fp
		c.born[i] = c.h.elapsed()
	}
	c.seq = s.Seq()
	c.rows = max(c.rows, before)
	c.mu.Unlock()
	return nil
}

// row is what a store is to write with each group: a number that grows.
func (c *script) row(put func(key, value []byte)) {
	put([]byte("counter"), binary.BigEndian.AppendUint64(nil, c.counter.Load()))
}

func crashOptions(h *hands, fs vfs.FS) Options {
	o := options(h)
	o.FS = fs
	o.partSize = 100
	o.memtable = 64 << 10
	return o
}

// TestPowerLossBeforeEveryFileOperation (C5): before each operation that changes the file system, the machine loses power,
// and nothing, half, or all of what was not synced survives. No acknowledged mark is lost, nothing else is seen, and the store
// always opens.
// Seen at cockroachdb/pebble#1165, cockroachdb/pebble#1212.
func TestPowerLossBeforeEveryFileOperation(t *testing.T) {
	r := random(t)
	steps := 36
	if testing.Short() {
		steps = 20
	}
	h := newHands()
	mem := crashfs.New()
	c := newScript(t, r, h)
	type crash struct {
		fs *crashfs.FS
		o  *oracle
		at time.Duration
		op string
	}
	var mu sync.Mutex
	ops := 0
	var crashes []crash
	inj := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsRead && op.Kind != errorfs.OpOpenDir {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		ops++
		seed := uint64(ops)
		for _, percent := range []int{0, 50, 100} {
			// First what was promised, then the disk: a promise made in between would not be on it.
			at := h.elapsed()
			o := c.snapshot()
			fs := mem.AfterPowerLoss(percent, seed)
			crashes = append(crashes, crash{fs, o, at, fmt.Sprintf("op %d (%v %s), %d%%", ops, op.Kind, op.Path, percent)})
		}
		return nil
	})
	for range 3 {
		o := crashOptions(h, crashfs.Asking(mem, inj))
		o.Rows = c.row
		s := open(t, "data/store", o)
		c.verify(t, s, "opened again")
		if err := c.run(s, steps/3); err != nil {
			t.Fatal(err)
		}
		st := s.Stats()
		t.Logf("%d groups, %d seals, %d buckets dropped, %d keys", st.Groups, st.Seals, st.Dropped, st.Keys)
		s.Close()
	}
	refused := 0
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, x := range crashes {
		g.Go(func() error {
			h := newHands()
			h.pass(x.at)
			s, err := Open("data/store", crashOptions(h, x.fs))
			if err != nil {
				mu.Lock()
				refused++
				mu.Unlock()
				t.Errorf("before %s: %v", x.op, err)
				return nil
			}
			x.o.verify(t, s, "before "+x.op)
			settle(s)
			x.o.verify(t, s, "settled, before "+x.op)
			return s.Close()
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d operations, %d crashes, %d refused", ops, len(crashes), refused)
}
