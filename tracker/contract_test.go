package tracker

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// at fails unless the frontier is the offset.
func at(t *testing.T, tr *Tracker, want int64) {
	t.Helper()
	if got, _ := tr.Frontier(); got != want {
		t.Fatalf("frontier %d, want %d", got, want)
	}
}

func add(t *testing.T, tr *Tracker, offsets ...int64) Seq {
	t.Helper()
	s, err := tr.Add(offsets, 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// C1: the engine committed what was polled instead of what was finished.
// Delivered records that never ran hold the frontier, and Close does not move it.
// Seen at confluentinc/parallel-consumer#826.
func TestDeliveredIsNotDone(t *testing.T) {
	tr := New(0, 1, Options{})
	add(t, tr, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	at(t, tr, 0)
	tr.Close()
	at(t, tr, 0)
	if tr.Done(0) {
		t.Fatal("done on a closed tracker")
	}
	at(t, tr, 0)
}

// C1: the frontier and the set beyond it came from two readings. Here
// completions arrive between the words of one reading, behind and ahead of it, and
// the window must be exactly the one of what was read.
// Seen at confluentinc/parallel-consumer#894.
func TestSnapshotIsOneReading(t *testing.T) {
	for _, seed := range seeds(t, 50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 100 + rng.IntN(2500)
		tr, read, now := New(0, 1, Options{}), newTwin(0, 1, n), newTwin(0, 1, n)
		offsets := make([]int64, n)
		for i := range offsets {
			offsets[i] = int64(3 * i)
		}
		add(t, tr, offsets...)
		read.add(offsets, 1)
		now.add(offsets, 1)
		complete := func() {
			head := now.oldest()
			for range rng.IntN(20) {
				s := Seq(head + rng.IntN(n-head))
				if rng.IntN(2) == 0 {
					s = Seq(head) // tempt the frontier to move meanwhile
				}
				tr.Done(s)
				now.doneOne(s)
				if head = now.oldest(); head == n {
					return
				}
			}
		}
		tr.onRead = func(s Seq) { // the word of s was just read: it holds the bits of now
			for i := int(s); i < min(int(s)+wordBits, n); i++ {
				read.all[i].done = now.all[i].done
			}
			if now.oldest() < n {
				complete()
			}
		}
		complete()
		for range 5 {
			var w Window
			tr.Snapshot(&w)
			// Words below the frontier are not read again; they are done.
			want := read.window(0, false)
			w.base, w.places, w.words = 0, nil, nil
			if w.Frontier != want.Frontier || w.Highest != want.Highest || !slices.Equal(w.Undone, want.Undone) {
				t.Fatalf("GAPLESS_SEED=%d: window %+v, want %+v", seed, w, want)
			}
			if w.Highest > w.Frontier && w.Undone[0] != w.Frontier {
				t.Fatalf("GAPLESS_SEED=%d: the frontier %d is not the first of %d", seed, w.Frontier, w.Undone)
			}
		}
	}
}

// C2: contiguity was taken from the offsets, so that a hole stopped the
// commit for ever, and the first repair acknowledged unfinished records.
// Seen at spring-projects/spring-kafka#4258, redpanda-data/connect#701.
func TestHolesAreNotWork(t *testing.T) {
	tr := New(0, 1, Options{})
	add(t, tr, 0, 2, 4, 6)
	for _, s := range []Seq{0, 1, 3} { // offsets 0, 2, 6
		tr.Done(s)
	}
	at(t, tr, 4)
	tr.Done(2)
	at(t, tr, 7)
}

// C2: a trailing transaction marker is passed, but never before the records in
// front of it are done, and records behind it go on as usual.
func TestPassTrailingMarker(t *testing.T) {
	tr := New(0, 1, Options{})
	add(t, tr, 0, 1)
	tr.Pass(3)
	at(t, tr, 0)
	tr.DoneRange(0, 2)
	at(t, tr, 3)
	tr.Pass(2)
	at(t, tr, 3)
	if _, err := tr.Add([]int64{2}, 1); err != ErrOrder {
		t.Fatalf("an offset below the position: %v, want ErrOrder", err)
	}
	add(t, tr, 5)
	at(t, tr, 5)
	tr.Done(2)
	at(t, tr, 6)
}

// C2: the window lists delivered offsets only, so no record that compaction
// removed is ever waited for, at a batch boundary neither.
// Seen at confluentinc/parallel-consumer#329.
func TestNoPhantomUndone(t *testing.T) {
	tr := New(4, 1, Options{})
	add(t, tr, 6, 7, 8)
	add(t, tr, 10, 11, 12)
	tr.Done(5)
	var w Window
	tr.Snapshot(&w)
	if want := []int64{6, 7, 8, 10, 11}; !slices.Equal(w.Undone, want) {
		t.Fatalf("undone %d, want %d", w.Undone, want)
	}
	tr.DoneRange(0, 5)
	at(t, tr, 13)
}

// C3: a completion of the previous delivery of an offset was taken for
// one of the new delivery. One epoch is one Tracker; the old one only counts.
// Seen at spring-projects/spring-kafka#4687, redpanda-data/connect#4477.
func TestStaleAckAfterReassignment(t *testing.T) {
	old := New(0, 1, Options{})
	s := add(t, old, 0, 1, 2)
	old.Close()
	fresh := New(0, 1, Options{})
	add(t, fresh, 0, 1, 2)
	if old.Done(s) || old.DoneRange(s, 3) != 0 {
		t.Fatal("a dead epoch took a completion")
	}
	at(t, fresh, 0)
	if st := old.Stats(); st.StaleDone != 4 || st.DoneCount != 0 || st.Forgotten != 3 {
		t.Fatalf("stats %+v", st)
	}
	if _, err := old.Add([]int64{3}, 1); err != ErrClosed {
		t.Fatalf("Add on a closed tracker: %v", err)
	}
}

// C3: after a Rebase, in both directions and in the middle of a word, completions
// of what was outstanding change nothing, also where old and new records share a
// word.
func TestStaleDoneAfterRebase(t *testing.T) {
	for _, to := range []int64{0, 1000} {
		tr := New(100, 1, Options{})
		tr.AddRange(100, 10, 1)
		tr.DoneRange(0, 5)
		tr.Rebase(to, 2)
		at(t, tr, to)
		s, err := tr.AddRange(to, 10, 2)
		if s != 10 || err != nil {
			t.Fatalf("first number after Rebase %d, %v; want 10", s, err)
		}
		if tr.Done(7) || tr.DoneRange(0, 10) != 0 {
			t.Fatal("a forgotten record was done")
		}
		if !tr.IsDone(7) || tr.Undone(0, 20) != 10 {
			t.Fatal("forgotten records are still waited for")
		}
		if newly := tr.DoneRange(8, 4); newly != 2 { // two old, two new
			t.Fatalf("%d newly done, want 2", newly)
		}
		at(t, tr, to+2)
		if st := tr.Stats(); st.StaleDone != 13 || st.DoubleDone != 0 || st.Forgotten != 5 || st.DoneCount != 7 {
			t.Fatalf("stats %+v", st)
		}
	}
}

// C3: a second completion changes nothing but its counter, above the frontier
// and below it, and one for a record that was never delivered is not remembered.
func TestDoubleAndUnknownDone(t *testing.T) {
	tr := New(0, 1, Options{})
	tr.AddRange(0, 3, 1)
	if !tr.Done(1) || tr.Done(1) || !tr.Done(0) {
		t.Fatal("Done is true the first time only")
	}
	at(t, tr, 2)
	if tr.Done(0) || tr.Done(3) || tr.DoneRange(3, 5) != 0 {
		t.Fatal("done below the frontier or above the tail")
	}
	tr.AddRange(3, 1, 1)
	if tr.IsDone(3) {
		t.Fatal("a record was done before it was delivered")
	}
	if st := tr.Stats(); st.DoubleDone != 2 || st.StaleDone != 6 || st.DoneCount != 2 {
		t.Fatalf("stats %+v", st)
	}
}

// C1: the slot of a page that was let go is used again. A late second completion
// of an old record must not be one of the record that has its slot now.
func TestLateDoneHitsNoReusedSlot(t *testing.T) {
	tr := New(0, 1, Options{})
	for page := range int64(4) {
		s, _ := tr.AddRange(page*pageBits, pageBits, 1)
		for old := Seq(0); old < s; old += 100 {
			if tr.Done(old) {
				t.Fatalf("%d was done twice", old)
			}
		}
		if n := tr.Undone(s, pageBits); n != pageBits {
			t.Fatalf("%d of page %d are undone, want all", n, page)
		}
		tr.DoneRange(s, pageBits)
		at(t, tr, (page+1)*pageBits)
	}
}

// C1: "mark the highest" loses what is below it. Record 3 blocks, 4 to 9
// finish; the commit is 3, and the window has the rest.
// Seen at IBM/sarama#1840.
func TestCommitNeverAboveUnfinished(t *testing.T) {
	tr := New(0, 1, Options{})
	tr.AddRange(0, 10, 1)
	tr.DoneRange(0, 3)
	tr.DoneRange(4, 6)
	at(t, tr, 3)
	var w Window
	tr.Snapshot(&w)
	if w.Frontier != 3 || w.Highest != 9 || !slices.Equal(w.Undone, []int64{3}) {
		t.Fatalf("window %+v", w)
	}
	for offset, want := range []bool{true, true, true, false, true, true, true, true, true, true, false} {
		if w.Done(int64(offset)) != want {
			t.Errorf("offset %d settled: %v", offset, !want)
		}
	}
}

// C1: a sentinel was taken for an offset. An unknown position stays unknown
// until a record arrives, whatever negative number it was given as.
// Seen at grafana/mimir#16125.
func TestSentinelIsNoOffset(t *testing.T) {
	for _, sentinel := range []int64{-1, -2, -1 << 63} {
		tr := New(sentinel, -1, Options{})
		at(t, tr, NoOffset)
		var w Window
		tr.Snapshot(&w)
		if w.Frontier != NoOffset || w.Highest != NoOffset || w.Done(0) {
			t.Fatalf("window %+v", w)
		}
		if _, err := tr.AddRange(sentinel, 1, 1); err != ErrOrder {
			t.Fatalf("sentinel as a record's offset: %v", err)
		}
		add(t, tr, 42)
		at(t, tr, 42)
		tr.Rebase(sentinel, -1)
		at(t, tr, NoOffset)
	}
}

// C7: the span is bounded whether its records are done or not, a refused Add
// leaves no trace, and the head makes room.
func TestSpanBound(t *testing.T) {
	tr := New(0, 1, Options{MaxSpan: 100})
	tr.AddRange(0, 100, 1)
	tr.DoneRange(1, 99)
	if _, err := tr.Add([]int64{100, 102}, 1); err != ErrSpan {
		t.Fatalf("beyond the bound: %v", err)
	}
	if s, next := tr.Next(); s != 100 || next != 100 {
		t.Fatalf("a refused Add moved the tail to %d, offset %d", s, next)
	}
	tr.Done(0)
	add(t, tr, 100, 102)
	at(t, tr, 100)
}
