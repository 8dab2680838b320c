package dedupe

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// Bits a key. The filter of a bucket answers for nearly every new key, and a false positive there costs a look at each
// part's own filter; a false positive of both costs a read. Together they leave fewer than one read in a thousand keys.
const (
	bucketBits = 10
	partBits   = 8
)

// bloom is a blocked Bloom filter: a key has one 64-byte block, and one bit in each of its eight words. The bits of the
// key are used as they are, since a Key is already a keyed hash. The block goes by the high bits, so that keys in order
// walk the filter in order.
//
// Any number of goroutines may add and ask at once.
type bloom struct {
	words  []uint64
	blocks uint64
	ofPart bool // it goes by other bits of the key than a bucket's, so that both are seldom wrong about the same key
}

func newBloom(keys, bitsPerKey int, ofPart bool) *bloom {
	blocks := max(1, (keys*bitsPerKey+511)/512)
	return &bloom{words: make([]uint64, blocks*8), blocks: uint64(blocks), ofPart: ofPart}
}

// block returns the key's block, and the bits that it has there, six of the pattern's lower 48 in each word.
func (b *bloom) block(k *Key) (words *[8]uint64, pattern uint64) {
	high, low := binary.BigEndian.Uint64(k[:8]), binary.LittleEndian.Uint64(k[8:])
	if b.ofPart {
		low = low>>48 | high<<16 // what a bucket leaves over, and what hardly decides on the block
	}
	at, _ := bits.Mul64(high, b.blocks)
	return (*[8]uint64)(b.words[at*8:]), low
}

func (b *bloom) add(k *Key) {
	words, p := b.block(k)
	for i := range words {
		if bit := uint64(1) << (p & 63); atomic.LoadUint64(&words[i])&bit == 0 {
			atomic.OrUint64(&words[i], bit)
		}
		p >>= 6
	}
}

// addAlone is add for who has the filter to itself.
func (b *bloom) addAlone(k *Key) {
	words, p := b.block(k)
	for i := range words {
		words[i] |= 1 << (p & 63)
		p >>= 6
	}
}

func (b *bloom) has(k *Key) bool {
	words, p := b.block(k)
	for i := range words {
		if atomic.LoadUint64(&words[i])&(1<<(p&63)) == 0 {
			return false
		}
		p >>= 6
	}
	return true
}

func (b *bloom) bytes() int { return len(b.words) * 8 }

// filter is the filter of a bucket. It is made for as many keys as the bucket before had; when more come, a layer of
// four times the size goes on top: each one costs every later lookup a cache line. One goroutine adds.
type filter struct {
	layers atomic.Pointer[[]*bloom]
	room   int // keys that the top layer still takes
	size   int // keys that the top layer was made for
}

const smallestFilter = 64 << 10 // keys

func newFilter(keys int) *filter {
	f := &filter{}
	f.layers.Store(new([]*bloom))
	f.grow(max(keys, smallestFilter))
	return f
}

func (f *filter) grow(keys int) {
	// A group overshoots by a few keys; a whole layer for those few would cost every later lookup a cache line.
	layers := append([]*bloom{newBloom(keys+keys/32, bucketBits, false)}, *f.layers.Load()...)
	f.layers.Store(&layers)
	f.room, f.size = keys+keys/32, keys
}

func (f *filter) add(k *Key) {
	if f.room == 0 {
		f.grow(4 * f.size)
	}
	f.room--
	(*f.layers.Load())[0].add(k)
}

func (f *filter) has(k *Key) bool {
	for _, b := range *f.layers.Load() {
		if b.has(k) {
			return true
		}
	}
	return false
}

func (f *filter) bytes() (n int) {
	for _, b := range *f.layers.Load() {
		n += b.bytes()
	}
	return n
}
