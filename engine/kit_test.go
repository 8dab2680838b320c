package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

// childMain is what a child process does that a test has started from its own binary; nil = this is none.
var childMain func()

func TestMain(m *testing.M) {
	if os.Getenv(brokerEnv) != "" {
		serveBenchBroker()
		return
	}
	if childMain != nil {
		childMain()
		return
	}
	if flag.Parse(); flag.Lookup("test.bench").Value.String() == "" {
		recordpool.LeastLoan = 1 // the batches of tests are small
	}
	goleak.VerifyTestMain(m)
}

// world is a scenario: an embedded broker on a virtual network, under virtual time, so that minutes pass in milliseconds and
// a hang is a failure. Handlers wait on gates that the test opens; nothing sleeps to be lucky.
type world struct {
	*testing.T
	net       *kfake.VirtualNetwork
	cluster   *kfake.Cluster
	cl        *kgo.Client // produces, and asks
	adm       *kadm.Client
	enlisting sync.Mutex // of members
	members   []*member
	gates     []*gates
	ends      []func()
}

const testGroup = "orders"

// inWorld runs a scenario with a topic "t" of so many partitions.
func inWorld(t *testing.T, partitions int32, body func(w *world), opts ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, net: &kfake.VirtualNetwork{}}
		opts = append([]kfake.Opt{
			kfake.NumBrokers(1), kfake.Ports(9093), kfake.ListenFn(w.net.Listen), kfake.SeedTopics(partitions, "t"),
			kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "500"}),
		}, opts...)
		c, err := kfake.NewCluster(opts...)
		if err != nil {
			t.Fatal(err)
		}
		w.cluster = c
		w.cl = w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		w.adm = kadm.NewClient(w.cl)
		defer func() {
			for _, g := range w.gates {
				g.openAll()
			}
			for _, end := range w.ends {
				end()
			}
			for _, m := range w.members { // what a failed test left running would hide the failure behind a deadlock
				m.cancel()
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				_ = m.e.Stop(ctx)
				cancel()
			}
			w.cl.Close()
			c.Close()
		}()
		body(w)
	})
}

// asAdmin is how the test's own clients authenticate, where the broker wants it.
var asAdmin kgo.Opt

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.Helper()
	if asAdmin != nil {
		opts = append(opts, asAdmin)
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers("127.0.0.1:9093"), kgo.Dialer(w.net.DialContext), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		w.Fatal(err)
	}
	return cl
}

// config is the start of a configuration for this world.
func (w *world) config(h HandlerFunc) Config {
	c := Config{
		Brokers: []string{"127.0.0.1:9093"}, Group: testGroup, Topics: []string{"t"}, Workers: 16,
		Commit:  Commit{Interval: 100 * time.Millisecond},
		KgoOpts: []kgo.Opt{kgo.Dialer(w.net.DialContext), kgo.MetadataMinAge(50 * time.Millisecond)},
	}
	if h != nil {
		c.Handler = h
	}
	return c
}

// member is a running engine with its events.
type member struct {
	w      *world
	e      *Engine
	cancel context.CancelFunc
	done   chan error

	mu     sync.Mutex
	events []Event
	waits  []eventWait
}

type eventWait struct {
	match func(Event) bool
	ch    chan Event
}

func (w *world) start(c Config) *member {
	w.Helper()
	m := w.launch(c)
	select {
	case <-m.e.Ready():
	case err := <-m.done:
		w.Fatalf("Run returned at once: %v", err)
	}
	return m
}

func (w *world) launch(c Config) *member {
	w.Helper()
	m := &member{w: w, done: make(chan error, 1)}
	c.OnEvent = m.note
	e, err := New(c)
	if err != nil {
		w.Fatal(err)
	}
	m.e = e
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	w.enlisting.Lock() // those who look at what the members send ask who they are
	w.members = append(w.members, m)
	w.enlisting.Unlock()
	go func() { m.done <- e.Run(ctx) }()
	return m
}

func (m *member) note(ev Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, ev)
	keep := m.waits[:0]
	for _, wt := range m.waits {
		if wt.match(ev) {
			wt.ch <- ev
		} else {
			keep = append(keep, wt)
		}
	}
	m.waits = keep
}

// await returns the first event that matches, past or to come, within five virtual minutes.
func (m *member) await(what string, match func(Event) bool) Event {
	m.w.Helper()
	m.mu.Lock()
	for _, ev := range m.events {
		if match(ev) {
			m.mu.Unlock()
			return ev
		}
	}
	ch := make(chan Event, 1)
	m.waits = append(m.waits, eventWait{match, ch})
	m.mu.Unlock()
	select {
	case ev := <-ch:
		return ev
	case <-time.After(5 * time.Minute):
		m.w.Fatalf("no event: %s; had %v", what, m.names())
		return Event{}
	}
}

func (m *member) awaitName(n EventName) Event {
	m.w.Helper()
	return m.await(string(n), func(ev Event) bool { return ev.Name == n })
}

func (m *member) count(n EventName) (c int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ev := range m.events {
		if ev.Name == n {
			c++
		}
	}
	return c
}

func (m *member) names() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ev := range m.events {
		names = append(names, fmt.Sprintf("%s %s[%d]@%d %v", ev.Name, ev.Topic, ev.Partition, ev.Offset, ev.Err))
	}
	return names
}

// stop ends the member cleanly.
func (m *member) stop() {
	m.w.Helper()
	m.cancel()
	if err := <-m.done; err != nil {
		m.w.Errorf("Run: %v", err)
	} else if n := m.e.records.Lent(); n > 0 { // C7
		m.w.Errorf("of %d batches not all records were released", n)
	}
}

// produce writes values to a partition of "t"; a value "k=v" has the key k.
func (w *world) produce(partition int32, values ...string) {
	w.Helper()
	w.produceTo("t", partition, values...)
}

func (w *world) produceTo(topic string, partition int32, values ...string) {
	w.Helper()
	var rs []*kgo.Record
	for _, v := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
		for i := range len(v) {
			if v[i] == '=' {
				r.Key = []byte(v[:i])
				break
			}
		}
		rs = append(rs, r)
	}
	if err := w.cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		w.Fatal(err)
	}
}

// numbered is n values that begin with prefix.
func numbered(prefix string, n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf("%s%d", prefix, i))
	}
	return values
}

// committed is what the group has committed, read by an independent client; -1 = nothing.
func (w *world) committed(topic string, partition int32) int64 {
	w.Helper()
	resp, err := w.adm.FetchOffsets(context.Background(), testGroup)
	if errors.Is(err, kerr.GroupIDNotFound) { // it has not begun
		return -1
	}
	if err != nil {
		w.Fatal(err)
	}
	o, ok := resp.Lookup(topic, partition)
	if !ok {
		return -1
	}
	return o.At
}

// eventually checks a condition each virtual 10 ms, and after a second each 100 ms, for two virtual minutes at most. It costs
// no real time but that of the checks.
func (w *world) eventually(what string, cond func() bool) {
	w.Helper()
	for i := range 1300 {
		synctest.Wait()
		if cond() {
			return
		}
		if i < 100 {
			time.Sleep(10 * time.Millisecond)
		} else {
			time.Sleep(100 * time.Millisecond)
		}
	}
	for _, m := range w.members {
		w.Logf("%v", m.names())
	}
	w.Fatalf("never: %s", what)
}

// log is what handlers were called with, in order.
type callLog struct {
	mu    sync.Mutex
	calls []string
}

func (l *callLog) add(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, string(r.Value))
}

func (l *callLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.calls...)
}

func (l *callLog) len() int { return len(l.all()) }

var errBoom = errors.New("boom")
