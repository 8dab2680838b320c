package workers

// segment is a stretch of items with consecutive numbers: a push, or what is left of one.
type segment[T any] struct {
	items []T
	first uint64 // the number of the first one
	at    int    // the items before it were taken out
	lent  bool   // a run of it lies somewhere, so the places of items that went elsewhere must not keep them alive
}

// queue holds the items that nobody has claimed, oldest first, as the segments in which they came: no item is moved. Its
// ring doubles when it is full.
type queue[T any] struct {
	ring []segment[T] // its length is a power of two, or zero
	head int          // the oldest segment
	used int          // segments
	n    int          // items
}

func (q *queue[T]) slot(i int) *segment[T] { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

// push puts the items, of which there is at least one, behind all others.
func (q *queue[T]) push(items []T, first uint64) {
	q.grow()
	*q.slot(q.used) = segment[T]{items: items, first: first}
	q.used++
	q.n += len(items)
}

// unshift puts items that were taken out before all others.
func (q *queue[T]) unshift(items []T, first uint64) {
	q.grow()
	q.head = (q.head - 1) & (len(q.ring) - 1)
	*q.slot(0) = segment[T]{items: items, first: first, lent: true}
	q.used++
	q.n += len(items)
}

// oldest is the number of items in the oldest segment.
func (q *queue[T]) oldest() int {
	s := q.slot(0)
	return len(s.items) - s.at
}

// cut takes up to most items off the oldest segment, where they lie, and returns the number of the first one.
func (q *queue[T]) cut(most int) (items []T, first uint64) {
	s := q.slot(0)
	if !s.lent {
		s.lent = true
		clear(s.items[:s.at])
	}
	n := min(most, len(s.items)-s.at)
	items, first = s.items[s.at:s.at+n:s.at+n], s.first+uint64(s.at)
	q.advance(s, n)
	return items, first
}

// peek is what cut would take, and leaves it there.
func (q *queue[T]) peek(most int) (items []T, first uint64) {
	s := q.slot(0)
	return s.items[s.at:min(s.at+most, len(s.items))], s.first + uint64(s.at)
}

// pop takes the oldest item out. What is left behind of it goes with its segment.
func (q *queue[T]) pop() (item T, number uint64) {
	s := q.slot(0)
	item, number = s.items[s.at], s.first+uint64(s.at)
	if s.lent {
		var none T
		s.items[s.at] = none
	}
	q.advance(s, 1)
	return item, number
}

func (q *queue[T]) advance(s *segment[T], n int) {
	q.n -= n
	if s.at += n; s.at == len(s.items) {
		*s = segment[T]{}
		q.head = (q.head + 1) & (len(q.ring) - 1)
		q.used--
	}
}

// each visits the items, oldest first, where they lie.
func (q *queue[T]) each(fn func(item *T, number uint64)) {
	for i := range q.used {
		s := q.slot(i)
		for j := s.at; j < len(s.items); j++ {
			fn(&s.items[j], s.first+uint64(j))
		}
	}
}

// grow makes room for one more segment.
func (q *queue[T]) grow() {
	if q.used < len(q.ring) {
		return
	}
	ring := make([]segment[T], max(2*len(q.ring), 4))
	k := copy(ring, q.ring[q.head:])
	copy(ring[k:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}
