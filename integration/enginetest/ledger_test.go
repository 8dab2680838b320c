package enginetest

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// place is where a record is.
type place struct {
	partition int32
	offset    int64
}

// ledger is the test's own account of what handlers did, over all members. Nothing in it comes from the engine's counters.
type ledger struct {
	w *world

	mu      sync.Mutex
	done    map[place]int    // handler calls that returned nil
	last    map[string]int64 // by lane: the offset that started last, and whether it still runs
	busy    map[string]bool
	wrong   []string
	changed chan struct{} // closed and replaced with every handled record
}

func (w *world) ledger() *ledger {
	return &ledger{w: w, done: map[place]int{}, last: map[string]int64{}, busy: map[string]bool{}, changed: make(chan struct{})}
}

// keep is a handler that does the inner one's work, if there is any, and enters what succeeded.
func (l *ledger) keep(inner engine.HandlerFunc) engine.HandlerFunc {
	return func(ctx context.Context, r *engine.Record) error {
		if inner != nil {
			if err := inner(ctx, r); err != nil {
				return err
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done[place{r.Partition, r.Offset}]++
		l.turn()
		return nil
	}
}

// inOrder is a handler that also checks that calls of one lane start in offset order and never overlap (C6).
func (l *ledger) inOrder(lane func(*engine.Record) string, inner engine.HandlerFunc) engine.HandlerFunc {
	return l.keep(func(ctx context.Context, r *engine.Record) error {
		k := lane(r)
		l.mu.Lock()
		if last, ok := l.last[k]; ok && r.Offset <= last {
			l.wrong = append(l.wrong, fmt.Sprintf("%s: offset %d started after %d", k, r.Offset, last))
		}
		if l.busy[k] {
			l.wrong = append(l.wrong, fmt.Sprintf("%s: offset %d started while %d ran", k, r.Offset, l.last[k]))
		}
		l.last[k], l.busy[k] = r.Offset, true
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			l.busy[k] = false
			l.mu.Unlock()
		}()
		if inner == nil {
			return nil
		}
		return inner(ctx, r)
	})
}

func byKey(r *engine.Record) string       { return fmt.Sprintf("partition %d key %s", r.Partition, r.Key) }
func byPartition(r *engine.Record) string { return fmt.Sprintf("partition %d", r.Partition) }

// turn tells waiters that there is something new. l.mu is held.
func (l *ledger) turn() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// reaches waits until so many different records were handled.
func (l *ledger) reaches(n int) {
	l.w.Helper()
	timeout := time.After(patience)
	for {
		l.mu.Lock()
		have, changed := len(l.done), l.changed
		l.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			l.w.Fatalf("handled %d of %d records", have, n)
		}
	}
}

// handled is how many different records were handled.
func (l *ledger) handled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}

// has says whether a record was handled.
func (l *ledger) has(partition int32, offset int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done[place{partition, offset}] > 0
}

// offsets are what was handled of a partition, sorted.
func (l *ledger) offsets(partition int32) (offsets []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.done {
		if p.partition == partition {
			offsets = append(offsets, p.offset)
		}
	}
	sort.Slice(offsets, func(i, j int) bool { return offsets[i] < offsets[j] })
	return offsets
}

// eachOnce checks that n records of every partition were handled, from offset 0 on, and none twice.
func (l *ledger) eachOnce(n int64) {
	l.w.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	bad := 0
	for p := range l.w.parts {
		for o := range n {
			c := l.done[place{p, o}]
			if c == 1 {
				continue
			}
			if bad++; bad <= 10 {
				l.w.Errorf("partition %d offset %d was handled %d times", p, o, c)
			}
		}
	}
	if bad > 10 {
		l.w.Errorf("and %d more", bad-10)
	}
	if want := int(n) * int(l.w.parts); len(l.done) != want {
		l.w.Errorf("%d different records were handled, not %d", len(l.done), want)
	}
}

// twice is how many records were handled more than once: where a member was thrown out or killed, that may be. It checks that
// none of them was committed, that is, below this offset.
func (l *ledger) twice(committed int64) (n int) {
	l.w.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, c := range l.done {
		if c == 1 {
			continue
		}
		if n++; p.offset < committed {
			l.w.Errorf("partition %d offset %d was handled %d times, though it was committed", p.partition, p.offset, c)
		}
	}
	return n
}

// orderly checks that no order was violated.
func (l *ledger) orderly() {
	l.w.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, v := range l.wrong {
		if i == 10 {
			l.w.Errorf("and %d more", len(l.wrong)-i)
			return
		}
		l.w.Error(v)
	}
}

// gate is where handlers stand until the test opens it.
type gate struct {
	open    chan struct{}
	once    sync.Once
	arrived chan place // who stands there
}

// newGate makes a gate that opens by itself when the test ends, so that no handler stays behind.
func (w *world) newGate() *gate {
	g := &gate{open: make(chan struct{}), arrived: make(chan place, 10_000)}
	w.Cleanup(g.lift)
	return g
}

func (g *gate) lift() { g.once.Do(func() { close(g.open) }) }

// wait stands at the gate, whatever becomes of the handler's context.
func (g *gate) wait(r *engine.Record) {
	g.arrived <- place{r.Partition, r.Offset}
	<-g.open
}

// reached waits until n handlers stand at the gate, and says which.
func (g *gate) reached(w *world, n int) (who []place) {
	w.Helper()
	timeout := time.After(patience)
	for len(who) < n {
		select {
		case p := <-g.arrived:
			who = append(who, p)
		case <-timeout:
			w.Fatalf("%d of %d handlers reached the gate", len(who), n)
		}
	}
	return who
}
