package tracker

import "sort"

const (
	// shortRun is the number of records below which a dense stretch is cheaper as
	// two bytes a record inside a sparse run than as a run of its own, 48 bytes
	// and as much again for the sparse run that has to be opened after it.
	shortRun = 32
	// sparseMax bounds a sparse run, because it is released as a whole.
	sparseMax = 1024
)

// run gives the offsets of consecutive sequence numbers. It ends where the next
// run begins, the last one at the tail.
type run struct {
	seq   Seq
	first int64
	epoch int32 // leader epoch
	// rel is nil in a dense run, where the record seq+i has the offset first+i. In
	// a sparse run it has first+rel[i].
	rel []uint16
}

func (r *run) offset(s Seq) int64 {
	if r.rel != nil {
		return r.first + int64(r.rel[s-r.seq])
	}
	return r.first + int64(s-r.seq)
}

// runs is a queue of runs in the order of delivery. A dense log of any length is
// one run; each long dense stretch between holes is one, and short stretches share
// a sparse one.
type runs struct {
	list []run
	head int // list[:head] is empty space
}

// add appends n records without a hole, the first of which has the number seq,
// which is the end of what the queue holds.
func (q *runs) add(seq Seq, first int64, n int, epoch int32) {
	if q.head < len(q.list) {
		last := &q.list[len(q.list)-1]
		if last.epoch == epoch && last.absorb(seq, first, n) {
			return
		}
	}
	q.list = append(q.list, run{seq: seq, first: first, epoch: epoch})
}

// absorb lets the last run take n more records, if that is the smaller way.
func (r *run) absorb(seq Seq, first int64, n int) bool {
	length := int(seq - r.seq)
	if r.rel == nil && first == r.first+int64(length) {
		return true // dense goes on: its end is the tail
	}
	switch {
	case n >= shortRun || length+n > sparseMax || first+int64(n)-1-r.first > 1<<16-1:
		return false
	case r.rel == nil && length >= shortRun:
		return false
	case r.rel == nil:
		r.rel = make([]uint16, 0, 2*shortRun)
		for i := range length {
			r.rel = append(r.rel, uint16(i))
		}
	}
	if need := length + n; need > cap(r.rel) { // append would leave a quarter unused
		r.rel = append(make([]uint16, 0, min(2*need, sparseMax)), r.rel...)
	}
	for i := range n {
		r.rel = append(r.rel, uint16(first-r.first)+uint16(i))
	}
	return true
}

// find returns the index of the run of s.
func (q *runs) find(s Seq) int {
	live := q.list[q.head:]
	return q.head + sort.Search(len(live), func(i int) bool { return live[i].seq > s }) - 1
}

func (q *runs) offset(s Seq) int64 {
	return q.list[q.find(s)].offset(s)
}

// firstOffset is offset for a number that lies in the first run.
func (q *runs) firstOffset(s Seq) int64 {
	return q.list[q.head].offset(s)
}

// dropBelow lets go of the runs that lie wholly below f and returns the leader
// epoch of the record before f, which the queue must hold.
func (q *runs) dropBelow(f, tail Seq) (epoch int32) {
	i := q.head
	for i+1 < len(q.list) && q.list[i+1].seq < f {
		i++
	}
	epoch = q.list[i].epoch
	if f == tail || i+1 < len(q.list) && q.list[i+1].seq == f {
		i++
	}
	if i > q.head {
		clear(q.list[q.head:i]) // the sparse offsets go at once
		q.head = i
		q.compact()
	}
	return epoch
}

// compact moves the runs to the front once half of the space before them is
// empty, and to a smaller place if they have become few.
func (q *runs) compact() {
	live := q.list[q.head:]
	if q.head < len(live) {
		return
	}
	if cap(q.list) > 4 && cap(q.list) >= 4*len(live) {
		q.list = append(make([]run, 0, max(2*len(live), 1)), live...)
	} else {
		n := copy(q.list, live)
		clear(q.list[n:])
		q.list = q.list[:n]
	}
	q.head = 0
}
