package engine

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// offline is an engine with partitions of "t" and no broker: what the fetch loop would do is done by the test.
type offline struct {
	e    *Engine
	d    delivery
	next map[int32]int64
}

func newOffline(tb testing.TB, c Config) *offline {
	tb.Helper()
	c.Brokers, c.Group, c.Topics = []string{"127.0.0.1:1"}, testGroup, []string{"t"}
	e, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	if e.cl, err = kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1")); err != nil { // dials nothing: it is asked for nothing
		tb.Fatal(err)
	}
	return &offline{e: e, next: map[int32]int64{}}
}

func (o *offline) close() {
	for _, ep := range o.e.allEpochs() {
		o.e.end(ep, errLost)
	}
	o.e.pool.Wait()
	o.e.cl.Close()
}

func (o *offline) assign(p int32) {
	ep := o.e.assign(tp{"t", p}, Owner{MemberID: "m"})
	o.e.activate(ep, o.next[p], -1)
}

// deliver brings n records of a size.
func (o *offline) deliver(p int32, n, size int) {
	fp := kgo.FetchPartition{Partition: p, HighWatermark: o.next[p] + int64(n), LastStableOffset: -1}
	for range n {
		fp.Records = append(fp.Records, &kgo.Record{Topic: "t", Partition: p, Offset: o.next[p], Value: make([]byte, size), LeaderEpoch: -1})
		o.next[p]++
	}
	o.e.deliver(&o.d, "t", &fp)
}

// paused is what the client was told, and why.
func (o *offline) paused() map[int32]string {
	told := map[int32]string{}
	at := o.e.cl.PauseFetchPartitions(nil)
	for _, ep := range o.e.allEpochs() {
		ep.mu.Lock()
		told[ep.partition] = fmt.Sprint(slices.Contains(at["t"], ep.partition), ep.isPaused, ep.stops.strings())
		ep.mu.Unlock()
	}
	return told
}

// mustPause checks what holds after every look, be it after a poll only: nothing that is full goes on.
func (o *offline) mustPause(t *testing.T) {
	t.Helper()
	var total int64
	eps := o.e.allEpochs()
	for _, ep := range eps {
		total += o.e.account(ep)
	}
	for _, ep := range eps {
		waiting, running, held := ep.lane.Len()
		c := &o.e.cfg
		if full := waiting+running+held >= c.PartitionRecords || ep.bytes >= c.PartitionBytes || total >= c.MaxBytes && ep.bytes > 0; full && !ep.isPaused {
			t.Errorf("%v goes on with %d records, %d bytes, %d bytes in all", ep.tp, waiting+running+held, ep.bytes, total)
		}
	}
}

