package engine

import (
	"fmt"
	"iter"
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// validate names the first field that is wrong, and says what to write instead. It expects the defaults to be filled in.
func (c *Config) validate() error {
	checks := []func() error{c.validateConnection, c.validateGroup, c.validateTopics, c.validateHandlers, c.validateWork,
		c.validateFailure, c.validateDedupe, c.validateTimes, c.validateKgoOpts}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func bad(field, format string, args ...any) error {
	return &ConfigError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

func oneOf[T ~string](field string, v T, allowed ...T) error {
	for _, a := range allowed {
		if v == a {
			return nil
		}
	}
	return bad(field, "%q is not one of %q", v, allowed)
}

func (c *Config) validateConnection() error {
	if len(c.Brokers) == 0 {
		return bad("Brokers", "none given; name at least one broker, such as \"localhost:9092\"")
	}
	for _, b := range c.Brokers {
		if strings.Contains(b, "@") { // what stands before it may be a password, so it is not repeated
			return bad("Brokers", "an address holds an @; write host:port only, and credentials into SASL")
		}
		if _, port, err := net.SplitHostPort(b); err != nil || port == "" {
			return bad("Brokers", "%q is not host:port", b)
		}
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return bad("TLS", "CertFile and KeyFile go together; only one is set")
	}
	s := c.SASL
	switch s.Mechanism {
	case "":
		if s.User != "" || s.password() != "" || s.Token != nil {
			return bad("SASL.Mechanism", "empty though credentials are given; write PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER")
		}
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if s.User == "" || s.password() == "" {
			return bad("SASL", "%s needs both User and Password", s.Mechanism)
		}
	case "OAUTHBEARER":
		if s.Token == nil {
			return bad("SASL.Token", "OAUTHBEARER needs a function that returns a token")
		}
	default:
		return bad("SASL.Mechanism", "%q is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER", s.Mechanism)
	}
	return nil
}

func (c *Config) validateGroup() error {
	if c.Group == "" {
		return bad("Group", "empty; write the group's fixed id")
	}
	if c.LeaveOnStop && c.InstanceID == "" {
		return bad("LeaveOnStop", "is for static members; a dynamic member leaves anyway (set InstanceID, or drop it)")
	}
	if err := oneOf("Protocol", c.Protocol, ProtocolClassic, ProtocolConsumer); err != nil {
		return err
	}
	return oneOf("Balancer", c.Balancer, BalancerCooperativeSticky, BalancerSticky, BalancerRange, BalancerRoundRobin)
}

func (c *Config) validateTopics() error {
	if (len(c.Topics) == 0) == (c.TopicPattern == "") {
		return bad("Topics", "set exactly one of Topics and TopicPattern")
	}
	seen := map[string]bool{}
	for _, t := range c.Topics {
		if err := topicName(t); err != nil {
			return bad("Topics", "%v", err)
		}
		if seen[t] {
			return bad("Topics", "%q is given twice", t)
		}
		seen[t] = true
	}
	for _, t := range c.Topics {
		if d := c.deadLetterTopic(t); c.writesDeadLetters() && c.DeadLetter.Topic != "{topic}" && seen[d] {
			return bad("Topics", "%q is the dead-letter topic of %q: what is dead-lettered would be consumed again for ever; consume it with another group and configuration", d, t)
		}
	}
	if c.TopicPattern != "" {
		if _, err := regexp.Compile(c.TopicPattern); err != nil {
			return bad("TopicPattern", "%v", err)
		}
	}
	return oneOf("OnDataLoss", c.OnDataLoss, DataLossStop, DataLossEarliest, DataLossLatest)
}

var legalTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func topicName(t string) error {
	if !legalTopic.MatchString(t) || t == "." || t == ".." {
		return fmt.Errorf("%q is not a topic name (letters, digits, '.', '_' and '-', at most 249)", t)
	}
	return nil
}

func (c *Config) validateHandlers() error {
	single, batch := c.Handler != nil || len(c.Handlers) > 0, c.batching()
	if single == batch {
		return bad("Handler", "set a Handler (or Handlers) or a BatchHandler (or BatchHandlers), one kind of the two")
	}
	for _, m := range c.Middleware {
		if m == nil {
			return bad("Middleware", "has a nil entry")
		}
	}
	if len(c.Topics) > 0 {
		for _, named := range []struct {
			field  string
			topics iter.Seq[string]
		}{{"Handlers", maps.Keys(c.Handlers)}, {"BatchHandlers", maps.Keys(c.BatchHandlers)}} {
			for t := range named.topics {
				if !slices.Contains(c.Topics, t) {
					return bad(named.field, "%q is not one of Topics", t)
				}
			}
		}
	}
	if c.Handler != nil || c.BatchHandler != nil {
		return nil
	}
	if c.TopicPattern != "" {
		return bad("Handler", "TopicPattern can match topics that no entry of Handlers names; set a Handler for them")
	}
	for _, t := range c.Topics {
		if c.Handlers[t] == nil && c.BatchHandlers[t] == nil {
			return bad("Handlers", "topic %q has no handler", t)
		}
	}
	return nil
}

func (c *Config) validateWork() error {
	if err := oneOf("Order", c.Order, OrderKey, OrderUnordered, OrderPartition); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		v    int64
		max  int64
	}{
		{"Workers", int64(c.mostWorkers()), 1_000_000}, {"WorkersPerPartition", int64(c.WorkersPerPartition), 1_000_000},
		{"MinWorkers", int64(c.MinWorkers), 1_000_000}, {"MaxWorkers", int64(c.MaxWorkers), 1_000_000},
		{"PartitionRecords", int64(c.PartitionRecords), 1 << 24}, {"PartitionBytes", c.PartitionBytes, 1 << 40}, {"MaxBytes", c.MaxBytes, 1 << 40},
		{"BatchSize", int64(c.BatchSize), 1_000_000}, {"Retry.Attempts", int64(c.Retry.Attempts), 1_000_000},
		{"DeadLetter.AfterKeyMax", int64(c.DeadLetter.AfterKeyMax), 1 << 30},
		{"DeadLetter.BreakerWindow", int64(c.DeadLetter.BreakerWindow), 1 << 24}, {"DeadLetter.BreakerMin", int64(c.DeadLetter.BreakerMin), 1 << 24},
		{"FetchMinBytes", int64(c.FetchMinBytes), 1 << 30}, {"FetchMaxBytes", int64(c.FetchMaxBytes), 1 << 30}, {"FetchMaxPartitionBytes", int64(c.FetchMaxPartitionBytes), 1 << 30}, {"FetchMaxBatchBytes", int64(c.FetchMaxBatchBytes), 1<<31 - 1},
	} {
		if f.v < 1 || f.v > f.max {
			return bad(f.name, "%d is not between 1 and %d", f.v, f.max)
		}
	}
	if c.MinWorkers > c.MaxWorkers {
		return bad("MinWorkers", "%d is above MaxWorkers (%d)", c.MinWorkers, c.MaxWorkers)
	}
	if most := c.mostWorkers(); c.WorkersPerPartition > most {
		field := "Workers"
		if c.Workers == Auto {
			field = "MaxWorkers"
		}
		return bad("WorkersPerPartition", "%d is above %s (%d)", c.WorkersPerPartition, field, most)
	}
	if c.batching() && c.PartitionRecords < c.BatchSize {
		return bad("PartitionRecords", "%d is below BatchSize (%d): a batch would never fill", c.PartitionRecords, c.BatchSize)
	}
	if c.Commit.Records < 0 {
		return bad("Commit.Records", "%d is negative; 0 = by time only", c.Commit.Records)
	}
	if c.Commit.Each && c.Commit.Records > 0 {
		return bad("Commit", "Each and Records exclude one another")
	}
	if c.FetchMinBytes > c.FetchMaxBytes {
		return bad("FetchMinBytes", "%d is above FetchMaxBytes (%d)", c.FetchMinBytes, c.FetchMaxBytes)
	}
	return nil
}

func (c *Config) validateFailure() error {
	if c.Retry.Max < c.Retry.Base {
		return bad("Retry.Max", "%v is below Retry.Base (%v)", c.Retry.Max, c.Retry.Base)
	}
	if c.Retry.Jitter > 1 {
		return bad("Retry.Jitter", "%v is above 1", c.Retry.Jitter)
	}
	d := &c.DeadLetter
	if err := oneOf("DeadLetter.GiveUp", d.GiveUp, GiveUpDeadLetter, GiveUpHold, GiveUpSkip); err != nil {
		return err
	}
	if err := oneOf("DeadLetter.Format", d.Format, DeadLetterHeaders, DeadLetterEnvelope); err != nil {
		return err
	}
	if err := oneOf("DeadLetter.AfterKey", d.AfterKey, KeyContinues, KeyHolds, KeyFollows); err != nil {
		return err
	}
	if d.BreakerRatio < 0 {
		return bad("DeadLetter.BreakerRatio", "%v is negative; 1 = never", d.BreakerRatio)
	}
	if d.Retention > 0 && d.Retention < time.Minute {
		return bad("DeadLetter.Retention", "%v is too short to look at a dead letter; negative = for ever", d.Retention)
	}
	if d.AfterKey != KeyContinues && c.Order != OrderKey {
		return bad("DeadLetter.AfterKey", "%q needs Order %q", d.AfterKey, OrderKey)
	}
	if c.writesDeadLetters() {
		if err := topicName(strings.ReplaceAll(d.Topic, "{topic}", "t")); err != nil {
			return bad("DeadLetter.Topic", "%v; \"{topic}\" stands for the source's name", err)
		}
		if d.Topic == "{topic}" {
			return bad("DeadLetter.Topic", "is the source topic itself; write for example \"{topic}.dlq\"")
		}
	}
	return nil
}

func (c *Config) validateTimes() error {
	for _, f := range []struct {
		name string
		v    time.Duration
	}{
		{"SessionTimeout", c.SessionTimeout}, {"RebalanceTimeout", c.RebalanceTimeout}, {"HeartbeatInterval", c.HeartbeatInterval},
		{"BatchLinger", c.BatchLinger}, {"Commit.Interval", c.Commit.Interval}, {"Retry.Base", c.Retry.Base}, {"Retry.MaxRetryAfter", c.Retry.MaxRetryAfter},
		{"DrainTimeout", c.DrainTimeout}, {"CommitTimeout", c.CommitTimeout}, {"StuckAfter", c.StuckAfter}, {"StalledAfter", c.StalledAfter},
		{"StartTimeout", c.StartTimeout}, {"FetchMaxWait", c.FetchMaxWait},
	} {
		if f.v <= 0 {
			return bad(f.name, "%v is not a positive time", f.v)
		}
	}
	if c.HandlerTimeout < 0 {
		return bad("HandlerTimeout", "%v is negative; 0 = none", c.HandlerTimeout)
	}
	if c.HeartbeatInterval*2 > c.SessionTimeout {
		return bad("HeartbeatInterval", "%v is more than half of SessionTimeout (%v); a third is usual", c.HeartbeatInterval, c.SessionTimeout)
	}
	if c.DrainTimeout+c.CommitTimeout > c.RebalanceTimeout {
		return bad("CommitTimeout", "%v and DrainTimeout (%v) exceed RebalanceTimeout (%v) together: the group would throw the member out while it hands over", c.CommitTimeout, c.DrainTimeout, c.RebalanceTimeout)
	}
	if c.DrainTimeout > c.RebalanceTimeout/3 {
		return bad("DrainTimeout", "%v is more than a third of RebalanceTimeout (%v): the group would throw the member out while it drains", c.DrainTimeout, c.RebalanceTimeout)
	}
	return nil
}

// refusedOpts are the client options that would break the contract, or that a field of Config sets.
var refusedOpts = []struct {
	name string
	opt  any
	why  string
}{
	{"TransactionalID", kgo.TransactionalID, "transactional commits are not supported"},
	{"AutoCommitInterval", kgo.AutoCommitInterval, "the engine commits; see Config.Commit"},
	{"AutoCommitMarks", kgo.AutoCommitMarks, "the engine commits; see Config.Commit"},
	{"AutoCommitCallback", kgo.AutoCommitCallback, "the engine commits; see Config.OnEvent"},
	{"GreedyAutoCommit", kgo.GreedyAutoCommit, "the engine commits; see Config.Commit"},
	{"DisableAutoCommit", kgo.DisableAutoCommit, "the engine sets it"},
	{"OnPartitionsCallbackBlocked", kgo.OnPartitionsCallbackBlocked, "the engine never blocks a rebalance"},
	{"OnOffsetsFetched", kgo.OnOffsetsFetched, "the engine needs it"},
	{"AdjustFetchOffsetsFn", kgo.AdjustFetchOffsetsFn, "the engine needs it; see Config.Start"},
	{"BlockRebalanceOnPoll", kgo.BlockRebalanceOnPoll, "the engine sets it"},
	{"ConsumerGroup", kgo.ConsumerGroup, "set Config.Group"},
	{"ShareGroup", kgo.ShareGroup, "the engine consumes through a consumer group"},
	{"ConsumePartitions", kgo.ConsumePartitions, "the engine consumes through a consumer group"},
	{"ConsumeTopics", kgo.ConsumeTopics, "set Config.Topics"},
	{"ConsumeRegex", kgo.ConsumeRegex, "set Config.TopicPattern"},
	{"ConsumeExcludeTopics", kgo.ConsumeExcludeTopics, "the engine excludes its dead-letter topics with it; write the exclusion into Config.TopicPattern"},
	{"ConsumeResetOffset", kgo.ConsumeResetOffset, "set Config.OnDataLoss"},
	{"ConsumeStartOffset", kgo.ConsumeStartOffset, "set Config.Start"},
	{"InstanceID", kgo.InstanceID, "set Config.InstanceID"},
	{"Balancers", kgo.Balancers, "set Config.Balancer"},
	{"ServerSideBalancer", kgo.ServerSideBalancer, "set Config.Protocol"},
	{"SessionTimeout", kgo.SessionTimeout, "set Config.SessionTimeout"},
	{"RebalanceTimeout", kgo.RebalanceTimeout, "set Config.RebalanceTimeout"},
	{"HeartbeatInterval", kgo.HeartbeatInterval, "set Config.HeartbeatInterval"},
	{"MaxDecompressBatchBytes", kgo.MaxDecompressBatchBytes, "set Config.FetchMaxBatchBytes"},
	{"FetchIsolationLevel", kgo.FetchIsolationLevel, "set Config.ReadUncommitted"},
	{"KeepControlRecords", kgo.KeepControlRecords, "the engine sets it"},
	{"KeepRetryableFetchErrors", kgo.KeepRetryableFetchErrors, "it floods the fetch loop with errors that heal by themselves"},
	{"WithPools", kgo.WithPools, "the engine owns the records and recycles them"},
	{"SeedBrokers", kgo.SeedBrokers, "set Config.Brokers"},
	{"RequiredAcks", kgo.RequiredAcks, "outputs and dead letters are acknowledged by all in-sync replicas"},
	{"DisableIdempotentWrite", kgo.DisableIdempotentWrite, "outputs and dead letters are written idempotently"},
	{"RecordPartitioner", kgo.RecordPartitioner, "outputs are partitioned as the Java client does"},
	{"ManualFlushing", kgo.ManualFlushing, "outputs and dead letters would never leave"},
	{"DefaultProduceTopic", kgo.DefaultProduceTopic, "an output names its topic"},
	{"DefaultProduceTopicAlways", kgo.DefaultProduceTopicAlways, "dead letters would go elsewhere"},
	{"StopProducerOnDataLossDetected", kgo.StopProducerOnDataLossDetected, "no output could be written any more"},
	{"WithContext", kgo.WithContext, "the engine's lifetime is Run's and Stop's"},
}

// validateKgoOpts finds the refused options among the user's by what they change in an otherwise empty client.
func (c *Config) validateKgoOpts() error {
	if len(c.KgoOpts) == 0 {
		return nil
	}
	beside := kgo.ConsumerGroup("gapless") // group options are legal only beside a group; without topics it joins nothing
	plain, err := newClient(beside)
	if err != nil {
		return err
	}
	defer plain.Close()
	for _, opt := range c.KgoOpts {
		if opt == nil {
			return bad("KgoOpts", "holds a nil option")
		}
		// The client wraps these three, so that they can't be compared; without a group it refuses them.
		if alone, err := newClient(opt); err == nil {
			alone.Close()
		} else if strings.Contains(err.Error(), "assigned/revoked/lost") {
			return bad("KgoOpts", "kgo.OnPartitionsAssigned, OnPartitionsRevoked and OnPartitionsLost are refused: the engine needs them; see Config.OnEvent")
		}
		changed, err := newClient(beside, opt)
		if err != nil {
			return bad("KgoOpts", "an option is refused: %v", err)
		}
		for _, r := range refusedOpts {
			if optText(changed, r.opt) != optText(plain, r.opt) {
				changed.Close()
				return bad("KgoOpts", "kgo.%s is refused: %s", r.name, r.why)
			}
		}
		changed.Close()
	}
	return nil
}

// optText is an option's value in comparable form.
func optText(cl *kgo.Client, opt any) string {
	var parts []string
	for _, v := range cl.OptValues(opt) {
		switch v := v.(type) {
		case []kgo.GroupBalancer: // pointers: their names say what they are
			for _, b := range v {
				parts = append(parts, b.ProtocolName())
			}
		case kgo.Partitioner:
			parts = append(parts, fmt.Sprintf("%T", v))
		default:
			if f := reflect.ValueOf(v); f.Kind() == reflect.Func {
				parts = append(parts, fmt.Sprint(f.Pointer())) // its code: two closures of one default are equal
				continue
			}
			parts = append(parts, fmt.Sprint(v))
		}
	}
	return strings.Join(parts, " ")
}
