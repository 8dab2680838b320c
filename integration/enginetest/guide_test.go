package enginetest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// C6: the order of a key is the order of its partition, so a key has one partition, whoever produces: a client with its usual
// partitioner, a handler's output, and the Java client, whose hash of some keys its own tests state.
func TestPartitionOfAKeyIsStable(t *testing.T) {
	javaHash := map[string]int32{ // murmur2, from Kafka's UtilsTest
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	}
	w := newWorld(t, 5)
	out := w.topic + "-out"
	w.cluster.CreateTopic(t, out, 5, nil)
	var mu sync.Mutex
	seen := map[string]map[int32]int{}
	note := func(key []byte, partition int32) {
		mu.Lock()
		defer mu.Unlock()
		if seen[string(key)] == nil {
			seen[string(key)] = map[int32]int{}
		}
		seen[string(key)][partition]++
	}
	l := w.ledger()
	m := w.start(w.config(l.keep(func(_ context.Context, r *engine.Record) error {
		note(r.Key, r.Partition)
		r.Emit(&kgo.Record{Topic: out, Key: append([]byte(nil), r.Key...), Value: []byte("out")})
		return nil
	})))
	for range 3 { // a client each time, as after a producer's restart
		cl := w.client()
		ctx, cancel := patient()
		for key := range javaHash {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: w.topic, Key: []byte(key)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
	}
	l.reaches(18)
	for _, r := range w.read(out, 18) {
		note(r.Key, r.Partition)
	}
	m.stop()
	for key, hash := range javaHash {
		want := map[int32]int{(hash & 0x7fffffff) % 5: 6}
		if !maps.Equal(seen[key], want) {
			t.Errorf("key %q: %v (partition: times), not %v", key, seen[key], want)
		}
	}
}

// C1: the committed offset is that of the last record that was processed, plus one: the next to read.
func TestCommittedIsLastProcessedPlusOne(t *testing.T) {
	w := newWorld(t, 2)
	w.produce(0, keyed(7, 3)...)
	w.produce(1, keyed(12, 3)...)
	l := w.ledger()
	c := w.config(l.keep(nil))
	c.Commit.Interval = time.Hour
	m := w.start(c)
	l.reaches(19)
	w.eventually("a commit on demand has all that was handled", func() bool {
		m.commit()
		return m.partition(0).Committed == 7 && m.partition(1).Committed == 12
	})
	for p, last := range []int64{6, 11} {
		if at := w.committed(int32(p)); at != last+1 {
			t.Errorf("partition %d: committed %d, last processed %d", p, at, last)
		}
	}
	m.stop()
}

// C9: members beyond the number of partitions have nothing to do, are told so and what to do about it, stay healthy, and take
// over when another ends.
func TestMoreMembersThanPartitions(t *testing.T) {
	t.Parallel() // it waits for the 15 s after which a member without partitions is warned of
	w := newWorld(t, 1)
	l := w.ledger()
	c := w.config(l.keep(nil))
	busy := w.start(c)
	busy.owns(1)
	idle := w.start(c)
	ev := idle.hears(engine.EventNoPartitions)
	if !strings.Contains(ev.Hint, "more members than partitions") || !strings.Contains(ev.Hint, "fewer members with more Workers do the same") {
		t.Errorf("the hint does not say what to do: %s", ev.Hint)
	}
	if ok, problems := idle.e.Healthy(); !ok {
		t.Errorf("the member without partitions is not healthy: %v", problems)
	}
	busy.quiet(engine.EventNoPartitions)
	w.produce(0, keyed(10, 2)...)
	l.reaches(10)
	busy.stop()
	idle.owns(1)
	w.produce(0, keyed(10, 2)...)
	l.reaches(20)
	w.noLagLeft()
	idle.stop()
	l.eachOnce(20)
}

// C1, C9: a handler that does not return shows as the lag of its partition, and as a stuck record with its offset, while the
// other partition and the other keys go on. Once it returns, the lag falls to 0, as Kafka's own tool counts.
func TestLagShowsAStuckPartitionAndReturnsToZero(t *testing.T) {
	w := newWorld(t, 2)
	l := w.ledger()
	stuck := w.newGate()
	c := w.config(l.keep(func(_ context.Context, r *engine.Record) error {
		if r.Partition == 0 && r.Offset == 3 {
			stuck.wait(r)
		}
		return nil
	}))
	c.StuckAfter = 500 * time.Millisecond
	m := w.start(c)
	w.produceAll(50, 50)
	l.reaches(99)
	w.eventually("committed up to the stuck record", func() bool { return w.committed(0) == 3 && w.committed(1) == 50 })
	if got := w.toolsLag(); got != "0:47 1:0" {
		t.Errorf("lag by partition: %s", got)
	}
	ev := m.hears(engine.EventStuck)
	s := m.partition(0)
	if ev.Partition != 0 || ev.Offset != 3 || s.Lag != 47 || s.Oldest == nil || s.Oldest.Offset != 3 || s.Oldest.State != "running" {
		t.Errorf("event %+v, status %+v, oldest %+v", ev, s, s.Oldest)
	}
	if ok, _ := m.e.Healthy(); ok {
		t.Error("healthy with a stuck handler")
	}
	stuck.lift()
	m.hears(engine.EventUnstuck)
	w.noLagLeft()
	if got := w.toolsLag(); got != "0:0 1:0" {
		t.Errorf("lag by partition, in the end: %s", got)
	}
	if ok, problems := m.e.Healthy(); !ok {
		t.Errorf("not healthy in the end: %v", problems)
	}
	m.stop()
	l.eachOnce(50)
}

// toolsLag is the group's lag by partition as kafka-consumer-groups.sh prints it.
func (w *world) toolsLag() string {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	out, err := w.cluster.Tool(ctx, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
		"--bootstrap-server", w.cluster.Bootstrap(kafkatest.Plaintext), "--describe", "--group", w.group)
	if err != nil {
		w.Fatal(err)
	}
	lags := make([]string, w.parts)
	for line := range strings.Lines(out) {
		// GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG ...
		f := strings.Fields(line)
		var p int
		if len(f) > 5 && f[1] == w.topic {
			if _, err := fmt.Sscan(f[2], &p); err == nil {
				lags[p] = fmt.Sprintf("%d:%s", p, f[5])
			}
		}
	}
	return strings.Join(lags, " ")
}

// C8, C9: a handler that takes longer than the session timeout costs nothing but time: heartbeats do not wait for handlers, so
// no partition moves, nothing is suspended, and the record is handled once.
func TestSlowHandlerCausesNoRebalance(t *testing.T) {
	t.Parallel() // its handlers take their time
	ownBroker(t, "its sessions are shorter than the 6 s that others allow")
	inEachProtocol(t, func(t *testing.T, set func(*engine.Config)) {
		t.Parallel()
		const session = time.Second
		w := newWorld(t, 2)
		w.setGroup("consumer.session.timeout.ms", "1000")
		l := w.ledger()
		c := w.config(l.keep(func(_ context.Context, _ *engine.Record) error {
			time.Sleep(3 * session) // the work
			return nil
		}))
		c.SessionTimeout, c.HeartbeatInterval = session, session/5
		set(&c)
		a, b := w.start(c), w.start(c)
		a.owns(1)
		b.owns(1)
		w.stable(2)
		rebalances, generation := a.count(engine.EventRebalanced)+b.count(engine.EventRebalanced), a.e.Status().Generation
		w.produceAll(1, 1)
		l.reaches(2)
		w.noLagLeft()
		if n := a.count(engine.EventRebalanced) + b.count(engine.EventRebalanced); n != rebalances || a.e.Status().Generation != generation {
			t.Errorf("%d rebalances while the handlers ran, generation %d -> %d", n-rebalances, generation, a.e.Status().Generation)
		}
		for _, m := range []*member{a, b} {
			m.stop()
			m.quiet(engine.EventLost, engine.EventSuspended, engine.EventSessionEnded)
		}
		l.eachOnce(1)
	})
}

// C5: what a redelivery does is the handler's: one that upserts by key leaves the same behind, however often a batch comes.
func TestReplayedBatchOfUpsertsChangesNothing(t *testing.T) {
	w := newWorld(t, 2)
	w.produceAll(60, 7)
	var mu sync.Mutex
	table := map[string]string{} // the database: the last value of each key
	l := w.ledger()
	c := w.config(nil)
	c.BatchHandler = engine.BatchHandlerFunc(func(ctx context.Context, b *engine.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range b.Records {
			table[fmt.Sprintf("%d/%s", r.Partition, r.Key)] = string(r.Value)
			if err := l.keep(nil)(ctx, r); err != nil {
				return err
			}
		}
		return nil
	})
	c.BatchLinger = 20 * time.Millisecond
	handleAll := func() map[string]string {
		l = w.ledger()
		m := w.start(c)
		l.reaches(120)
		w.noLagLeft()
		m.stop()
		l.eachOnce(60)
		return maps.Clone(table)
	}
	once := handleAll()
	if len(once) != 14 {
		t.Fatalf("%d rows: %v", len(once), once)
	}
	w.rewind(0, 1)
	if twice := handleAll(); !maps.Equal(once, twice) {
		t.Errorf("the replay changed the table: %v, then %v", once, twice)
	}
}