// C7: a look at what changed comes to the same as a look at everything.
// Seen at confluentinc/parallel-consumer#606.
func TestFlowIsAFullRecomputation(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { flowRandomly(t, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func flowRandomly(t *testing.T, r *rand.Rand) {
	var gates sync.Map // a record's gate, by where it is
	var open []string  // those that are shut still
	gate := func(p int32, offset int64) string { return fmt.Sprint(p, "@", offset) }
	handler := HandlerFunc(func(_ context.Context, r *Record) error {
		ch, _ := gates.Load(gate(r.Partition, r.Offset))
		<-ch.(chan struct{})
		return nil
	})
	finish := func(n int) {
		r.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
		for range min(n, len(open)) {
			ch, _ := gates.Load(open[0])
			close(ch.(chan struct{}))
			open = open[1:]
		}
	}
	config := Config{Handler: handler, Order: OrderUnordered, Workers: 10000, PartitionRecords: 40000, PartitionBytes: 8 << 20, MaxBytes: 24 << 20}
	// The bounds are lowered below what a configuration may have.
	few := func() *offline {
		o := newOffline(t, config)
		o.e.cfg.PartitionRecords = 20
		return o
	}
	partial, full := few(), few()
	both := []*offline{partial, full}
	const partitions = 12
	for p := range int32(partitions) {
		for _, o := range both {
			o.assign(p)
		}
	}
	same := func(step int, what string) {
		t.Helper()
		time.Sleep(20 * time.Millisecond) // the rest of a chunk with a stuck record is handed on meanwhile
		synctest.Wait()
		partial.e.flow(lookChanged)
		partial.mustPause(t)
		partial.e.flow(lookBrief)
		full.e.flow(lookAll)
		if a, b := partial.paused(), full.paused(); !maps.Equal(a, b) {
			t.Fatalf("step %d, %s:\n%v\n%v", step, what, a, b)
		}
	}
	same(0, "assigned")
	for step := range 250 {
		p := r.Int32N(partitions)
		var what string
		switch n := r.IntN(20); {
		case n < 8:
			for range 1 + r.IntN(4) { // a poll brings several partitions
				p := r.Int32N(partitions)
				if ep := full.e.lookup("t", p); ep == nil || ep.isPaused {
					continue
				}
				n, size := 1+r.IntN(12), []int{10, 100 << 10, 400 << 10, 1 << 20}[r.IntN(4)]
				for i := range n {
					at := gate(p, partial.next[p]+int64(i))
					gates.Store(at, make(chan struct{}))
					open = append(open, at)
				}
				for _, o := range both {
					o.deliver(p, n, size)
				}
			}
			what = "delivered"
		case n < 15:
			finish(r.IntN(20))
			what = "finished"
		case n < 16:
			for _, o := range both {
				o.e.setStop(o.e.lookup("t", p), stopOutputs, nil)
			}
			what = "stopped"
		case n < 17:
			for _, o := range both {
				o.e.resume(o.e.lookup("t", p), stopOutputs)
			}
			what = "resumed"
		case n < 18:
			for _, o := range both {
				ep := o.e.lookup("t", p)
				ep.mu.Lock()
				ep.trouble().retryAt = time.Now().Add(time.Second)
				ep.mu.Unlock()
				o.e.setStop(ep, stopFetchError, nil)
			}
			what = "fetch error"
		case n < 19:
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
			what = "time"
		default:
			for _, o := range both {
				o.e.end(o.e.lookup("t", p), errLost)
				o.assign(p)
			}
			what = "assigned anew"
		}
		same(step, what)
	}
	finish(len(open))
	same(-1, "drained")
	for _, o := range both {
		o.close()
	}
}

// C7: while partitions wait for the total to fall, those that go on are accounted for at each tick, too.
func TestPausedForTheTotal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates sync.Map
		o := newOffline(t, Config{Order: OrderUnordered, Workers: 100, PartitionBytes: 10 << 20, MaxBytes: 24 << 20, Handler: HandlerFunc(func(_ context.Context, r *Record) error {
			ch, _ := gates.LoadOrStore(tp{r.Topic, r.Partition}, make(chan struct{}))
			<-ch.(chan struct{})
			return nil
		})})
		defer o.close()
		look := func(how glance, want int) {
			t.Helper()
			synctest.Wait()
			o.e.flow(how)
			if n := len(o.e.cl.PauseFetchPartitions(nil)["t"]); n != want {
				t.Errorf("%d paused, not %d", n, want)
			}
		}
		finish := func(p int32) {
			ch, _ := gates.LoadAndDelete(tp{"t", p})
			close(ch.(chan struct{}))
		}
		for p := range int32(5) {
			o.assign(p)
			o.deliver(p, 1, 5<<20)
		}
		look(lookChanged, 5) // 25 MiB of 24
		finish(0)
		look(lookBrief, 4) // 20: above three quarters of it, so only who holds nothing goes on
		o.deliver(0, 1, 3<<20)
		look(lookChanged, 4)
		finish(0)
		finish(1)
		look(lookBrief, 0) // 15: they are all to go on, unless what partition 0 has finished counts still
		for p := range int32(3) {
			finish(p + 2)
		}
		look(lookBrief, 0)
	})
}

// The cost of a poll that brings one of so many partitions records.
func BenchmarkFlow(b *testing.B) {
	for _, partitions := range []int32{1, 10, 100, 1000, 5000} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			o := newOffline(b, Config{Handler: HandlerFunc(func(context.Context, *Record) error { return nil })})
			defer o.close()
			for p := range partitions {
				o.assign(p)
			}
			o.e.flow(lookAll)
			ep := o.e.lookup("t", 0)
			b.ReportAllocs()
			for b.Loop() {
				o.e.touch(ep) // as a delivery does
				o.e.flow(lookChanged)
			}
		})
	}
}
