package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

func validConfig() Config {
	return Config{Brokers: []string{"localhost:9092"}, Group: "g", Topics: []string{"t"},
		Handler: HandlerFunc(func(context.Context, *Record) error { return nil })}
}

// New names the wrong field, and says what to write instead.
func TestConfigNamesTheWrongField(t *testing.T) {
	batch := BatchHandlerFunc(func(context.Context, *Batch) error { return nil })
	for _, tc := range []struct {
		field, says string
		change      func(*Config)
	}{
		{"Brokers", "localhost:9092", func(c *Config) { c.Brokers = nil }},
		{"Brokers", "host:port", func(c *Config) { c.Brokers = []string{"localhost"} }},
		{"TLS", "go together", func(c *Config) { c.TLS.CertFile = "x" }},
		{"SASL.Mechanism", "SCRAM-SHA-512", func(c *Config) { c.SASL.Mechanism = "GSSAPI" }},
		{"SASL.Mechanism", "credentials", func(c *Config) { c.SASL.User = "u" }},
		{"SASL", "Password", func(c *Config) { c.SASL = SASL{Mechanism: "PLAIN", User: "u"} }},
		{"SASL.Token", "token", func(c *Config) { c.SASL.Mechanism = "OAUTHBEARER" }},
		{"Group", "fixed", func(c *Config) { c.Group = "" }},
		{"LeaveOnStop", "InstanceID", func(c *Config) { c.LeaveOnStop = true }},
		{"Protocol", "classic", func(c *Config) { c.Protocol = "x" }},
		{"Balancer", "range", func(c *Config) { c.Balancer = "x" }},
		{"Topics", "exactly one", func(c *Config) { c.Topics = nil }},
		{"Topics", "exactly one", func(c *Config) { c.TopicPattern = "x" }},
		{"Topics", "not a topic name", func(c *Config) { c.Topics = []string{"a b"} }},
		{"Topics", "twice", func(c *Config) { c.Topics = []string{"a", "a"} }},
		{"Topics", "for ever", func(c *Config) { c.Topics = []string{"a", "a.dlq"} }},
		{"TopicPattern", "missing", func(c *Config) { c.Topics, c.TopicPattern = nil, "(" }},
		{"OnDataLoss", "stop", func(c *Config) { c.OnDataLoss = "x" }},
		{"Handler", "set a Handler", func(c *Config) { c.Handler = nil }},
		{"Handler", "one kind", func(c *Config) { c.BatchHandler = batch }},
		{"Handlers", `"t"`, func(c *Config) {
			c.Topics, c.Handlers, c.Handler = []string{"t", "u"}, map[string]Handler{"u": c.Handler}, nil
		}},
		{"Order", "partition", func(c *Config) { c.Order = "x" }},
		{"Workers", "between", func(c *Config) { c.Workers = -2 }},
		{"MaxWorkers", "between", func(c *Config) { c.MaxWorkers = -1 }},
		{"MinWorkers", "above MaxWorkers", func(c *Config) { c.MinWorkers, c.MaxWorkers = 9, 8 }},
		{"WorkersPerPartition", "above MaxWorkers", func(c *Config) { c.Workers, c.MaxWorkers, c.WorkersPerPartition = Auto, 8, 9 }},
		{"WorkersPerPartition", "above Workers", func(c *Config) { c.Workers, c.WorkersPerPartition = 2, 3 }},
		{"PartitionRecords", "BatchSize", func(c *Config) { c.Handler, c.BatchHandler, c.BatchSize, c.PartitionRecords = nil, batch, 100, 10 }},
		{"Commit.Records", "negative", func(c *Config) { c.Commit.Records = -1 }},
		{"Commit", "exclude", func(c *Config) { c.Commit.Each, c.Commit.Records = true, 1 }},
		{"FetchMinBytes", "above", func(c *Config) { c.FetchMinBytes, c.FetchMaxBytes = 10, 5 }},
		{"Retry.Max", "below", func(c *Config) { c.Retry.Base, c.Retry.Max = time.Minute, time.Second }},
		{"Retry.Jitter", "above 1", func(c *Config) { c.Retry.Jitter = 2 }},
		{"DeadLetter.GiveUp", "hold", func(c *Config) { c.DeadLetter.GiveUp = "x" }},
		{"DeadLetter.Format", "envelope", func(c *Config) { c.DeadLetter.Format = "x" }},
		{"DeadLetter.AfterKey", "Order", func(c *Config) { c.Order, c.DeadLetter.AfterKey = OrderUnordered, KeyHolds }},
		{"DeadLetter.Topic", "source topic itself", func(c *Config) { c.DeadLetter.Topic = "{topic}" }},
		{"DeadLetter.Topic", "not a topic name", func(c *Config) { c.DeadLetter.Topic = "{topic}/x" }},
		{"Topics", "for ever", func(c *Config) { c.Topics, c.DeadLetter.Topic = []string{"a.dlq"}, "a.dlq" }},
		{"Middleware", "nil", func(c *Config) { c.Middleware = []Middleware{nil} }},
		{"Handlers", "not one of Topics", func(c *Config) { c.Handlers = map[string]Handler{"typo": c.Handler} }},
		{"DeadLetter.BreakerRatio", "negative", func(c *Config) { c.DeadLetter.BreakerRatio = -1 }},
		{"DeadLetter.Retention", "short", func(c *Config) { c.DeadLetter.Retention = time.Second }},
		{"CommitTimeout", "hands over", func(c *Config) { c.CommitTimeout = time.Minute }},
		{"KgoOpts", "never leave", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.ManualFlushing()} }},
		{"KgoOpts", "DefaultProduceTopicAlways", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.DefaultProduceTopicAlways()} }},
		{"DrainTimeout", "third", func(c *Config) { c.DrainTimeout = 30 * time.Second }},
		{"HandlerTimeout", "negative", func(c *Config) { c.HandlerTimeout = -1 }},
		{"HeartbeatInterval", "half", func(c *Config) { c.HeartbeatInterval = 40 * time.Second }},
		{"CommitTimeout", "positive", func(c *Config) { c.CommitTimeout = -1 }},
		{"KgoOpts", "kgo.AutoCommitMarks", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.AutoCommitMarks()} }},
		{"KgoOpts", "Config.Group", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.ConsumerGroup("x")} }},
		{"KgoOpts", "Config.Topics", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.ConsumeTopics("x")} }},
		{"KgoOpts", "Config.TopicPattern", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.ConsumeRegex()} }},
		{"KgoOpts", "Config.Balancer", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())} }},
		{"KgoOpts", "recycles", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.WithPools(&recordpool.Pool{})} }},
		{"KgoOpts", "idempotently", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.DisableIdempotentWrite()} }},
		{"KgoOpts", "transaction", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.TransactionalID("x")} }},
		{"KgoOpts", "lifetime", func(c *Config) { c.KgoOpts = []kgo.Opt{kgo.WithContext(t.Context())} }},
	} {
		c := validConfig()
		tc.change(&c)
		_, err := New(c)
		var ce *ConfigError
		if !errors.As(err, &ce) || ce.Field != tc.field || !strings.Contains(ce.Problem, tc.says) {
			t.Errorf("want field %s and %q, got %v", tc.field, tc.says, err)
		}
	}
}

