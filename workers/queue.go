package workers

// queue holds the items that nobody has claimed, oldest first, in a ring that doubles when it is full.
type queue[T any] struct {
	buf  []T // its length is a power of two, or zero
	head int // the oldest item
	n    int
}

// push appends copies of the items.
func (q *queue[T]) push(items []T) {
	if q.n+len(items) > len(q.buf) {
		q.grow(q.n + len(items))
	}
	tail := (q.head + q.n) & (len(q.buf) - 1)
	k := copy(q.buf[tail:], items)
	copy(q.buf, items[k:])
	q.n += len(items)
}

// pop takes the oldest item out and leaves nothing behind that would keep it alive.
func (q *queue[T]) pop() T {
	at := &q.buf[q.head]
	item := *at
	var none T
	*at = none
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	return item
}

// each visits the items, oldest first, where they lie.
func (q *queue[T]) each(fn func(item *T)) {
	for i := range q.n {
		fn(&q.buf[(q.head+i)&(len(q.buf)-1)])
	}
}

func (q *queue[T]) grow(need int) {
	size := max(2*len(q.buf), 16)
	for size < need {
		size *= 2
	}
	buf := make([]T, size)
	k := copy(buf, q.buf[q.head:])
	copy(buf[k:], q.buf[:q.head])
	q.buf, q.head = buf, 0
}
