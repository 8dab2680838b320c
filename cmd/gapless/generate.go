package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// generator makes records: {"n":17,"text":"..."} of a given size, with keys of a given skew.
type generator struct {
	size int
	keys *keys
}

func (g *generator) record(n int) *kgo.Record {
	return &kgo.Record{Key: g.keys.next(), Value: g.value(n)}
}

// filler is what values are padded with: words, so that compression has something like real text.
const filler = "the quick brown fox jumps over the lazy dog and then sleeps a while in the sun "

// value is JSON of exactly size bytes, or as small as it gets where size is less than that.
func (g *generator) value(n int) []byte {
	b := make([]byte, 0, max(g.size, 32))
	b = append(b, `{"n":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	const open, end = `,"text":"`, `"}`
	if pad := g.size - len(b) - len(open) - len(end); pad > 0 {
		b = append(b, open...)
		for i := range pad {
			b = append(b, filler[(n+i)%len(filler)])
		}
		return append(b, end...)
	}
	return append(b, '}')
}

// keys draws from key-0, key-1, ...; with a Zipf skew s, key number i comes 1/(i+1)^s times as often as key-0.
type keys struct {
	n          int
	cumulative []float64 // by key: the chance of it or one before it; nil = all alike
	rand       *rand.Rand
}

func newKeys(n int, skew float64, seed uint64) *keys {
	k := &keys{n: n, rand: rand.New(rand.NewPCG(seed, seed))}
	if skew == 0 || n == 0 {
		return k
	}
	k.cumulative = make([]float64, n)
	sum := 0.0
	for i := range n {
		sum += math.Pow(float64(i+1), -skew)
		k.cumulative[i] = sum
	}
	return k
}

// next is the next key; nil where there are none.
func (k *keys) next() []byte {
	if k.n == 0 {
		return nil
	}
	i := k.rand.IntN(k.n)
	if k.cumulative != nil {
		at := k.rand.Float64() * k.cumulative[k.n-1]
		i = min(sort.SearchFloat64s(k.cumulative, at), k.n-1)
	}
	return fmt.Appendf(nil, "key-%d", i)
}
