package workers

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
)

// TestSlowKeyHoldsUpNoOther (C6, C7): one key is stuck and has followers; every other key goes on, even if all keys
// share one hash, and the followers run in order once it is free.
func TestSlowKeyHoldsUpNoOther(t *testing.T) {
	for name, hash := range map[string]func([]byte) uint64{
		"hashed":       nil,
		"one hash":     func([]byte) uint64 { return 42 },
		"upper halves": func(k []byte) uint64 { return uint64(k[len(k)-1]) << 32 },
	} {
		bubble(t, name, func(t *testing.T) {
			s := newStage(t, Options[thing]{Total: 4})
			if hash != nil {
				s.hash = hash
			}
			l := s.Open(1, ByKey, nil, 0, 0)
			s.gate("hot/0")
			var others []string
			for i := range 300 {
				items := things(fmt.Sprintf("hot/%d", i), fmt.Sprintf("k%d/%d", i, i))
				others = append(others, items[1].name)
				l.Push(0, items)
			}
			synctest.Wait()
			if got, want := len(s.ended), len(others); got != want {
				t.Errorf("%d items are through while the hot key is stuck, want %d", got, want)
			}
			waiting, running, _ := l.Len()
			if waiting != 299 || running != 1 {
				t.Errorf("%d wait, %d run, want 299 and 1", waiting, running)
			}
			l.BusyKeys(1, func(key []byte, waiting int) {
				if string(key) != "hot" || waiting != 299 {
					t.Errorf("the busiest key is %q with %d, want hot with 299", key, waiting)
				}
			})
			s.open("hot/0")
			var hot []string
			for _, name := range s.begun {
				if name[0] == 'h' {
					hot = append(hot, name)
				}
			}
			for i, name := range hot {
				if name != fmt.Sprintf("hot/%d", i) {
					t.Fatalf("the hot key ran %q as number %d", name, i)
				}
			}
			if len(s.released) != 600 {
				t.Errorf("%d released, want 600", len(s.released))
			}
			l.Close()
			s.Wait()
		})
	}
}

// TestNoKeyAndEmptyKey (C6): nil is no key and unordered, an empty key is one like any other.
func TestNoKeyAndEmptyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		running := make(chan string, 10)
		type item struct {
			key  []byte
			name string
		}
		p := New(Options[item]{
			Key: func(it *item) []byte { return it.key },
			Handle: func(t *Task[item]) {
				running <- t.Item(0).name
				<-gate
			},
		})
		l := p.Open(1, ByKey, nil, 0, 0)
		l.Push(0, []item{{nil, "none 1"}, {[]byte{}, "empty 1"}, {nil, "none 2"}, {[]byte{}, "empty 2"}, {nil, "none 3"}})
		synctest.Wait()
		var got []string
		for len(running) > 0 {
			got = append(got, <-running)
		}
		slices.Sort(got)
		if want := []string{"empty 1", "none 1", "none 2", "none 3"}; !slices.Equal(got, want) {
			t.Errorf("running at once: %q, want %q", got, want)
		}
		close(gate)
		synctest.Wait()
		if got := <-running; got != "empty 2" {
			t.Errorf("then %q ran", got)
		}
		l.Close()
		p.Wait()
	})
}

// TestByPartitionIsStrict (C6): one after the other, whatever the number of workers.
func TestByPartitionIsStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 8})
		l := s.Open(1, ByPartition, nil, 0, 0)
		s.gate("b")
		l.Push(0, things("a", "b", "c", "d"))
		s.wantBegun("a", "b")
		s.open("b")
		s.wantBegun("a", "b", "c", "d")
		l.Close()
		s.Wait()
	})
}

