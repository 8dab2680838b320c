package main

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/settings"
	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/pflag"
)

// setting ties a flag to a field of engine.Config. The table below is the only place that does: the flags, their environment
// variables and file keys, the help, and the names in error messages all come from it.
type setting struct {
	flag    string
	field   string // path in engine.Config
	section string
	def     string // what the engine takes where nothing is set, for the help; the engine decides
	usage   string
	choices []string // for strings with few allowed values
	auto    bool     // for a number that the engine can find by itself
	// zero is what an explicit 0 means. The engine reads the zero value of a field as "the default", and somebody who writes
	// --workers 0 does not mean 64.
	zero zeroMeaning
}

type zeroMeaning int

const (
	zeroRefused zeroMeaning = iota
	zeroIsZero              // the engine knows 0 as a value of its own
	zeroIsNone              // the engine says none with a negative value
)

// The sections of the help, in its order.
const (
	secConnection = "Connection"
	secGroup      = "Group"
	secTopics     = "Topics"
	secWork       = "Work"
	secCommit     = "Commits"
	secDedupe     = "Deduplication"
	secFailure    = "Failure"
	secLimits     = "Deadlines and watchdog"
	secFetch      = "Fetching"
	secPrivacy    = "Privacy"
)

var settingTable = []setting{
	{flag: "brokers", field: "Brokers", section: secConnection, usage: "seed brokers, host:port[,host:port]"},
	{flag: "client-id", field: "ClientID", section: secConnection, def: "gapless", usage: "name of this client in the broker's logs and quotas"},
	{flag: "tls", field: "TLS.Enable", section: secConnection, usage: "encrypt, trusting the system's authorities; any --tls-... flag does so, too"},
	{flag: "tls-ca-file", field: "TLS.CAFile", section: secConnection, usage: "PEM file with the authorities to trust instead"},
	{flag: "tls-cert-file", field: "TLS.CertFile", section: secConnection, usage: "PEM file with the client's certificate"},
	{flag: "tls-key-file", field: "TLS.KeyFile", section: secConnection, usage: "PEM file with the client's key"},
	{flag: "tls-server-name", field: "TLS.ServerName", section: secConnection, usage: "name to verify, where it differs from the address"},
	{flag: "sasl-mechanism", field: "SASL.Mechanism", section: secConnection, usage: "how to authenticate",
		choices: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}},
	{flag: "sasl-user", field: "SASL.User", section: secConnection, usage: "user for PLAIN and SCRAM"},
	{flag: "start-timeout", field: "StartTimeout", section: secConnection, def: "10s", usage: "limit for the checks at start"},

	{flag: "group", field: "Group", section: secGroup, usage: "consumer group id; a fixed one"},
	{flag: "instance-id", field: "InstanceID", section: secGroup, usage: "static member: a restart within the session gets the same partitions, without a rebalance"},
	{flag: "leave-on-stop", field: "LeaveOnStop", section: secGroup, usage: "a static member leaves for good at stop"},
	{flag: "protocol", field: "Protocol", section: secGroup, def: "classic", usage: "group protocol; consumer is KIP-848",
		choices: []string{string(engine.ProtocolClassic), string(engine.ProtocolConsumer)}},
	{flag: "balancer", field: "Balancer", section: secGroup, def: "cooperative-sticky", usage: "how partitions are assigned",
		choices: []string{string(engine.BalancerCooperativeSticky), string(engine.BalancerSticky), string(engine.BalancerRange), string(engine.BalancerRoundRobin)}},
	{flag: "session-timeout", field: "SessionTimeout", section: secGroup, def: "45s", usage: "how long the group waits for a silent member"},
	{flag: "rebalance-timeout", field: "RebalanceTimeout", section: secGroup, def: "1m", usage: "how long members may take to hand over"},
	{flag: "heartbeat-interval", field: "HeartbeatInterval", section: secGroup, def: "3s", usage: "time between heartbeats"},
	{flag: "rack", field: "Rack", section: secGroup, usage: "where this client runs, to be served by a replica near by"},

	{flag: "topic", field: "Topics", section: secTopics, usage: "topic to consume; repeat it, or separate by commas"},
	{flag: "topic-pattern", field: "TopicPattern", section: secTopics, usage: "regular expression for topics, instead of --topic"},
	{flag: "start", field: "Start", section: secTopics, def: "earliest", usage: "where a group without commits begins: earliest, latest or a time such as 2026-01-31T00:00:00Z"},
	{flag: "on-data-loss", field: "OnDataLoss", section: secTopics, def: "stop", usage: "when retention deleted records before the group read them: stop the partition, or go on",
		choices: []string{string(engine.DataLossStop), string(engine.DataLossEarliest), string(engine.DataLossLatest)}},
	{flag: "read-uncommitted", field: "ReadUncommitted", section: secTopics, usage: "also deliver records of open and aborted transactions"},

	{flag: "order", field: "Order", section: secWork, def: "key", usage: "order within a partition",
		choices: []string{string(engine.OrderKey), string(engine.OrderUnordered), string(engine.OrderPartition)}},
	{flag: "workers", field: "Workers", section: secWork, def: "64", auto: true, usage: "records handled at once, over all partitions; auto = find out how many, and go on looking"},
	{flag: "workers-min", field: "MinWorkers", section: secWork, def: "1", usage: "least of them with --workers auto"},
	{flag: "workers-max", field: "MaxWorkers", section: secWork, def: "512", usage: "most of them with --workers auto; this member's share, where others use the same service"},
	{flag: "workers-per-partition", field: "WorkersPerPartition", section: secWork, def: "all", usage: "how many of them one partition may have"},
	{flag: "partition-records", field: "PartitionRecords", section: secWork, def: "32768, or 4 a worker", usage: "records of a partition held in memory"},
	{flag: "partition-bytes", field: "PartitionBytes", section: secWork, def: "32MiB", usage: "memory that the records of a partition may pin"},
	{flag: "max-bytes", field: "MaxBytes", section: secWork, def: "256MiB", usage: "memory that all records together may pin"},
	{flag: "batch-size", field: "BatchSize", section: secWork, def: "100", usage: "most records of a batch; see --batch"},
	{flag: "batch-linger", field: "BatchLinger", section: secWork, def: "500ms", usage: "how long a batch waits to fill"},
	{flag: "handler-timeout", field: "HandlerTimeout", section: secWork, def: "none", zero: zeroIsZero, usage: "end a handler's context after that time"},

	{flag: "commit-interval", field: "Commit.Interval", section: secCommit, def: "1s", usage: "time between commits"},
	{flag: "commit-records", field: "Commit.Records", section: secCommit, def: "0: by time only", zero: zeroIsZero, usage: "commit after that many records, too"},
	{flag: "commit-each", field: "Commit.Each", section: secCommit, usage: "commit after every record, as soon as the previous commit has returned"},
	{flag: "commit-metadata-bytes", field: "Commit.MetadataBytes", section: secCommit, def: "4096", usage: "bound of what a commit says of the work settled beyond its offset; negative = nothing"},
	{flag: "commit-timeout", field: "CommitTimeout", section: secCommit, def: "5s", usage: "limit for one commit request"},

	{flag: "retry-attempts", field: "Retry.Attempts", section: secFailure, def: "3", usage: "attempts in all; 1 = no retry"},
	{flag: "retry-base", field: "Retry.Base", section: secFailure, def: "1s", usage: "first delay; it doubles from there"},
	{flag: "retry-max", field: "Retry.Max", section: secFailure, def: "10s", usage: "longest delay"},
	{flag: "retry-jitter", field: "Retry.Jitter", section: secFailure, def: "0.2", zero: zeroIsNone, usage: "share of a delay that is random, 0 to 1"},
	{flag: "max-retry-after", field: "Retry.MaxRetryAfter", section: secFailure, def: "5m", usage: "limit for the delay that a handler asks for"},
	{flag: "give-up", field: "DeadLetter.GiveUp", section: secFailure, def: "dead-letter", usage: "what becomes of a record whose attempts are spent",
		choices: []string{string(engine.GiveUpDeadLetter), string(engine.GiveUpHold), string(engine.GiveUpSkip)}},
	{flag: "dead-letter-topic", field: "DeadLetter.Topic", section: secFailure, def: "{topic}.dlq", usage: "where dead letters go; {topic} stands for the source"},
	{flag: "dead-letter-no-create", field: "DeadLetter.NoCreate", section: secFailure, usage: "refuse to start where that topic is missing, instead of creating it"},
	{flag: "dead-letter-retention", field: "DeadLetter.Retention", section: secFailure, def: "14d", zero: zeroIsNone, usage: "retention of a topic created here; 0 = for ever"},
	{flag: "dead-letter-replication", field: "DeadLetter.Replication", section: secFailure, def: "the broker's", usage: "replication factor of a topic created here"},
	{flag: "dead-letter-format", field: "DeadLetter.Format", section: secFailure, def: "headers", usage: "the record as it was with headers on the failure, or one JSON object",
		choices: []string{string(engine.DeadLetterHeaders), string(engine.DeadLetterEnvelope)}},
	{flag: "dead-letter-after-key", field: "DeadLetter.AfterKey", section: secFailure, def: "continue", usage: "what later records of that key do, with --order key",
		choices: []string{string(engine.KeyContinues), string(engine.KeyHolds), string(engine.KeyFollows)}},
	{flag: "dead-letter-after-key-max", field: "DeadLetter.AfterKeyMax", section: secFailure, def: "10000", usage: "keys remembered a partition for that"},
	{flag: "breaker-ratio", field: "DeadLetter.BreakerRatio", section: secFailure, def: "0.5", usage: "hold a topic when more than this share of it is dead-lettered; 1 = never"},
	{flag: "breaker-window", field: "DeadLetter.BreakerWindow", section: secFailure, def: "1000", usage: "how many records that looks back at"},
	{flag: "breaker-min", field: "DeadLetter.BreakerMin", section: secFailure, def: "100", usage: "how many must have been settled before"},

	{flag: "dedupe", field: "Dedupe.Enable", section: secDedupe, usage: "keep a store on this host's disk: after a crash, only what was in flight or milliseconds old is handled again. --dedupe-key, --dedupe-dir and --dedupe-base do so, too"},
	{flag: "dedupe-dir", field: "Dedupe.Dir", section: secDedupe, def: "none", usage: "the store's directory, for this process alone, on a disk that outlives it; not the root of a volume, but a folder in it"},
	{flag: "dedupe-base", field: "Dedupe.Base", section: secDedupe, def: "$XDG_STATE_HOME/gapless/dedupe, or ~/.local/state/...", usage: "instead of --dedupe-dir: take the first free one of <base>/<group>/0, 1, 2 ..., so that members on one host share nothing"},
	{flag: "dedupe-retention", field: "Dedupe.Retention", section: secDedupe, def: "24h", usage: "how long a business key is remembered from when it was first handled, such as 7d; longer than a duplicate can be late"},
	{flag: "dedupe-scope", field: "Dedupe.Scope", section: secDedupe, def: "the group and topic", usage: "what the keys are unique in; topics with the same one share their keys"},
	{flag: "dedupe-on-differ", field: "Dedupe.OnDiffer", section: secDedupe, def: "run", usage: "what to do with a known key that comes with another value",
		choices: []string{string(engine.DifferRun), string(engine.DifferDeadLetter), string(engine.DifferHold)}},
	{flag: "dedupe-quarantine", field: "Dedupe.Quarantine", section: secDedupe, usage: "move a store that can't be read aside, and start with an empty one, which costs duplicates; without it the start is refused"},
	{flag: "dedupe-max-delay", field: "Dedupe.MaxDelay", section: secDedupe, def: "2ms", usage: "how long a finished record waits to be made durable with others"},
	{flag: "dedupe-max-group", field: "Dedupe.MaxGroup", section: secDedupe, def: "8192", usage: "most records made durable at once"},
	{flag: "dedupe-max-pending", field: "Dedupe.MaxPending", section: secDedupe, def: "16384", usage: "finished records that may wait for that before no more start"},

	{flag: "drain-timeout", field: "DrainTimeout", section: secLimits, def: "20s, or a third of --rebalance-timeout", usage: "how long a rebalance and a stop wait for running handlers"},
	{flag: "stuck-after", field: "StuckAfter", section: secLimits, def: "1m", usage: "report a handler that runs longer"},
	{flag: "stalled-after", field: "StalledAfter", section: secLimits, def: "1m", usage: "report a partition with backlog and no progress for longer"},

	{flag: "fetch-min-bytes", field: "FetchMinBytes", section: secFetch, def: "1", usage: "what a broker waits for before it answers"},
	{flag: "fetch-max-bytes", field: "FetchMaxBytes", section: secFetch, def: "16MiB", usage: "most of one answer"},
	{flag: "fetch-max-partition-bytes", field: "FetchMaxPartitionBytes", section: secFetch, def: "1MiB", usage: "most of one partition in it"},
	{flag: "fetch-max-wait", field: "FetchMaxWait", section: secFetch, def: "250ms", usage: "how long a broker may wait for --fetch-min-bytes"},
	{flag: "fetch-max-batch-bytes", field: "FetchMaxBatchBytes", section: secFetch, def: "128MiB", usage: "most that one batch of the log may expand to; a partition that comes to a larger one stops"},

	{flag: "hide-keys", field: "HideKeys", section: secPrivacy, usage: "keep the keys of records out of /status: a stand-in is shown"},
	{flag: "hide-errors", field: "HideErrors", section: secPrivacy, usage: "keep the texts of the sink's errors, which may quote records, out of the log, /status and dead letters"},
}