// Every callback and commit option that would break the contract is refused by its name.
func TestRefusedOptions(t *testing.T) {
	refuse := map[string]kgo.Opt{
		"OnPartitionsRevoked":  kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {}),
		"OnPartitionsAssigned": kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {}),
		"OnPartitionsLost":     kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {}),
		"AutoCommitInterval":   kgo.AutoCommitInterval(time.Second),
		"GreedyAutoCommit":     kgo.GreedyAutoCommit(),
		"AutoCommitMarks":      kgo.AutoCommitMarks(),
		"BlockRebalanceOnPoll": kgo.BlockRebalanceOnPoll(),
		"ConsumeResetOffset":   kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		"KeepControlRecords":   kgo.KeepControlRecords(),
		"InstanceID":           kgo.InstanceID("x"),
	}
	for name, opt := range refuse {
		c := validConfig()
		c.KgoOpts = []kgo.Opt{opt}
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pass := []kgo.Opt{kgo.MaxConcurrentFetches(2), kgo.MetadataMaxAge(time.Minute), kgo.Dialer(nil), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(kgo.ZstdCompression())}
	for i, opt := range pass {
		c := validConfig()
		c.KgoOpts = []kgo.Opt{opt}
		if _, err := New(c); err != nil {
			t.Errorf("pass %d: %v", i, err)
		}
	}
}

