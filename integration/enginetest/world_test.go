package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// patience bounds every wait for a real condition; nothing here should come near it.
const patience = time.Minute

// world is one test's part of a broker: a topic and a group that no other test uses.
type world struct {
	*testing.T
	cluster *kafkatest.Cluster
	cl      *kgo.Client // produces to the partition that a record names
	adm     *kadm.Client
	topic   string
	group   string
	parts   int32
}

// newWorld makes a world on the broker that all tests share.
func newWorld(t *testing.T, partitions int32) *world {
	t.Helper()
	if onOlder(t) {
		return worldOn(t, older, partitions)
	}
	return worldOn(t, kafkatest.Shared(t), partitions)
}

func worldOn(t *testing.T, cluster *kafkatest.Cluster, partitions int32) *world {
	t.Helper()
	w := &world{T: t, cluster: cluster, topic: kafkatest.Name(t), group: kafkatest.Name(t) + "-group", parts: partitions}
	w.reconnect()
	w.adm = kadm.NewClient(w.client()) // the cluster's own may answer with what it heard of a topic five seconds ago
	cluster.CreateTopic(t, w.topic, int(partitions), nil)
	return w
}

// reconnect makes a client that knows nothing of the topic yet: one that does is slow to learn that it has changed.
func (w *world) reconnect() {
	w.Helper()
	w.cl = w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

// ownBroker is for tests that need what brokers of somebody else can't be given or done to.
func ownBroker(t *testing.T, why string) {
	t.Helper()
	if os.Getenv(kafkatest.BrokersEnv) != "" {
		t.Skipf("needs a broker of its own: %s; unset %s", why, kafkatest.BrokersEnv)
	}
}

// brokerToKill is a broker that no test uses at the same time.
func brokerToKill(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	if onOlder(t) {
		return older // its tests run one after the other
	}
	return kafkatest.Start(t)
}

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.cluster.Brokers()...), impatient}, opts...)...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(cl.Close)
	return cl
}

// impatient makes a client look for new leaders and coordinators at once; by default it waits for seconds.
var impatient = kgo.MetadataMinAge(100 * time.Millisecond)

// patient is a context that ends when patience does.
func patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// config is the start of a configuration for this world.
func (w *world) config(h engine.HandlerFunc) engine.Config {
	c := engine.Config{
		Brokers: w.cluster.Brokers(), Group: w.group, Topics: []string{w.topic}, Workers: 16,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 200 * time.Millisecond, RebalanceTimeout: 15 * time.Second,
		Commit:     engine.Commit{Interval: 100 * time.Millisecond},
		DeadLetter: engine.DeadLetter{GiveUp: engine.GiveUpHold}, // no second topic where the test is not about it
		KgoOpts:    []kgo.Opt{impatient},
	}
	if h != nil {
		c.Handler = h
	}
	return c
}

// produce writes values to a partition of the topic; a value "k=v" has the key k. It returns when they are acknowledged.
func (w *world) produce(partition int32, values ...string) {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	if err := w.cl.ProduceSync(ctx, w.records(partition, values...)...).FirstErr(); err != nil {
		w.Fatal(err)
	}
}

func (w *world) records(partition int32, values ...string) (rs []*kgo.Record) {
	for _, v := range values {
		r := &kgo.Record{Topic: w.topic, Partition: partition, Value: []byte(v)}
		if k, _, ok := strings.Cut(v, "="); ok {
			r.Key = []byte(k)
		}
		rs = append(rs, r)
	}
	return rs
}

// produceAll writes n records with the given number of keys to every partition.
func (w *world) produceAll(n, keys int) {
	w.Helper()
	for p := range w.parts {
		w.produce(p, keyed(n, keys)...)
	}
}

// keyed is n values that go round so many keys.
func keyed(n, keys int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf("k%d=%d", i%keys, i))
	}
	return values
}

// committed is what the group has committed for a partition, as an independent client reads it; -1 = nothing.
func (w *world) committed(partition int32) int64 {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	resp, err := w.adm.FetchOffsets(ctx, w.group)
	if err != nil {
		w.Fatal(err)
	}
	if o, ok := resp.Lookup(w.topic, partition); ok {
		return o.At
	}
	return -1
}

// end is the log's end, the high watermark.
func (w *world) end(partition int32) int64 {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	ends, err := w.adm.ListEndOffsets(ctx, w.topic)
	if err != nil {
		w.Fatal(err)
	}
	o, ok := ends.Lookup(w.topic, partition)
	if !ok || o.Err != nil {
		w.Fatalf("no end of %s[%d]: %v", w.topic, partition, o.Err)
	}
	return o.Offset
}

// lag is counted as Kafka's own tools do: end of the log less what the group committed.
func (w *world) lag(partition int32) int64 {
	w.Helper()
	return w.end(partition) - max(w.committed(partition), 0)
}

// noLagLeft waits until the group has committed to the end of every partition.
func (w *world) noLagLeft() {
	w.Helper()
	for p := range w.parts {
		w.eventually(fmt.Sprintf("committed to the end of partition %d", p), func() bool { return w.committed(p) >= 0 && w.lag(p) == 0 })
	}
}

// eventually asks again and again, for what neither the broker nor the engine tells by itself.
func (w *world) eventually(what string, cond func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("never: %s", what)
		}
	}
}

// setGroup changes settings of the group that the broker keeps, such as consumer.session.timeout.ms.
func (w *world) setGroup(key, value string) {
	w.Helper()
	w.alterConfig(groupConfig, w.group, key, value)
}

// read reads n records of a topic, with a client that is in no group.
func (w *world) read(topic string, n int) (rs []*kgo.Record) {
	w.Helper()
	cl := w.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := patient()
	defer cancel()
	for len(rs) < n {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			w.Fatalf("read %d of %d records of %s", len(rs), n, topic)
		}
		rs = append(rs, fs.Records()...)
	}
	return rs
}

var errBoom = errors.New("boom")