// notFlags are the fields of engine.Config that no flag sets, with the reason.
var notFlags = map[string]string{
	"Handler":        "the sink (--sink)",
	"Handlers":       "one sink serves all topics",
	"BatchHandler":   "the sink, with --batch",
	"BatchHandlers":  "one sink serves all topics",
	"Middleware":     "Go code",
	"SASL.Password":  "a secret: GAPLESS_SASL_PASSWORD or --sasl-password-file",
	"SASL.Token":     "a secret: --sasl-token-file",
	"SASL.sealed":    "the engine's own",
	"Dedupe.Key":     "--dedupe-key",
	"Dedupe.FS":      "for tests",
	"Retry.Classify": "Go code; a sink steers with its errors",
	"Log":            "--log-level and --log-format",
	"OnEvent":        "Go code; the log has a line an event",
	"KgoOpts":        "Go code",
}

// register adds the table's flags of some sections (none = all) to flags; they write straight into cfg.
func register(flags *pflag.FlagSet, cfg *engine.Config, sections ...string) {
	for _, s := range settingTable {
		if len(sections) > 0 && !contains(sections, s.section) {
			continue
		}
		s.register(flags, cfg)
	}
}

func (s setting) register(flags *pflag.FlagSet, cfg *engine.Config) {
	v := fieldOf(cfg, s.field)
	switch p := v.Addr().Interface().(type) {
	case *[]string:
		flags.StringSliceVar(p, s.flag, nil, s.usage)
	case *bool:
		flags.BoolVar(p, s.flag, false, s.usage)
	default:
		usage := s.usage
		if s.choices != nil {
			usage += ": " + strings.Join(s.choices, ", ")
		}
		flags.Var(&fieldValue{setting: s, v: v}, s.flag, usage)
		flags.Lookup(s.flag).DefValue = s.def
	}
	section(flags, s.section, s.flag)
}

