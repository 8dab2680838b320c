package enginetest

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/window"
)

// What these tests are worth: each of these faults was put into the engine once, and the test named beside it failed.
//
//	a row is used whichever store the commit names          StaleRowIsNotUsed
//	commits carry no window                                 KilledMembersPartitionMoves, StaleRowIsNotUsed, BenchmarkCrashQuiet
//	a commit's window is not read                           KilledMembersPartitionMoves, BenchmarkCrashQuiet
//	only an offset that has moved is committed              KilledMembersPartitionMoves, BenchmarkCrashQuiet

// runStoreChild is the main function of a member with a store of its own. After BlockAfter records it ends no more. It
// commits as often as CommitMillis says; or, with CommitOnce, again and again until it is told to go on, which it says, and
// then, with as many records more, never again.
func runStoreChild(o childOrder) {
	var mu sync.Mutex
	done, limit := 0, o.BlockAfter
	room := sync.NewCond(&mu)
	c := engine.Config{
		Brokers: o.Brokers, Group: o.Group, Topics: []string{o.Topic}, Workers: 16, Order: engine.OrderUnordered,
		SessionTimeout: o.Session, HeartbeatInterval: o.Session / 5,
		Commit:     engine.Commit{Interval: time.Duration(o.CommitMillis) * time.Millisecond},
		DeadLetter: engine.DeadLetter{GiveUp: engine.GiveUpHold},
		Dedupe:     engine.Dedupe{Dir: o.Dir},
		Handler: engine.HandlerFunc(func(_ context.Context, r *engine.Record) error {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(os.Stdout, "begun", r.Partition, r.Offset)
			if o.StuckEach > 0 && r.Offset%int64(o.StuckEach) == 0 {
				mu.Unlock()
				select {} // to be killed here
			}
			for limit > 0 && done >= limit {
				room.Wait()
			}
			done++
			fmt.Fprintln(os.Stdout, "done", r.Partition, r.Offset)
			return nil
		}),
	}
	e, err := engine.New(c)
	if err != nil {
		childFails(err)
	}
	go func() {
		told := make(chan struct{})
		go func() {
			in := bufio.NewReader(os.Stdin)
			if _, err := in.ReadString('\n'); err == nil {
				close(told)
				_, _ = in.ReadString('\n')
			}
			os.Exit(1) // the test's process is gone, however it ended
		}()
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-tick.C:
				if o.CommitOnce {
					_ = e.Commit(context.Background())
				}
			case <-told:
				mu.Lock()
				limit += o.BlockAfter
				room.Broadcast()
				mu.Unlock()
				return
			}
		}
	}()
	childFails(e.Run(context.Background()))
}

// says is the resume window that the group's commit of a partition carries, as an independent client reads it.
func (w *world) says(partition int32) (at int64, says window.Window) {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	resp, err := w.adm.FetchOffsets(ctx, w.group)
	if err != nil {
		w.Fatal(err)
	}
	o, ok := resp.Lookup(w.topic, partition)
	if !ok {
		return -1, window.Window{Highest: -1}
	}
	if says, err = window.Decode(o.Metadata); err != nil {
		return o.At, window.Window{Frontier: o.At, Highest: o.At - 1}
	}
	return o.At, says
}

// saidDone are the offsets of a partition, of n, that its commit says are done.
func (w *world) saidDone(partition int32, n int64) (offsets []int64) {
	w.Helper()
	_, says := w.says(partition)
	for o := range n {
		if says.Done(o) {
			offsets = append(offsets, o)
		}
	}
	return offsets
}

func newReport() *reported { return &reported{map[place]bool{}, map[place]bool{}} }

func sorted(places map[place]bool) (offsets []int64) {
	for p := range maps.Keys(places) {
		offsets = append(offsets, p.offset)
	}
	slices.Sort(offsets)
	return offsets
}

// without is all of n offsets but these.
func without(n int64, but []int64) (offsets []int64) {
	for o := range n {
		if !slices.Contains(but, o) {
			offsets = append(offsets, o)
		}
	}
	return offsets
}

// ends kills a child and reads the rest of what it said.
func (c *child) ends(w *world, r *reported) {
	w.Helper()
	c.kill()
	c.until(w, "the rest of what it said", r, func() bool { return len(c.lines) == 0 })
}

