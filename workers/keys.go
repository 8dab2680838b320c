package workers

// keys finds the last unfinished item of each key. It knows only keys that are in flight, held, or waited for, so it is
// small whatever the number of keys in the topic. Buckets are chains through the slots, which need no memory of their
// own and keep working when many keys share one hash.
type keys[T any] struct {
	heads []*slot[T] // its length is a power of two, or zero
	n     int
}

// register makes s the last item of its key and returns the one that was last before, or nil if the key was free. same
// says whether an item that is already in the table has this key.
func (k *keys[T]) register(s *slot[T], hash uint64, key []byte, same func(*T, []byte) bool) (before *slot[T]) {
	if k.n >= len(k.heads) {
		k.resize(max(2*len(k.heads), 64))
	}
	s.hash, s.keyed = hash, true
	at := &k.heads[hash&uint64(len(k.heads)-1)]
	for before = *at; before != nil; at, before = &before.chain, before.chain {
		// The earlier item is unfinished and so not released: its key can be read.
		if before.hash == hash && same(before.ref(), key) {
			s.chain, before.chain = before.chain, nil
			*at = s
			before.next = s
			return before
		}
	}
	if s.chain != nil {
		s.chain = nil
	}
	*at = s
	k.n++
	return nil
}

// remove takes out s, which is the last item of its key.
func (k *keys[T]) remove(s *slot[T]) {
	at := &k.heads[s.hash&uint64(len(k.heads)-1)]
	for *at != s {
		at = &(*at).chain
	}
	if *at = s.chain; s.chain != nil {
		s.chain = nil
	}
	k.n--
}

// withdraw undoes the register that made s the last item of its key and returned the one before.
func (k *keys[T]) withdraw(s, before *slot[T]) {
	before.next, s.keyed = nil, false
	k.replace(s, before)
}

// replace puts s in the place of old, which is the last item of its key.
func (k *keys[T]) replace(old, s *slot[T]) {
	at := &k.heads[old.hash&uint64(len(k.heads)-1)]
	for *at != old {
		at = &(*at).chain
	}
	s.chain, old.chain = old.chain, nil
	*at = s
}

// add puts in s, whose key is known not to be in the table.
func (k *keys[T]) add(s *slot[T]) {
	at := &k.heads[s.hash&uint64(len(k.heads)-1)]
	s.chain, *at = *at, s
	k.n++
}

// clear empties the table. The slots in it keep stale chains; add overwrites them.
func (k *keys[T]) clear() {
	clear(k.heads)
	k.n = 0
}

func (k *keys[T]) resize(size int) {
	old := k.heads
	k.heads, k.n = make([]*slot[T], size), 0
	for _, s := range old {
		for s != nil {
			next := s.chain
			k.add(s)
			s = next
		}
	}
}