// TestKeysOutliveTheirLane (C6; no overlap across a revoke and return): items that run or are held when their lane is
// closed keep their keys against the next lane of the partition, and against no other.
// Seen at confluentinc/parallel-consumer#843.
func TestKeysOutliveTheirLane(t *testing.T) {
	bubble(t, "running, by key", func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 8})
		old := s.Open(1, ByKey, "old", 0, 0)
		s.gate("a/1")
		old.Push(0, things("a/1", "a/2", "b/1"))
		s.wantBegun("a/1", "b/1")
		if n := old.Close(); n != 1 {
			t.Errorf("Close says that %d run", n)
		}
		s.wantReleased("a/2", "b/1")
		l := s.Open(1, ByKey, "new", 0, 0)
		other := s.Open(2, ByKey, nil, 0, 0)
		l.Push(0, things("a/1'", "b/1'", "a/2'"))
		s.wantBegun("a/1", "b/1", "b/1'")
		other.Push(0, things("a/other"))
		s.wantBegun("a/1", "b/1", "b/1'", "a/other")
		l.Close() // once more while the first still runs
		l = s.Open(1, ByKey, "newer", 0, 0)
		l.Push(0, things("a/1''", "b/1''"))
		s.wantBegun("a/1", "b/1", "b/1'", "a/other", "b/1''")
		select {
		case <-old.Drained():
			t.Error("drained while an item runs")
		default:
		}
		s.open("a/1")
		s.wantBegun("a/1", "b/1", "b/1'", "a/other", "b/1''", "a/1''")
		<-old.Drained()
		l.Close()
		other.Close()
		s.Wait()
	})
	bubble(t, "held, by key", func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 8})
		s.holdOnce("a/1", "b/1")
		old := s.Open(1, ByKey, "old", 0, 0)
		old.Push(0, things("a/1"))
		s.wantBegun("a/1")
		old.Push(1, things("b/1", "a/2"))
		s.wantBegun("a/1", "b/1")
		old.Close()
		l := s.Open(1, ByKey, "new", 0, 0)
		l.Push(0, things("a/1'", "b/1'"))
		s.wantBegun("a/1", "b/1")
		if !s.Finish(s.holds["a/1"]) {
			t.Error("a held item of a closed lane cannot be finished")
		}
		s.wantBegun("a/1", "b/1", "a/1'")
		if !s.Resume(s.holds["b/1"]) { // means Finish here
			t.Error("a held item of a closed lane cannot be resumed away")
		}
		s.wantBegun("a/1", "b/1", "a/1'", "b/1'")
		<-old.Drained()
		s.wantReleased("a/1", "b/1", "a/2", "a/1'", "b/1'")
		l.Close()
		s.Wait()
	})
	bubble(t, "by partition", func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 8})
		s.gate("1")
		old := s.Open(1, ByPartition, nil, 0, 0)
		old.Push(0, things("1", "2"))
		s.wantBegun("1")
		l := s.Open(1, ByPartition, nil, 0, 0) // closes the old one
		l.Push(0, things("1'", "2'"))
		s.wantBegun("1")
		s.open("1")
		s.wantBegun("1", "1'", "2'")
		<-old.Drained()
		l.Close()
		s.Wait()
	})
	bubble(t, "order changed, and a lane in between that starts nothing", func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 8})
		s.gate("a/1")
		s.Open(1, ByPartition, nil, 0, 0).Push(0, things("a/1"))
		s.wantBegun("a/1")
		s.Open(1, ByKey, nil, 0, 0).Push(0, things("a/1'"))
		l := s.Open(1, ByKey, nil, 0, 0)
		l.Push(0, things("a/1\"", "b/1\""))
		s.wantBegun("a/1")
		s.gate("a/1\"", "b/1\"")
		s.open("a/1")
		if len(s.begun) != 3 {
			t.Errorf("begun: %q; the last lane should go on when the old items are through", s.begun)
		}
		s.open("a/1\"", "b/1\"")
		l.Close()
		s.Wait()
	})
	bubble(t, "order changed", func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 8})
		s.gate("a/1")
		s.Open(1, ByPartition, nil, 0, 0).Push(0, things("a/1"))
		s.wantBegun("a/1")
		l := s.Open(1, ByKey, nil, 0, 0)
		l.Push(0, things("a/1'", "b/1'", "c/1'"))
		s.wantBegun("a/1")
		s.gate("a/1'", "b/1'", "c/1'")
		s.open("a/1")
		if len(s.begun) != 4 {
			t.Errorf("begun: %q; the new lane should not be strict when the old items are through", s.begun)
		}
		s.open("a/1'", "b/1'", "c/1'")
		l.Close()
		s.Wait()
	})
}

// TestClosedLaneStartsNothing (C3, C8): what waits when a lane is closed is dropped, released before Close returns, and
// never handed to a handler; so are items that a worker had claimed but not started, and late pushes.
// Seen at confluentinc/parallel-consumer#909.
func TestClosedLaneStartsNothing(t *testing.T) {
	for _, order := range []Order{Unordered, ByKey, ByPartition} {
		bubble(t, order.String(), func(t *testing.T) {
			s := newStage(t, Options[thing]{Total: 1})
			l := s.Open(1, order, nil, 0, 0)
			warmUp(l) // so that the next chunk is long
			synctest.Wait()
			s.begun, s.released = nil, nil
			s.gate("1/")
			l.Push(0, things("1/", "2/", "3/", "1/b", "5"))
			s.wantBegun("1/")
			if n := l.Close(); n != 1 {
				t.Errorf("%d run", n)
			}
			if len(s.released) != 4 {
				t.Errorf("Close left %d of 4 unreleased", 4-len(s.released))
			}
			l.Push(0, things("late"))
			s.open("1/")
			s.wantBegun("1/")
			s.wantReleased("1/", "2/", "3/", "1/b", "5", "late")
			<-l.Drained()
			if n := l.Close(); n != 0 {
				t.Errorf("closed again: %d run", n)
			}
			s.Wait()
		})
	}
}

// warmUp runs enough quick items for the lane's chunks to reach their full length.
func warmUp(l *Lane[thing]) {
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("w%d/w", i))
	}
	l.Push(0, things(names...))
}

// C6: a handler may go on by itself to what its worker has claimed, until that is over or was taken back: each item once, in order.
func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		var seen []int
		calls, returned := 0, false
		p := New(Options[int]{Total: 1, Handle: func(task *Task[int]) {
			for more := true; more; more = task.Next() {
				at := *task.Item(0)
				if at == n/2 && !returned {
					returned = true
					task.Return(0)
					continue
				}
				seen = append(seen, at)
			}
			calls++
		}})
		l := p.Open(1, Unordered, nil, 0, 0)
		items := make([]int, n)
		for i := range items {
			items[i] = i
		}
		l.Push(0, items)
		synctest.Wait()
		for i, at := range seen {
			if i != at {
				t.Fatalf("item %d came as number %d", at, i)
			}
		}
		if len(seen) != n || calls >= n/4 {
			t.Errorf("%d items in %d calls", len(seen), calls)
		}
		l.Close()
		p.Wait()
	})
}
