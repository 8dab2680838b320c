package workers

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func (s *stage) wantTasks(want ...[]string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.EqualFunc(s.tasks, want, slices.Equal) {
		s.t.Errorf("batches: %q, want %q", s.tasks, want)
	}
}

// TestBatchSizeOrLinger (C8): a batch starts when it is full, or when its oldest item has waited for the linger time,
// whichever comes first; without a linger time at once.
func TestBatchSizeOrLinger(t *testing.T) {
	for _, order := range []Order{Unordered, ByKey, ByPartition} {
		bubble(t, order.String(), func(t *testing.T) {
			s := newStage(t, Options[thing]{BatchSize: 3, BatchLinger: 10 * time.Millisecond})
			l := s.Open(1, order, nil, 0, 0)
			l.Push(0, things("a/1", "b/2"))
			s.wantTasks()
			time.Sleep(9 * time.Millisecond)
			s.wantTasks()
			l.Push(0, things("c/3", "d/4")) // full; the fourth lingers from now on
			s.wantTasks([]string{"a/1", "b/2", "c/3"})
			time.Sleep(9 * time.Millisecond)
			s.wantTasks([]string{"a/1", "b/2", "c/3"})
			time.Sleep(time.Millisecond)
			s.wantTasks([]string{"a/1", "b/2", "c/3"}, []string{"d/4"})
			l.Push(0, things("e/5", "f/6", "g/7", "h/8", "i/9", "j/10", "k/11"))
			synctest.Wait()
			if len(s.ended) != 10 {
				t.Errorf("%d through, want two batches more", len(s.ended))
			}
			if n := s.Stats().Goroutines; n != 0 {
				t.Errorf("%d goroutines linger", n)
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			if len(s.ended) != 11 {
				t.Errorf("%d through, want all", len(s.ended))
			}
			l.Push(0, things("x/12"))
			synctest.Wait()
			l.Close() // ends the linger
			s.Wait()
			s.wantReleased(slices.Concat(s.ended, []string{"x/12"})...)
		})
	}
	bubble(t, "no linger", func(t *testing.T) {
		s := newStage(t, Options[thing]{BatchSize: 3})
		l := s.Open(1, Unordered, nil, 0, 0)
		l.Push(0, things("1"))
		s.wantTasks([]string{"1"})
		l.Push(0, things("2", "3", "4", "5"))
		synctest.Wait()
		if len(s.ended) != 5 {
			t.Errorf("%d through", len(s.ended))
		}
		l.Close()
		s.Wait()
	})
}

// TestBatchByKey (C6): at most one item of a key, and only keys that are free.
func TestBatchByKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{BatchSize: 4, BatchLinger: 5 * time.Millisecond})
		l := s.Open(1, ByKey, nil, 0, 0)
		s.gate("a/1")
		l.Push(0, things("a/1", "a/2", "b/1", "c/1", "b/2", "d/1"))
		s.wantTasks([]string{"a/1", "b/1", "c/1", "d/1"}) // full although the linger is not over
		l.Push(0, things("b/3", "c/2", "e/1"))
		time.Sleep(5 * time.Millisecond)
		s.wantTasks([]string{"a/1", "b/1", "c/1", "d/1"}, []string{"e/1"})
		s.open("a/1") // what was freed has lingered already
		time.Sleep(5 * time.Millisecond)
		s.wantTasks([]string{"a/1", "b/1", "c/1", "d/1"}, []string{"e/1"}, []string{"a/2", "b/2", "c/2"}, []string{"b/3"})
		l.Close()
		s.Wait()
	})
}

// TestBatchByPartitionFails (C6): the first failure ends the batch; what was behind it runs after it, in order.
func TestBatchByPartitionFails(t *testing.T) {
	for _, early := range []bool{false, true} {
		bubble(t, fmt.Sprintf("early=%v", early), func(t *testing.T) {
			s := newStage(t, Options[thing]{BatchSize: 4})
			l := s.Open(1, ByPartition, nil, 0, 0)
			var ticket Ticket
			s.onTask = func(task *Task[thing]) {
				for i := range task.Len() {
					if task.Item(i).name == "2" && !task.Resumed(i) {
						ticket = task.Hold(i, *task.Item(i), nil)
						task.Return(i + 1)
						if early {
							s.Resume(ticket)
						}
					}
				}
			}
			first := []string{"1", "2", "3", "4"}
			l.Push(0, things("1", "2", "3", "4", "5", "6"))
			if !early {
				s.wantTasks(first)
				if waiting, running, held := l.Len(); waiting != 4 || running != 0 || held != 1 {
					t.Errorf("%d wait, %d run, %d are held", waiting, running, held)
				}
				s.Resume(ticket)
			}
			s.wantTasks(first, []string{"2", "3", "4", "5"}, []string{"6"})
			s.wantReleased("1", "2", "3", "4", "5", "6")
			l.Close()
			s.Wait()
		})
	}
}

// TestBatchGivenUp (C8): a batch that has not started when its lane is closed is dropped, one that runs is not touched,
// and what it returns is dropped as well.
func TestBatchGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{Total: 1, BatchSize: 2, BatchLinger: time.Hour})
		l := s.Open(1, Unordered, nil, 0, 0)
		s.gate("1")
		l.Push(0, things("1", "2", "3", "4", "5"))
		s.wantTasks([]string{"1", "2"})
		s.onTask = func(task *Task[thing]) { task.Return(1) }
		if n := l.Close(); n != 2 {
			t.Errorf("%d run", n)
		}
		s.wantReleased("3", "4", "5")
		s.open("1")
		s.wantReleased("1", "2", "3", "4", "5")
		<-l.Drained()
		s.Wait()
		s.wantTasks([]string{"1", "2"})
	})
}

// TestResumedBatchItem (C8): a resumed item goes into a later batch and lingers no longer than any other.
func TestResumedBatchItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, Options[thing]{BatchSize: 3, BatchLinger: 10 * time.Millisecond})
		l := s.Open(1, ByKey, nil, 0, 0)
		s.holdOnce("b/1")
		l.Push(0, things("a/1", "b/1", "c/1", "b/2"))
		s.wantTasks([]string{"a/1", "b/1", "c/1"})
		time.Sleep(time.Hour)
		s.Resume(s.holds["b/1"])
		l.Push(0, things("d/1"))
		time.Sleep(10 * time.Millisecond)
		s.wantTasks([]string{"a/1", "b/1", "c/1"}, []string{"b/1", "d/1"}, []string{"b/2"})
		l.Close()
		s.Wait()
	})
}
