package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// patience bounds every wait for a real condition; nothing here should come near it.
const patience = 2 * time.Minute

// brokerEnv chooses the broker: "real", or the embedded one.
const brokerEnv = "GAPLESS_TORTURE_BROKER"

// broker is where the records are. It outlives every child.
type broker struct {
	addrs   []string
	commits chan struct{} // gets a token with each commit that arrives; nil where that can't be seen
	create  func(t *testing.T, topic string, partitions int)
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	if os.Getenv(brokerEnv) == "real" {
		c := kafkatest.Shared(t)
		return &broker{addrs: c.Brokers(), create: func(t *testing.T, topic string, n int) { c.CreateTopic(t, topic, n, nil) }}
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	b := &broker{addrs: c.ListenAddrs(), commits: make(chan struct{}, 1)}
	c.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		select {
		case b.commits <- struct{}{}:
		default:
		}
		return nil, nil, false
	})
	b.create = func(t *testing.T, topic string, n int) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), int32(n), 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// record is what the parent knows of a record, because it produced it, and what the journal says of it.
type record struct {
	lane string // what its order is promised in; empty = none
	id   string // its business key; empty = none

	begun, ended bool
	settled      bool  // by what the last kill left
	endedAt      int64 // ns
	life         int   // in which it began last
	endedIn      int   // in which it ended last
}

// source produces records and remembers them.
type source struct {
	t       *testing.T
	cl      *kgo.Client
	adm     *kadm.Client
	rng     *rand.Rand
	topic   string
	group   string
	order   string
	records [][]*record // by partition and offset
	n       int
	ids     []string // all that were sent, oldest first
	keys    int
}

const partitions = 4

func (b *broker) source(t *testing.T, order string, rng *rand.Rand) *source {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	s := &source{
		t: t, cl: cl, adm: kadm.NewClient(cl), rng: rng, order: order, topic: kafkatest.Name(t), group: kafkatest.Name(t) + "-group",
		records: make([][]*record, partitions), keys: 20 + rng.IntN(200),
	}
	b.create(t, s.topic, partitions)
	return s
}

// produce sends so many records. One in five has a business key that was sent before: most of these soon after, in whatever
// partition, and some after a long time. One in five has none at all, and relies on the resume window alone.
func (s *source) produce(n int) {
	s.t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		p := s.rng.IntN(partitions)
		r := &kgo.Record{Topic: s.topic, Partition: int32(p)}
		if s.rng.IntN(5) > 0 {
			r.Key = []byte("key-" + strconv.Itoa(s.rng.IntN(s.keys)))
		}
		known := &record{}
		switch d := s.rng.IntN(20); {
		case d < 4:
		case d < 7 && len(s.ids) > 0:
			known.id = s.ids[len(s.ids)-1-s.rng.IntN(min(100, len(s.ids)))]
		case d == 7 && len(s.ids) > 0:
			known.id = s.ids[s.rng.IntN(len(s.ids))]
		default:
			known.id = "id-" + strconv.Itoa(len(s.ids))
			s.ids = append(s.ids, known.id)
		}
		if known.id != "" {
			r.Headers = []kgo.RecordHeader{{Key: idHeader, Value: []byte(known.id)}}
			r.Value = []byte("payload of " + known.id) // a duplicate is the same in all
		}
		switch {
		case s.order == "partition":
			known.lane = strconv.Itoa(p)
		case s.order == "key" && r.Key != nil:
			known.lane = fmt.Sprintf("%d/%s", p, r.Key)
		}
		rs[i] = r
		s.records[p] = append(s.records[p], known)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := s.cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		s.t.Fatal(err)
	}
	next := s.n
	s.n += n
	seen := map[int32]int64{}
	for _, r := range rs { // the list is by offset: it must be as the broker has it
		if last, ok := seen[r.Partition]; ok && r.Offset != last+1 {
			s.t.Fatalf("partition %d: offset %d follows %d", r.Partition, r.Offset, last)
		}
		seen[r.Partition] = r.Offset
	}
	for p, last := range seen {
		if last != int64(len(s.records[p]))-1 {
			s.t.Fatalf("partition %d: the last of %d records is at %d (%d before)", p, len(s.records[p]), last, next)
		}
	}
}

// committed is what the group says of a partition, as this client reads it.
type committed struct {
	at   int64 // -1: nothing
	says window.Window
	err  error // why the metadata says nothing
}

func (s *source) committed() (all [partitions]committed) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	resp, err := s.adm.FetchOffsets(ctx, s.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // it has committed nothing yet
		s.t.Fatal(err)
	}
	for p := range all {
		all[p].at = -1
		if o, ok := resp.Lookup(s.topic, int32(p)); ok {
			all[p].at = o.At
			all[p].says, all[p].err = window.Decode(o.Metadata)
		}
	}
	return all
}

// allCommitted says whether nothing is left to do.
func (s *source) allCommitted() bool {
	for p, c := range s.committed() {
		if c.at < int64(len(s.records[p])) {
			return false
		}
	}
	return true
}
