package dedupe

import (
	"encoding/binary"
	"sync/atomic"
)

// entrySize is what a mark takes on disk: 16 bytes of key, 3 of time, 5 of fingerprint.
const entrySize = 24

// entry is a mark as it is written.
type entry [entrySize]byte

// forgotten stands in the place of the time in an entry that takes older marks of its key back.
const forgotten = 1<<24 - 1

const fingerprintMask = 1<<40 - 1

func (e *entry) set(k *Key, at uint32, fp uint64) {
	copy(e[:16], k[:])
	binary.BigEndian.PutUint64(e[16:], uint64(at)<<40|fp&fingerprintMask)
}

func (e *entry) key() *Key { return (*Key)(e[:16]) }

func (e *entry) at() uint32 { return uint32(binary.BigEndian.Uint64(e[16:]) >> 40) }

func (e *entry) fingerprint() uint64 { return binary.BigEndian.Uint64(e[16:]) & fingerprintMask }

const chunkEntries = 1 << 12

// arena holds the entries of a part that is not sealed, in the order of their coming, with an index by key. One
// goroutine adds; any number may ask meanwhile. An entry is never changed after it can be found, and a later entry
// of the same key takes the place of the earlier one in the index.
type arena struct {
	chunks []atomic.Pointer[[chunkEntries]entry]
	index  atomic.Pointer[arenaIndex]
	n      atomic.Int64
	keys   int // different ones
}

type arenaIndex struct {
	slots []uint32 // number of the entry + 1; 0 is empty
	mask  uint32
}

// newArena makes room for so many entries; memory comes as they do.
func newArena(most int) *arena {
	a := &arena{chunks: make([]atomic.Pointer[[chunkEntries]entry], (most+chunkEntries-1)/chunkEntries)}
	a.index.Store(newArenaIndex(1 << 10))
	return a
}

func newArenaIndex(n int) *arenaIndex {
	return &arenaIndex{slots: make([]uint32, n), mask: uint32(n - 1)}
}

func (a *arena) len() int { return int(a.n.Load()) }

func (a *arena) at(i int) *entry { return &a.chunks[i/chunkEntries].Load()[i%chunkEntries] }

func (a *arena) add(e *entry) {
	i := a.len()
	c := a.chunks[i/chunkEntries].Load()
	if c == nil {
		c = new([chunkEntries]entry)
		a.chunks[i/chunkEntries].Store(c)
	}
	c[i%chunkEntries] = *e
	a.n.Store(int64(i + 1))
	x := a.index.Load()
	if a.keys >= len(x.slots)/4*3 {
		x = a.rehash(x)
	}
	slot, old := a.find(x, e.key())
	if old == nil {
		a.keys++
	}
	atomic.StoreUint32(slot, uint32(i+1))
}

// find returns the slot of a key and its entry, or the slot where it would go and nil.
func (a *arena) find(x *arenaIndex, k *Key) (*uint32, *entry) {
	for i := binary.LittleEndian.Uint32(k[12:]) & x.mask; ; i = (i + 1) & x.mask {
		n := atomic.LoadUint32(&x.slots[i])
		if n == 0 {
			return &x.slots[i], nil
		}
		if e := a.at(int(n - 1)); *e.key() == *k {
			return &x.slots[i], e
		}
	}
}

func (a *arena) get(k *Key) *entry {
	_, e := a.find(a.index.Load(), k)
	return e
}

func (a *arena) rehash(old *arenaIndex) *arenaIndex {
	x := newArenaIndex(2 * len(old.slots))
	for _, n := range old.slots {
		if n == 0 {
			continue
		}
		i := binary.LittleEndian.Uint32(a.at(int(n - 1))[12:]) & x.mask
		for x.slots[i] != 0 {
			i = (i + 1) & x.mask
		}
		x.slots[i] = n
	}
	a.index.Store(x)
	return x
}

// newest returns the entry of each key, the latest of it, unordered.
func (a *arena) newest() []entry {
	out := make([]entry, 0, a.keys)
	for _, n := range a.index.Load().slots {
		if n != 0 {
			out = append(out, *a.at(int(n - 1)))
		}
	}
	return out
}

func (a *arena) bytes() int {
	return (a.len()+chunkEntries-1)/chunkEntries*chunkEntries*entrySize + len(a.index.Load().slots)*4
}
