package workers

// state says where the item of a slot stands.
type state uint8

const (
	free    state = iota // no item
	ready                // may run; it is in the list of ready slots
	blocked              // waits for an earlier item of its key, which points at it with next
	claimed              // in a worker's chunk: to be run, running, or run and not yet accounted for
	chained              // as claimed, and the item of its key before it is in the same chunk
	parked               // held by Task.Hold, and its handler has returned
)

// slot is the place of an item that is past the queue, and not in a run. Its address does not change, so that a handler can work on the
// item in place. All but the item of a running handler is guarded by the partition's lock.
type slot[T any] struct {
	item   T
	number uint64
	memo   any // what Hold was given to remember
	hash   uint64
	came   int64 // when it was pushed or resumed, in a pool that makes batches

	chain *slot[T]   // next slot in the same bucket of the key table
	next  *slot[T]   // the item that waits for this one's key
	link  *slot[T]   // next slot in the list of ready slots or of free ones, if it is in one
	by    *worker[T] // whose chunk it is in, if it is claimed or chained

	state   state
	standIn bool    // its item lies in the run of by; see keyrun.go
	keyed   bool    // it has a key, so it stands in the key table or another slot of its key stands there for it
	resumed bool    // it was held before
	holding bool    // Hold was called and the handler has not returned yet
	verdict verdict // what Resume or Finish said in that time
}

// ref is where the item is.
func (s *slot[T]) ref() *T {
	if s.standIn {
		return &s.by.run[s.number-s.by.runFirst]
	}
	return &s.item
}

// pageSize slots are allocated at a time.
const pageSize = 32

// slab hands out slots and takes them back. The slot that was given back last goes out first: it is still in the cache.
type slab[T any] struct {
	pages []*[pageSize]slot[T]
	free  *slot[T]
	used  int
}

// take returns an empty slot for the item. The caller sets its state.
func (b *slab[T]) take(item T, number uint64) *slot[T] {
	s := b.free
	if s == nil {
		s = b.addPage()
	}
	b.free = s.link
	b.used++
	s.item, s.number = item, number
	return s
}

// give takes a slot back and forgets what is in it. Pointers that are nil already are not written: while the collector marks, it is
// told of each that is.
func (b *slab[T]) give(s *slot[T]) {
	var none T
	s.item = none
	if s.next != nil {
		s.next = nil
	}
	if s.memo != nil {
		s.memo = nil
	}
	s.state, s.keyed, s.resumed, s.holding, s.verdict = free, false, false, false, pending
	s.link, b.free = b.free, s
	b.used--
}

// each visits the slots that are in use, in no particular order. fn may give the slot back.
func (b *slab[T]) each(fn func(s *slot[T])) {
	for _, page := range b.pages {
		for i := range page {
			if page[i].state != free {
				fn(&page[i])
			}
		}
	}
}

func (b *slab[T]) addPage() *slot[T] {
	page := new([pageSize]slot[T])
	for i := range page[1:] {
		page[i].link = &page[i+1]
	}
	page[pageSize-1].link = b.free
	b.free = &page[0]
	b.pages = append(b.pages, page)
	return b.free
}

// list is a first-in-first-out list of slots that are ready, linked through the slots themselves.
type list[T any] struct {
	head, tail *slot[T]
	n          int
}

func (q *list[T]) pushBack(s *slot[T]) {
	if s.link = nil; q.tail == nil {
		q.head = s
	} else {
		q.tail.link = s
	}
	q.tail = s
	q.n++
}

func (q *list[T]) pushFront(s *slot[T]) {
	if q.tail == nil {
		q.tail = s
	}
	s.link, q.head = q.head, s
	q.n++
}

func (q *list[T]) pop() *slot[T] {
	s := q.head
	q.head = s.link
	if q.head == nil {
		q.tail = nil
	}
	q.n--
	return s
}
