package demo

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

const topic = "orders"

// attempts is how often a record is tried: flaky ones fail less often than that.
const attempts = 3

// kind is what a record does to its handler.
type kind string

const (
	kindPlain  kind = "plain"
	kindSlow   kind = "slow"
	kindFlaky  kind = "flaky"  // fails Failures times, then succeeds
	kindFails  kind = "fails"  // poisonous: fails each time, so its attempts run out
	kindBad    kind = "bad"    // poisonous: refused for good at the first attempt
	kindPanics kind = "panics" // poisonous: panics each time
)

func (k kind) poisonous() bool { return k == kindFails || k == kindBad || k == kindPanics }

// work is the value of a record: what the handler is to make of it, and its number among the records of its key.
type work struct {
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
	records []planned
	queues  [][]int32 // by partition: indices into records, in the order of production

	slow, flaky, poisonous int
	retries                int // attempts beyond the first that these records need
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
		r.key = skew()
		r.Kind = kindPlain
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

func keyName(k int32) string { return fmt.Sprintf("customer-%05d", k) }

// record makes the record for a partition.
func (p *plan) record(i, partition int32) *kgo.Record {
	r := &p.records[i]
	value, err := json.Marshal(r.work)
	if err != nil {
		panic(err) // numbers and a word
	}
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(keyName(r.key)), Value: value}
}