func fieldOf(cfg *engine.Config, path string) reflect.Value {
	v := reflect.ValueOf(cfg).Elem()
	for name := range strings.SplitSeq(path, ".") {
		v = v.FieldByName(name)
	}
	return v
}

// fieldValue is a field of engine.Config as a flag.
type fieldValue struct {
	setting setting
	v       reflect.Value
	text    string
}

// Set parses text into the field.
func (f *fieldValue) Set(text string) error {
	if err := f.parse(text); err != nil {
		return err
	}
	f.text = text
	if f.v.Kind() == reflect.String || !f.v.IsZero() || f.v.Type() == reflect.TypeFor[engine.Start]() {
		return nil
	}
	switch f.setting.zero {
	case zeroIsZero:
	case zeroIsNone:
		if f.v.CanFloat() {
			f.v.SetFloat(-1)
		} else {
			f.v.SetInt(-1)
		}
	default:
		return fmt.Errorf("is not allowed to be 0; leave it out for the default (%s)", f.setting.def)
	}
	return nil
}

func (f *fieldValue) parse(text string) error {
	switch p := f.v.Addr().Interface().(type) {
	case *engine.Start:
		return parseStart(p, text)
	case *time.Duration:
		d, err := settings.ParseDuration(text)
		*p = d
		return err
	case *int32, *int64:
		var b settings.Bytes
		if err := b.Set(text); err != nil {
			return err
		}
		if f.v.OverflowInt(int64(b)) {
			return fmt.Errorf("is too large")
		}
		f.v.SetInt(int64(b))
		return nil
	}
	switch {
	case f.setting.choices != nil:
		one := settings.OneOf{Allowed: f.setting.choices}
		if err := one.Set(text); err != nil {
			return err
		}
		f.v.SetString(text)
	case f.v.Kind() == reflect.String:
		f.v.SetString(text)
	case f.setting.auto && text == "auto":
		f.v.SetInt(engine.Auto)
	case f.v.CanInt():
		n, err := strconv.ParseInt(text, 10, f.v.Type().Bits())
		if err != nil || n < 0 {
			if f.setting.auto {
				return fmt.Errorf("is neither auto nor a whole number in range")
			}
			return fmt.Errorf("is not a whole number in range")
		}
		f.v.SetInt(n)
	default:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= 0) {
			return fmt.Errorf("is not a number such as 0.5")
		}
		f.v.SetFloat(x)
	}
	return nil
}

func (f *fieldValue) String() string { return f.text }

// Type names the value in the help.
func (f *fieldValue) Type() string {
	switch f.v.Interface().(type) {
	case engine.Start:
		return "place"
	case time.Duration:
		return "duration"
	case int32, int64:
		return "size"
	case float64:
		return "share"
	}
	if f.v.Kind() == reflect.String {
		return "name"
	}
	return "int"
}

func parseStart(p *engine.Start, text string) error {
	switch text {
	case "earliest":
		*p = engine.StartEarliest
	case "latest":
		*p = engine.StartLatest
	default:
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return fmt.Errorf("is not earliest, latest or a time such as 2026-01-31T00:00:00Z")
		}
		*p = engine.StartAt(t)
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}
