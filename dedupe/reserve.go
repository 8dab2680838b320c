package dedupe

import "encoding/binary"

// reservation is a key that is held, or marked and not durable yet.
type reservation struct {
	key     Key
	token   uint64 // 0: the slot is empty
	marked  bool   // given to Mark: can no longer be released
	waiters *[]Tag
}

// reservations is a set of them: a hash table with linear probing. A key is a hash already, so it is not hashed again, and each look
// that it gets costs about one cache line, where a map costs two or three. It never shrinks: what it holds is bounded by
// what runs and what is pending.
type reservations struct {
	slots []reservation // a power of two of them, at least one empty
	n     int
}

const fewestSlots = 16

func (r *reservations) home(k *Key) int {
	return int(binary.LittleEndian.Uint32(k[4:])) & (len(r.slots) - 1)
}

// find returns the reservation of a key, or nil. It is good until the set changes.
func (r *reservations) find(k *Key) *reservation {
	if r.n == 0 {
		return nil
	}
	for i := r.home(k); ; i = (i + 1) & (len(r.slots) - 1) {
		switch s := &r.slots[i]; {
		case s.token == 0:
			return nil
		case s.key == *k:
			return s
		}
	}
}

// add reserves a key that is not reserved.
func (r *reservations) add(k *Key, token uint64) {
	if 4*(r.n+1) > 3*len(r.slots) {
		r.grow()
	}
	r.put(reservation{key: *k, token: token})
	r.n++
}

func (r *reservations) put(v reservation) {
	i := r.home(&v.key)
	for r.slots[i].token != 0 {
		i = (i + 1) & (len(r.slots) - 1)
	}
	r.slots[i] = v
}

func (r *reservations) grow() {
	old := r.slots
	r.slots = make([]reservation, max(2*len(old), fewestSlots))
	for i := range old {
		if old[i].token != 0 {
			r.put(old[i])
		}
	}
}

// remove ends the reservation of a key, if there is one, and returns who waits for it. What follows moves up, so that no probe ends
// too early.
func (r *reservations) remove(k *Key) (waiters *[]Tag) {
	s := r.find(k)
	if s == nil {
		return nil
	}
	waiters = s.waiters
	mask := len(r.slots) - 1
	hole := r.home(k)
	for &r.slots[hole] != s {
		hole = (hole + 1) & mask
	}
	for next := (hole + 1) & mask; r.slots[next].token != 0; next = (next + 1) & mask {
		if home := r.home(&r.slots[next].key); (next-home)&mask >= (next-hole)&mask {
			r.slots[hole] = r.slots[next]
			hole = next
		}
	}
	r.slots[hole] = reservation{}
	r.n--
	return waiters
}
