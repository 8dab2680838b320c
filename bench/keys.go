package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// KeyKind is how often each key comes.
type KeyKind string

// The kinds.
const (
	KeysNone    KeyKind = "none"    // records have no key
	KeysUniform KeyKind = "uniform" // each as often as any other
	KeysZipf    KeyKind = "zipf"    // the k-th with a weight of 1/k^Skew
	KeysHot     KeyKind = "hot"     // one has a share of Skew, the others share the rest
)

// Keys says how many keys there are and how often each comes.
type Keys struct {
	Kind KeyKind
	N    int     // of keys
	Skew float64 // Zipf's exponent, above 1; or the hot key's share
}

// String is the form that ParseKeys takes.
func (k Keys) String() string {
	switch k.Kind {
	case KeysZipf, KeysHot:
		return fmt.Sprintf("%s:%d:%s", k.Kind, k.N, trim(k.Skew))
	case KeysUniform:
		return fmt.Sprintf("%s:%d", k.Kind, k.N)
	}
	return string(KeysNone)
}

// ParseKeys reads none, uniform:10000, zipf:10000:1.1 or hot:10000:0.5. Number and skew may be left out: 10000, and 1.1 or 0.5.
func ParseKeys(s string) (Keys, error) {
	parts := strings.Split(s, ":")
	k := Keys{Kind: KeyKind(parts[0]), N: 10_000}
	most := 2
	switch k.Kind {
	case KeysNone:
		k.N, most = 0, 1
	case KeysUniform:
	case KeysZipf:
		k.Skew, most = 1.1, 3
	case KeysHot:
		k.Skew, most = 0.5, 3
	default:
		most = 0
	}
	if len(parts) > most {
		return Keys{}, fmt.Errorf("write none, uniform:10000, zipf:10000:1.1 or hot:10000:0.5")
	}
	if len(parts) > 1 {
		if err := whole(parts[1], &k.N, 1, 100_000_000); err != nil {
			return Keys{}, fmt.Errorf("the number of keys: %w", err)
		}
	}
	if len(parts) > 2 {
		least, most, what := 1.001, 10.0, "the exponent"
		if k.Kind == KeysHot {
			least, most, what = 0.001, 1, "the hot key's share"
		}
		if err := number(parts[2], &k.Skew, least, most); err != nil {
			return Keys{}, fmt.Errorf("%s: %w", what, err)
		}
	}
	return k, nil
}

// drawer draws the numbers of keys.
func (k Keys) drawer(rng *rand.Rand) func() int {
	switch k.Kind {
	case KeysUniform:
		return func() int { return rng.IntN(k.N) }
	case KeysZipf:
		z := rand.NewZipf(rng, k.Skew, 1, uint64(k.N-1))
		return func() int { return int(z.Uint64()) }
	case KeysHot:
		return func() int {
			if k.N == 1 || rng.Float64() < k.Skew {
				return 0
			}
			return 1 + rng.IntN(k.N-1)
		}
	}
	return func() int { return -1 }
}

// hottest is the share of the key that comes most often.
func (k Keys) hottest() float64 {
	switch k.Kind {
	case KeysUniform:
		return 1 / float64(k.N)
	case KeysZipf:
		sum := 0.0
		for i := 1; i <= k.N; i++ {
			sum += math.Pow(float64(i), -k.Skew)
		}
		return 1 / sum
	case KeysHot:
		if k.N == 1 {
			return 1
		}
		return max(k.Skew, (1-k.Skew)/float64(k.N-1))
	}
	return 0
}

func keyBytes(dst []byte, n int) []byte { return fmt.Appendf(dst, "key-%08d", n) }