// successor lets a member with a store of its own do what is left, and returns what that was.
func (w *world) successor(dir string) []int64 {
	w.Helper()
	r := newReport()
	c := w.spawn(childOrder{Dir: dir, CommitMillis: 50})
	w.noLagLeft()
	c.ends(w, r)
	if !slices.Equal(sorted(r.begun), sorted(r.done)) {
		w.Errorf("begun %v, done %v", sorted(r.begun), sorted(r.done))
	}
	return sorted(r.done)
}

// C1, design section 5: the partition of a killed member moves to one that has a store of its own. What the commit's metadata says is
// all that follows it: just the unfinished, and what ended since the last acknowledged commit, is handled again. After a
// commit interval without news, just the unfinished.
func TestKilledMembersPartitionMoves(t *testing.T) {
	const n, stuck, once = 400, 40, 120
	for _, quiet := range []bool{false, true} {
		t.Run(fmt.Sprintf("quiet=%v", quiet), func(t *testing.T) {
			w := newWorld(t, 1)
			w.produce(0, keyed(n, 7)...)
			r := newReport()
			o := childOrder{Dir: t.TempDir(), StuckEach: stuck, BlockAfter: once, CommitMillis: 100}
			if !quiet {
				o.CommitMillis, o.CommitOnce = 3_600_000, true
			}
			victim := w.spawn(o)
			victim.until(w, "as many are done as may be", r, func() bool { return len(r.done) == once })
			w.eventually("the commit says so", func() bool { return slices.Equal(w.saidDone(0, n), sorted(r.done)) })
			committed := sorted(r.done)
			if !quiet {
				fmt.Fprintln(victim.in, "go on")
				victim.until(w, "more are done", r, func() bool { return len(r.done) == 2*once })
			}
			victim.ends(w, r)
			at, says := w.says(0)
			if said := w.saidDone(0, n); !slices.Equal(said, committed) {
				t.Fatalf("committed since: %v", said)
			}
			t.Logf("killed with %d begun and %d done; the commit: %s", len(r.begun), len(r.done), says.String())
			if at != 0 || len(committed) != once {
				t.Errorf("committed %d, with %d done beyond", at, len(committed))
			}
			again := w.successor(t.TempDir())
			if !slices.Equal(again, without(n, committed)) {
				t.Errorf("the next member handled %v\nnot %v", again, without(n, committed))
			}
			redone := 0
			for _, o := range again {
				if r.done[place{0, o}] {
					redone++
				}
			}
			if want := len(r.done) - once; redone != want {
				t.Errorf("%d finished records were handled again; %d had ended since the last commit", redone, want)
			}
		})
	}
}

// Design section 5: a store that comes back after its partition was elsewhere has a row that is out of date. It goes further than the group, since
// an operator has set that back meanwhile, and it is not used: the commit names another store, or none.
func TestStaleRowIsNotUsed(t *testing.T) {
	const n = 60
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("elsewhere=%v", elsewhere), func(t *testing.T) {
			w := newWorld(t, 1)
			w.produce(0, keyed(n, 7)...)
			dir := t.TempDir()
			if all := w.successor(dir); len(all) != n {
				t.Fatalf("handled %v", all)
			}
			w.eventually("the group can be set back", func() bool { // when the killed member's session has ended
				ctx, cancel := patient()
				defer cancel()
				var back kadm.Offsets
				back.AddOffset(w.topic, 0, 5, -1)
				return w.adm.CommitAllOffsets(ctx, w.group, back) == nil
			})
			done := []int64{0, 1, 2, 3, 4}
			if elsewhere {
				r := newReport()
				other := w.spawn(childOrder{Dir: t.TempDir(), StuckEach: 10, BlockAfter: 20, CommitMillis: 50})
				other.until(w, "some are done", r, func() bool { return len(r.done) == 20 })
				w.eventually("the commit says so", func() bool { return len(w.saidDone(0, n)) == 25 })
				other.ends(w, r)
				done = w.saidDone(0, n)
			}
			if again := w.successor(dir); !slices.Equal(again, without(n, done)) {
				t.Errorf("with the old store %v was handled, not %v", again, without(n, done))
			}
		})
	}
}
