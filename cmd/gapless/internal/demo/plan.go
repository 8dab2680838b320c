package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "orders"

// orderHeader is the header with the business key: the number of the order, which a copy of the record has as well.
const orderHeader = "order_id"

// attempts is how often a record is tried: flaky ones fail less often than that.
const attempts = 3

// kind is what a record does to its handler.
type kind string

const (
	kindPlain  kind = "plain"
	kindSlow   kind = "slow"
	kindStuck  kind = "stuck"  // so slow that everything behind it is finished meanwhile
	kindFlaky  kind = "flaky"  // fails Failures times, then succeeds
	kindFails  kind = "fails"  // poisonous: fails each time, so its attempts run out
	kindBad    kind = "bad"    // poisonous: refused for good at the first attempt
	kindPanics kind = "panics" // poisonous: panics each time
)

func (k kind) poisonous() bool { return k == kindFails || k == kindBad || k == kindPanics }

// work is the value of a record: what the handler is to make of it, and its number among the records of its key.
type work struct {
	Order    int32 `json:"order"`
	Seq      int32 `json:"seq"`
	Kind     kind  `json:"kind"`
	Micros   int32 `json:"micros,omitempty"` // how long it takes
	Failures int   `json:"failures,omitempty"`
}

// planned is a record before it is produced.
type planned struct {
	key int32
	work
}

// plan is all that will be produced. It follows from the options alone, so what the verdict must find is known beforehand.
type plan struct {
	keys    int
	records []planned // by order number
	queues  [][]int32 // by partition: order numbers, in the order of production; a copy is there again

	slow, flaky, poisonous, copies int
	retries                        int // attempts beyond the first that these records need
}

func newPlan(o options) *plan {
	rnd := rand.New(rand.NewPCG(o.seed, 0x6761706c657373))
	p := &plan{
		keys:    max(o.records/50, 8),
		records: make([]planned, o.records),
		queues:  make([][]int32, o.partitions),
	}
	// Some keys are busier than others, the busiest some 30 times the average; one key is handled serially, so much more than
	// that would make it the whole demo.
	skew := func() int32 { return int32(math.Pow(rnd.Float64(), 1.3) * float64(p.keys)) }
	serial := engine.Order(o.order) == engine.OrderPartition
	for i := range p.records {
		r := &p.records[i]
		r.key, r.Order, r.Kind = skew(), int32(i), kindPlain
		switch {
		case !serial:
			r.Micros = 1000 + rnd.Int32N(6000)
		case rnd.IntN(8) == 0: // one after the other there is time for much less
			r.Micros = 1000
		}
	}
	p.plant(rnd)
	// The partition is the key's, as the Java client and this one would choose it.
	part := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	partitions := make([]int, p.keys)
	for k := range partitions {
		partitions[k] = part.Partition(&kgo.Record{Key: []byte(keyName(int32(k)))}, o.partitions)
	}
	seqs := make([]int32, p.keys)
	for i := range p.records {
		r := &p.records[i]
		seqs[r.key]++
		r.Seq = seqs[r.key]
		at := partitions[r.key]
		p.queues[at] = append(p.queues[at], int32(i))
	}
	if !serial && !o.noKill {
		p.plantStuck()
	}
	if !o.noCopies {
		p.copy(rnd)
	}
	return p
}

// plant turns plain records into others: fixed numbers of them, at places that the seed decides.
func (p *plan) plant(rnd *rand.Rand) {
	n := len(p.records)
	places := rnd.Perm(n)
	take := func(count int, change func(i int, r *planned)) int {
		for i := range count {
			change(i, &p.records[places[i]])
		}
		places = places[count:]
		return count
	}
	p.poisonous = take(max(n/5000, 3), func(i int, r *planned) {
		r.Kind = []kind{kindFails, kindBad, kindPanics}[i%3]
		if r.Kind != kindBad {
			p.retries += attempts - 1
		}
	})
	p.flaky = take(max(n/500, 3), func(i int, r *planned) {
		r.Kind, r.Failures = kindFlaky, 1+i%(attempts-1)
		p.retries += r.Failures
	})
	p.slow = take(n/200, func(_ int, r *planned) {
		r.Kind, r.Micros = kindSlow, 5_000+rnd.Int32N(45_000)
	})
	// A few take so long that one can watch the frontier wait while everything behind it goes on.
	p.slow += take(n/25_000, func(_ int, r *planned) { r.Kind, r.Micros = kindSlow, 1_000_000 })
}

// stuck are the records that hold the frontier of each partition when B is killed, as shares of its records and how long they
// take. Without what is remembered beyond the frontier, all that was finished behind them would be done again.
var stuck = []struct {
	at    float64
	takes time.Duration
}{{0.36, 2500 * time.Millisecond}, {0.54, 4500 * time.Millisecond}}

func (p *plan) plantStuck() {
	for _, s := range stuck {
		for _, queue := range p.queues {
			for _, i := range queue[int(s.at*float64(len(queue))):] {
				if r := &p.records[i]; r.Kind == kindPlain {
					r.Kind, r.Micros = kindStuck, int32(s.takes.Microseconds())
					p.slow++
					break
				}
			}
		}
	}
}

// copy sends one order in a hundred twice: the same bytes once more, in half of the cases at once, otherwise so much later that
// the partition may have moved in between. A poisonous order has no copy: it leaves no mark that would stop it.
func (p *plan) copy(rnd *rand.Rand) {
	type place struct {
		at    float64
		order int32
	}
	for q, queue := range p.queues {
		places := make([]place, 0, len(queue)+len(queue)/50)
		for i, order := range queue {
			places = append(places, place{float64(i), order})
			if rnd.IntN(100) != 0 || p.records[order].Kind.poisonous() {
				continue
			}
			gap := rnd.IntN(20)
			if rnd.IntN(2) == 0 {
				gap = rnd.IntN(max(len(queue)/3, 1))
			}
			places = append(places, place{float64(i+gap) + 0.5, order})
			p.copies++
		}
		slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.at, b.at) })
		p.queues[q] = p.queues[q][:0]
		for _, x := range places {
			p.queues[q] = append(p.queues[q], x.order)
		}
	}
}

// sent is how many records will be produced, copies included.
func (p *plan) sent() int { return len(p.records) + p.copies }

func keyName(k int32) string { return fmt.Sprintf("customer-%05d", k) }

// record makes the record for a partition.
func (p *plan) record(i, partition int32) *kgo.Record {
	r := &p.records[i]
	value, err := json.Marshal(r.work)
	if err != nil {
		panic(err) // numbers and a word
	}
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(keyName(r.key)), Value: value,
		Headers: []kgo.RecordHeader{{Key: orderHeader, Value: strconv.AppendInt(nil, int64(r.Order), 10)}}}
}
