package workers

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestCompleted (C1, C8): what was marked is told of once, before it is released, and before the lane counts as
// drained; what ran before a record that is stuck is told of while that is stuck; what never ran to its end is not.
func TestCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var completed, released []uint64
		gate := make(chan struct{})
		var ticket Ticket
		o := Options[uint64]{Total: 1,
			Handle: func(t *Task[uint64]) {
				switch *t.Item(0) {
				case 40:
					<-gate
				case 50:
					ticket = t.Hold(0, 50, nil)
				case 55:
					return
				}
				t.Mark(0)
			},
			Completed: func(_ *Lane[uint64], done []Span) {
				mu.Lock()
				defer mu.Unlock()
				for _, s := range done {
					for it := s.First; it < s.First+uint64(s.N); it++ {
						if slices.Contains(released, it) {
							panic(fmt.Sprint(it, " was released before"))
						}
						completed = append(completed, it)
					}
				}
			},
			Release: func(items []uint64) {
				mu.Lock()
				defer mu.Unlock()
				released = append(released, items...)
			},
		}
		p := New(o)
		l := p.Open(1, Unordered, nil, 0, 0)
		l.Push(0, numbersFrom(0, 60))
		time.Sleep(10 * time.Millisecond) // virtual: the monitor looks each millisecond
		synctest.Wait()
		mu.Lock()
		if len(completed) < 39 || slices.Contains(completed, 40) { // the chunk's first ones wait for no one
			t.Errorf("while 40 is stuck: %v", completed)
		}
		mu.Unlock()
		close(gate)
		synctest.Wait()
		mu.Lock()
		if len(completed) != 58 || slices.Contains(completed, 50) || slices.Contains(completed, 55) {
			t.Errorf("%d completed, or the held one or the unmarked one among them", len(completed))
		}
		mu.Unlock()
		l.Close()
		select {
		case <-l.Drained():
			t.Error("drained with a held item")
		default:
		}
		p.Finish(ticket)
		<-l.Drained()
		p.Wait()
		slices.Sort(completed)
		if n := len(slices.Compact(completed)); n != 58 || len(released) != 60 {
			t.Errorf("%d completed once, %d released", n, len(released))
		}
	})
}
