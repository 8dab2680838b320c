package bench

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// HandlerKind is what a handler does.
type HandlerKind string

// The kinds.
const (
	HandlerNone   HandlerKind = "none"   // looks at the record
	HandlerSleep  HandlerKind = "sleep"  // the same time always
	HandlerExp    HandlerKind = "exp"    // exponential
	HandlerPareto HandlerKind = "pareto" // Pareto, cut off at a hundred times the mean
	HandlerByKey  HandlerKind = "bykey"  // each key has a time of its own, from 0 to twice the mean
	HandlerCPU    HandlerKind = "cpu"    // computes for that long
	HandlerJSON   HandlerKind = "json"   // decodes the value
	HandlerHTTP   HandlerKind = "http"   // calls a server on this machine, which answers after that time
	HandlerOwn    HandlerKind = "own"    // Config.Handler or Config.BatchHandler
)

// Handler says what is done with a record. The time that a record takes is drawn from its partition and offset, so it is the same in
// every arm and every round.
type Handler struct {
	Kind  HandlerKind
	Mean  time.Duration
	Shape float64 // of Pareto: the smaller, the heavier the tail; above 1
}

// String is the form that ParseHandler takes.
func (h Handler) String() string {
	switch h.Kind {
	case HandlerNone, HandlerJSON, HandlerOwn:
		return string(h.Kind)
	case HandlerPareto:
		return fmt.Sprintf("%s:%v:%s", h.Kind, h.Mean, trim(h.Shape))
	}
	return fmt.Sprintf("%s:%v", h.Kind, h.Mean)
}

const handlerForms = "write none, sleep:2ms, exp:2ms, pareto:2ms, pareto:2ms:1.5, bykey:2ms, cpu:10us, json or http:2ms"

// ParseHandler reads the forms that String writes; the shape of pareto may be left out (1.5).
func ParseHandler(s string) (Handler, error) {
	parts := strings.Split(s, ":")
	h := Handler{Kind: HandlerKind(parts[0])}
	switch h.Kind {
	case HandlerNone, HandlerJSON:
		if len(parts) > 1 {
			return Handler{}, fmt.Errorf("%s takes no time; %s", h.Kind, handlerForms)
		}
		return h, nil
	case HandlerSleep, HandlerExp, HandlerByKey, HandlerCPU, HandlerHTTP:
		if len(parts) != 2 {
			return Handler{}, fmt.Errorf("%s", handlerForms)
		}
	case HandlerPareto:
		h.Shape = 1.5
		if len(parts) == 3 {
			if err := number(parts[2], &h.Shape, 1.05, 100); err != nil {
				return Handler{}, fmt.Errorf("the shape: %w", err)
			}
		} else if len(parts) != 2 {
			return Handler{}, fmt.Errorf("%s", handlerForms)
		}
	default:
		return Handler{}, fmt.Errorf("%s", handlerForms)
	}
	d, err := time.ParseDuration(parts[1])
	if err != nil || d < 0 || d > time.Minute || d == 0 && h.Kind != HandlerHTTP {
		return Handler{}, fmt.Errorf("the time: write for example 50us, 2ms or 1s, at most 1m")
	}
	h.Mean = d
	return h, nil
}

// least is the mean time that a record takes at the least, as far as the handler says so itself.
func (h Handler) least() time.Duration {
	if h.Kind == HandlerPareto {
		return time.Duration(paretoMean(h.Mean, h.Shape))
	}
	return h.Mean
}

// paretoCut is where the tail ends, in means: a run of a few seconds must not hang on a single draw.
const paretoCut = 100

// paretoScale is the least value of a Pareto distribution with that mean.
func paretoScale(mean time.Duration, shape float64) float64 {
	return float64(mean) * (shape - 1) / shape
}

// paretoMean is the mean with the tail cut.
func paretoMean(mean time.Duration, shape float64) float64 {
	x, cut := paretoScale(mean, shape), paretoCut*float64(mean)
	return x*shape/(shape-1) - math.Pow(x, shape)*math.Pow(cut, 1-shape)/(shape-1)
}

// lasts is how long a record takes.
func (h Handler) lasts(r *kgo.Record) time.Duration {
	switch h.Kind {
	case HandlerExp:
		return time.Duration(-math.Log(1-chance(r, 1)) * float64(h.Mean))
	case HandlerPareto:
		x := paretoScale(h.Mean, h.Shape) / math.Pow(1-chance(r, 1), 1/h.Shape)
		return time.Duration(min(x, paretoCut*float64(h.Mean)))
	case HandlerByKey:
		if r.Key == nil {
			return h.Mean
		}
		return keyTime(h.Mean, r.Key)
	}
	return h.Mean
}

// keyTime is the time of a key: from 0 to twice the mean.
func keyTime(mean time.Duration, key []byte) time.Duration {
	x := uint64(14695981039346656037) // FNV-1a
	for _, b := range key {
		x = (x ^ uint64(b)) * 1099511628211
	}
	return time.Duration(unit(x) * 2 * float64(mean))
}

// chance is a number from 0 to 1 that belongs to a record; another one for another salt.
func chance(r *kgo.Record, salt uint64) float64 {
	return unit(uint64(r.Partition)<<48 ^ uint64(r.Offset)<<2 ^ salt)
}

// unit mixes x (SplitMix64) into a number from 0 to 1, 1 excluded.
func unit(x uint64) float64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}