// The zero values are safe, and are what the doc comments say.
func TestDefaults(t *testing.T) {
	e, err := New(validConfig())
	if err != nil {
		t.Fatal(err)
	}
	c := e.cfg
	if c.Order != OrderKey || c.Workers != 64 || c.Retry.Attempts != 3 || c.Retry.Base != time.Second || c.Retry.Max != 10*time.Second ||
		c.DrainTimeout != 20*time.Second || c.Commit.Interval != time.Second || c.ReadUncommitted || c.DeadLetter.GiveUp != GiveUpDeadLetter ||
		c.deadLetterTopic("t") != "t.dlq" || c.BatchSize != 100 || c.BatchLinger != 500*time.Millisecond || c.PartitionRecords != 32768 {
		t.Errorf("%+v", c)
	}
}

func TestBackoff(t *testing.T) {
	r := Retry{Base: time.Second, Max: 10 * time.Second, Jitter: -1}
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 100: 10 * time.Second} {
		if got := r.delay(n); got != want {
			t.Errorf("after %d failures: %v, want %v", n, got, want)
		}
	}
	r.Jitter = 0.5
	for range 1000 {
		if d := r.delay(1); d < time.Second/2 || d > time.Second {
			t.Fatalf("%v", d)
		}
	}
}

// Typed handlers: what can't be decoded is permanent.
func TestTypedHandler(t *testing.T) {
	type order struct{ ID int }
	var got order
	h := JSON(func(_ context.Context, o order, _ *Record) error { got = o; return nil })
	if err := h.Handle(t.Context(), &Record{Record: &kgo.Record{Value: []byte(`{"ID":7}`)}}); err != nil || got.ID != 7 {
		t.Error(err, got)
	}
	err := h.Handle(t.Context(), &Record{Record: &kgo.Record{Value: []byte(`{`)}})
	if v, _ := steerOf(err); v != verdictPermanent {
		t.Errorf("%v", err)
	}
}

// A clone pins nothing of its fetch, and nil stays nil.
func TestClone(t *testing.T) {
	slab := []byte("keyvalueheader")
	r := &kgo.Record{Key: slab[:3], Value: slab[3:8], Headers: []kgo.RecordHeader{{Key: "h", Value: slab[8:]}, {Key: "n"}}}
	c := cloneRecord(r)
	copy(slab, "xxxxxxxxxxxxxxxx")
	if string(c.Key) != "key" || string(c.Value) != "value" || string(c.Headers[0].Value) != "header" || c.Headers[1].Value != nil {
		t.Errorf("%+v", c)
	}
	if c := cloneRecord(&kgo.Record{Key: []byte{}}); c.Key == nil || c.Value != nil {
		t.Errorf("%#v %#v", c.Key, c.Value)
	}
}

// The clients of an engine, and engines beside each other, share the options of the embedder. The race detector finds those that they change.
func TestClientsShareTheEmbeddersOptions(t *testing.T) {
	c := Config{
		Brokers: []string{"127.0.0.1:1"}, Group: "g", Topics: []string{"t"}, Handler: HandlerFunc(func(context.Context, *Record) error { return nil }),
		KgoOpts: []kgo.Opt{kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.NoCompression())},
	}
	var made sync.WaitGroup
	for range 4 {
		made.Go(func() {
			e, err := New(c)
			if err != nil {
				t.Error(err)
				return
			}
			w := writer{}
			if _, err := w.get(&e.cfg); err != nil {
				t.Error(err)
			}
			w.close()
		})
	}
	made.Wait()
}
