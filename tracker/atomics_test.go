package tracker

import (
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkAtomics is the least that a completion can cost for a record by itself, on the processor at hand: other goroutines must see it, so
// it ends in one of these. Done is the first, and what the loop itself takes is the last. An addition spoils the word where a record is done
// twice; a word for each record takes 32 times the memory.
func BenchmarkAtomics(b *testing.B) {
	var bits [poll / wordBits]atomic.Uint64
	var words [poll]atomic.Uint32
	var mu sync.Mutex
	var plain [poll]uint32
	for _, x := range []struct {
		name string
		do   func(s Seq, round uint32) (newly bool)
	}{
		{"OrABit", func(s Seq, _ uint32) bool { return bits[s/wordBits].Or(1<<(s%wordBits))>>(s%wordBits)&1 == 0 }},
		{"AddABit", func(s Seq, _ uint32) bool { return bits[s/wordBits].Add(1<<(s%wordBits))>>(s%wordBits)&1 == 1 }},
		{"CompareAndSwapAWord", func(s Seq, round uint32) bool { return words[s].CompareAndSwap(round, round+1) }},
		{"SwapAWord", func(s Seq, round uint32) bool { return words[s].Swap(round+1) == round }},
		{"StoreAWord", func(s Seq, round uint32) bool { words[s].Store(round + 1); return true }},
		{"MutexAndAWord", func(s Seq, round uint32) bool { mu.Lock(); plain[s] = round + 1; mu.Unlock(); return true }},
		{"Nothing", func(Seq, uint32) bool { return true }},
	} {
		b.Run(x.name, func(b *testing.B) {
			for i := range words {
				words[i].Store(0)
			}
			for i := 0; i < b.N; i += poll {
				for w := range bits {
					bits[w].Store(0)
				}
				for s := range Seq(poll) {
					if !x.do(s, uint32(i/poll)) {
						b.Fatal("done before")
					}
				}
			}
		})
	}
}
