package engine

import (
	"context"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config says what an Engine consumes, how, and with what guarantees. Its zero values are safe: only Brokers, Group, a topic
// (Topics or TopicPattern) and a handler are required. New copies it; later changes have no effect.
type Config struct {
	// Brokers are the seed addresses, "host:port". Required.
	Brokers []string
	// ClientID names this client in the broker's logs and quotas. Default "gapless".
	ClientID string
	// Rack is where this client runs; a broker with rack-aware fetching then serves it from a replica near by. Default none.
	Rack string
	// TLS encrypts the connections. The zero value is plaintext.
	TLS TLS
	// SASL authenticates. The zero value does not.
	SASL SASL

	// Group is the consumer group id. Required, and fixed: a fresh id at each start would begin anew each time.
	Group string
	// InstanceID makes this a static member (KIP-345): a restart within SessionTimeout gets the same partitions without a
	// rebalance. It must be unique in the group. Default: a dynamic member, which leaves the group at stop.
	InstanceID string
	// LeaveOnStop makes a static member leave for good at stop, so that its partitions move at once.
	LeaveOnStop bool
	// Protocol is the group protocol. Default ProtocolClassic; ProtocolConsumer is KIP-848 (Kafka 4.0 and newer; Run returns an
	// error where the brokers do not have it, or have it switched off).
	Protocol Protocol
	// Balancer assigns partitions. Default BalancerCooperativeSticky.
	Balancer Balancer
	// SessionTimeout is how long the group waits for a silent member. Default 45 s. Under ProtocolConsumer the broker's own
	// group setting counts, and this is used only where that can't be read.
	SessionTimeout time.Duration
	// RebalanceTimeout is how long members may take to hand over in a rebalance. Default 60 s.
	RebalanceTimeout time.Duration
	// HeartbeatInterval is the time between heartbeats. Default 3 s. Under ProtocolConsumer the broker's setting counts.
	HeartbeatInterval time.Duration

	// Topics are consumed by name. The engine's own dead-letter topics are refused here.
	Topics []string
	// TopicPattern is a regular expression (RE2) for topics to consume, matched anywhere in the name unless anchored.
	// Dead-letter topics that this configuration would write are excluded. Topics and TopicPattern exclude one another.
	TopicPattern string
	// Start is where a group without any commit in a topic begins. Default StartEarliest.
	Start Start
	// OnDataLoss says what happens to a partition whose next records were deleted by retention before the group read them.
	// Default DataLossStop: the partition stops and says how many are gone.
	OnDataLoss DataLoss
	// ReadUncommitted also delivers records of open and aborted transactions. Default false: read committed.
	ReadUncommitted bool

	// Handler does the work, one record at a time. Exactly one of Handler and BatchHandler is set, unless Handlers or
	// BatchHandlers name one for every topic.
	Handler Handler
	// Handlers are handlers for single topics; they win over Handler.
	Handlers map[string]Handler
	// BatchHandler does the work, up to BatchSize records of one partition at a time.
	BatchHandler BatchHandler
	// BatchHandlers are batch handlers for single topics; they win over BatchHandler. Handlers and batch handlers can't be mixed.
	BatchHandlers map[string]BatchHandler
	// Middleware wraps every Handler (not batch handlers), the first outermost.
	Middleware []Middleware
	// BatchSize is the most records of a batch. Default 100.
	BatchSize int
	// BatchLinger is how long a batch waits to fill. Default 500 ms.
	BatchLinger time.Duration
	// HandlerTimeout ends the handler's context that long after its start. Default none: it costs about 1 us and 4 allocations
	// a record. A handler that ignores its context keeps its worker, its key and its offset, and is reported.
	HandlerTimeout time.Duration

	// Order is the order within a partition. Default OrderKey.
	Order Order
	// Workers is how many handlers run at once, over all partitions. Default 64. With Auto the engine finds the number by itself,
	// between MinWorkers and MaxWorkers, from what gets done, and goes on looking: docs/tuning.md says how, and when a number is better.
	Workers int
	// MinWorkers and MaxWorkers are the least and the most handlers under Auto. Defaults 1 and 512. Where several members share what their
	// handlers call, MaxWorkers should be a member's share of it.
	MinWorkers, MaxWorkers int
	// WorkersPerPartition limits how many of them serve one partition. Default: all of them may.
	WorkersPerPartition int
	// PartitionRecords bounds the records of a partition that are held here: waiting, running and parked. It is soft by one
	// fetch. Default 32,768, raised to 4 x WorkersPerPartition where that is more.
	PartitionRecords int
	// PartitionBytes bounds the memory that the records of a partition pin. It is soft by one fetch. Default 32 MiB.
	PartitionBytes int64
	// MaxBytes bounds the memory that all held records pin. Soft by one fetch per partition. Default 256 MiB.
	MaxBytes int64

	// Commit says when offsets are committed. Default: once a second. A revoke and a stop always commit.
	Commit Commit
	// Retry says how often and when a failed record is tried again.
	Retry Retry
	// DeadLetter says what becomes of a record that was given up.
	DeadLetter DeadLetter

	// Dedupe keeps, on this host, what was handled before: see there. The zero value keeps nothing here; what a commit's metadata
	// says of finished work counts always.
	Dedupe Dedupe

	// DrainTimeout bounds a drain, on revoke and on stop: how long it waits for running handlers and their outputs. At its end
	// their contexts end. Default 20 s, at most a third of RebalanceTimeout.
	DrainTimeout time.Duration
	// CommitTimeout bounds each commit request. Default 5 s.
	CommitTimeout time.Duration
	// StuckAfter is how long a handler may run before the watchdog reports it. Default 1 min.
	StuckAfter time.Duration
	// StalledAfter is how long a partition with backlog may make no progress before the watchdog reports it. Default 1 min.
	StalledAfter time.Duration
	// StartTimeout bounds the checks at start (brokers, credentials, topics, group, dead-letter topics). Default 10 s.
	StartTimeout time.Duration

	// FetchMinBytes, FetchMaxBytes, FetchMaxPartitionBytes and FetchMaxWait shape the fetch requests. Defaults 1, 16 MiB (per
	// broker), 1 MiB and 250 ms: a partition that was paused resumes only after the fetch in flight, so keep the wait short.
	FetchMinBytes, FetchMaxBytes, FetchMaxPartitionBytes int32
	FetchMaxWait                                         time.Duration
	// FetchMaxBatchBytes is the most that one batch of the log may expand to. Compressed, it passes the limits above, and a small
	// one can be made to expand a thousandfold. A partition that comes to a larger one stops and says at which offset. Default 128 MiB.
	FetchMaxBatchBytes int32

	// HideKeys keeps the keys of records out of Status, and with it out of the admin pages: a stand-in is shown that is the same for
	// the same key as long as the process lives, and tells nothing else.
	HideKeys bool
	// HideErrors keeps the texts of errors and panics of Handler, Middleware, Retry.Classify and Dedupe.Key, which may quote what a
	// record holds, out of the log, Status, dead letters and Run's error. Their types stay, and Event.Err can be unwrapped.
	HideErrors bool

	// Log receives one line an event. Default: none. Records are logged at debug level only, keys and values never; the texts of
	// handlers' errors are, unless HideErrors is set.
	Log zerolog.Logger
	// OnEvent, if set, is called for every event, in order and synchronously: it must not block and not call the Engine.
	OnEvent func(Event)
	// KgoOpts pass through to the Kafka client. Those that would break the contract (auto-commit, marks, rebalance callbacks,
	// ...) are refused by name.
	KgoOpts []kgo.Opt
}

// Protocol is a group protocol.
type Protocol string

// The group protocols.
const (
	ProtocolClassic  Protocol = "classic"
	ProtocolConsumer Protocol = "consumer" // KIP-848
)

// Balancer is a partition assignment strategy. Under ProtocolConsumer the broker assigns: range stays range, all others
// become its uniform assignor.
type Balancer string

// The balancers.
const (
	BalancerCooperativeSticky Balancer = "cooperative-sticky"
	BalancerSticky            Balancer = "sticky"
	BalancerRange             Balancer = "range"
	BalancerRoundRobin        Balancer = "roundrobin"
)

// Order is the order in which the records of a partition are handled (contract C6).
type Order string

// The orders.
const (
	// OrderKey starts the records of one key in offset order and never two at once. A record without a key is unordered.
	OrderKey Order = "key"
	// OrderUnordered promises nothing.
	OrderUnordered Order = "unordered"
	// OrderPartition handles the records of a partition strictly one after the other.
	OrderPartition Order = "partition"
)

// Auto as Config.Workers, and for Engine.SetWorkers, has the engine find the number of workers.
const Auto = -1

// Start is where a group that has no commit in a topic begins. The resolved offset is committed at the first assignment, so
// that an idle partition keeps it over a restart. A partition without a commit in a topic where the group has commits starts
// at its beginning.
type Start struct {
	latest bool
	at     time.Time
}

// StartEarliest is the zero Start: the first record that the broker has.
var StartEarliest = Start{}

// StartLatest begins with what is produced from now on.
var StartLatest = Start{latest: true}

// StartAt begins with the first record whose timestamp is t or later.
func StartAt(t time.Time) Start { return Start{at: t} }

// String is the form that the command's --start flag takes.
func (s Start) String() string {
	switch {
	case s.latest:
		return "latest"
	case !s.at.IsZero():
		return s.at.UTC().Format(time.RFC3339Nano)
	}
	return "earliest"
}

// DataLoss says how to go on behind records that retention deleted before the group read them.
type DataLoss string

// The ways to go on.
const (
	DataLossStop     DataLoss = "stop"     // the partition stops, unhealthy, until a restart with another choice
	DataLossEarliest DataLoss = "earliest" // go on from the first record that is left
	DataLossLatest   DataLoss = "latest"   // go on from the end
)

// Commit says when offsets are committed, besides on revoke, on stop and on demand (Engine.Commit).
type Commit struct {
	// Interval is the time between commits. Default 1 s.
	Interval time.Duration
	// Records commits after that many settled records, too. Default 0: by time only.
	Records int
	// Each commits after every settled record, as soon as the previous commit has returned: at most one is in flight.
	Each bool
	// MetadataBytes bounds what a commit says of the work that is settled beyond its offset (docs/resume-window.md), so that a
	// crash does not redo it. Default 4,096, as the broker's offset.metadata.max.bytes; a longer window is shortened. Negative: commits carry offsets only.
	MetadataBytes int
}

// Retry says how often and when a failed record is tried again. The delay before attempt n+1 is Base x 2^(n-1), at most Max,
// less a random part of up to Jitter.
type Retry struct {
	// Attempts is how often a record is tried in all. Default 3; 1 = no retry.
	Attempts int
	// Base is the first delay. Default 1 s.
	Base time.Duration
	// Max is the longest delay. Default 10 s.
	Max time.Duration
	// Jitter is the share of the delay that is random, 0 to 1. Default 0.2; negative = none.
	Jitter float64
	// MaxRetryAfter caps what RetryAfter asks for. Default 5 min.
	MaxRetryAfter time.Duration
	// Classify, if set, may turn an error into a steering one (Permanent, Skip, ...), or return it as it is.
	Classify func(error) error
}

// GiveUp says what becomes of a record whose attempts are spent.
type GiveUp string

// The ways to give up.
const (
	GiveUpDeadLetter GiveUp = "dead-letter" // write it to the dead-letter topic; the offset passes once that is acknowledged
	GiveUpHold       GiveUp = "hold"        // its partition holds until Engine.Unhold or a restart
	GiveUpSkip       GiveUp = "skip"        // counted, logged and passed
)

// DeadLetterFormat is the form of a dead letter.
type DeadLetterFormat string

// The formats.
const (
	DeadLetterHeaders  DeadLetterFormat = "headers"  // key, value and headers as they were, plus headers on the failure
	DeadLetterEnvelope DeadLetterFormat = "envelope" // one JSON object with all of it
)

// AfterDeadLetter says what later records of a dead-lettered key do under OrderKey.
type AfterDeadLetter string

// The choices. Which keys are held or followed is remembered in memory, for this assignment only: a restart forgets it.
const (
	KeyContinues AfterDeadLetter = "continue" // they are handled as usual
	KeyHolds     AfterDeadLetter = "hold"     // they wait, unsettled, until Engine.ReleaseKey
	KeyFollows   AfterDeadLetter = "follow"   // they are dead-lettered, too, without being handled
)

// DeadLetter says what becomes of a record that was given up.
type DeadLetter struct {
	// GiveUp is what to do. Default GiveUpDeadLetter.
	GiveUp GiveUp
	// Topic is the dead-letter topic; "{topic}" stands for the source's. Default "{topic}.dlq".
	Topic string
	// NoCreate refuses to start where the dead-letter topic is missing. Default: it is created, with the source's partitions.
	NoCreate bool
	// Retention is the retention.ms of a topic that is created here. Default 14 days; negative = for ever.
	Retention time.Duration
	// Replication is the replication factor of a topic that is created here. Default: the broker's.
	Replication int16
	// Format is the form of the dead letter. Default DeadLetterHeaders.
	Format DeadLetterFormat
	// AfterKey says what later records of its key do. Default KeyContinues.
	AfterKey AfterDeadLetter
	// AfterKeyMax bounds the keys remembered a partition for AfterKey. Beyond it the partition holds. Default 10,000.
	AfterKeyMax int
	// BreakerRatio opens the breaker when more than this share of the last BreakerWindow settled records of a topic were
	// dead-lettered: a handler that is simply broken must not drain the topic. Default 0.5; 1 or more = never.
	BreakerRatio float64
	// BreakerWindow is how many settled records are looked at. Default 1,000.
	BreakerWindow int
	// BreakerMin is how many must have settled before it is judged. Default 100.
	BreakerMin int
}

// TLS is how connections are encrypted.
type TLS struct {
	// Enable turns TLS on, with the system's roots. Any of the files does so as well.
	Enable bool
	// CAFile is a PEM file with the authorities to trust, instead of the system's.
	CAFile string
	// CertFile and KeyFile are the client's certificate and key (PEM), for brokers that ask for one.
	CertFile, KeyFile string
	// ServerName is the name to verify, where it differs from the address.
	ServerName string
}

func (t TLS) enabled() bool {
	return t.Enable || t.CAFile != "" || t.CertFile != "" || t.ServerName != ""
}

// SASL is how the client authenticates.
type SASL struct {
	// Mechanism is "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512" or "OAUTHBEARER". Empty = none.
	Mechanism string
	// User and Password are for PLAIN and SCRAM.
	User, Password string
	// Token is for OAUTHBEARER: it is called at each authentication.
	Token func(context.Context) (string, error)

	sealed func() string // the password, where no dump of memory structures finds it
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// WithDefaults fills in what was left at zero. New does so by itself.
func (c Config) WithDefaults() Config {
	orDefault(&c.ClientID, "gapless")
	orDefault(&c.Protocol, ProtocolClassic)
	orDefault(&c.Balancer, BalancerCooperativeSticky)
	orDefault(&c.SessionTimeout, 45*time.Second)
	orDefault(&c.RebalanceTimeout, time.Minute)
	orDefault(&c.HeartbeatInterval, min(3*time.Second, c.SessionTimeout/3))
	orDefault(&c.OnDataLoss, DataLossStop)
	orDefault(&c.BatchSize, 100)
	orDefault(&c.BatchLinger, 500*time.Millisecond)
	orDefault(&c.Order, OrderKey)
	orDefault(&c.Workers, 64)
	orDefault(&c.MinWorkers, 1)
	orDefault(&c.MaxWorkers, max(512, c.MinWorkers))
	orDefault(&c.WorkersPerPartition, c.mostWorkers())
	orDefault(&c.PartitionRecords, max(32_768, 4*c.WorkersPerPartition))
	orDefault(&c.PartitionBytes, 32<<20)
	orDefault(&c.MaxBytes, 256<<20)
	if !c.Commit.Each && c.Commit.Records == 0 || c.Commit.Interval == 0 {
		orDefault(&c.Commit.Interval, time.Second)
	}
	orDefault(&c.Commit.MetadataBytes, 4096)
	if c.Dedupe.enabled() {
		orDefault(&c.Dedupe.Retention, 24*time.Hour)
		orDefault(&c.Dedupe.OnDiffer, DifferRun)
		orDefault(&c.Dedupe.MaxDelay, dedupe.DefaultMaxDelay)
		orDefault(&c.Dedupe.MaxGroup, dedupe.DefaultMaxGroup)
		orDefault(&c.Dedupe.MaxPending, dedupe.DefaultMaxPending)
	}
	orDefault(&c.Retry.Attempts, 3)
	orDefault(&c.Retry.Base, time.Second)
	orDefault(&c.Retry.Max, max(10*time.Second, c.Retry.Base))
	orDefault(&c.Retry.Jitter, 0.2)
	orDefault(&c.Retry.MaxRetryAfter, 5*time.Minute)
	orDefault(&c.DeadLetter.GiveUp, GiveUpDeadLetter)
	orDefault(&c.DeadLetter.Topic, "{topic}.dlq")
	orDefault(&c.DeadLetter.Retention, 14*24*time.Hour)
	orDefault(&c.DeadLetter.Replication, -1)
	orDefault(&c.DeadLetter.Format, DeadLetterHeaders)
	orDefault(&c.DeadLetter.AfterKey, KeyContinues)
	orDefault(&c.DeadLetter.AfterKeyMax, 10_000)
	orDefault(&c.DeadLetter.BreakerRatio, 0.5)
	orDefault(&c.DeadLetter.BreakerWindow, 1000)
	orDefault(&c.DeadLetter.BreakerMin, 100)
	orDefault(&c.DrainTimeout, min(20*time.Second, c.RebalanceTimeout/3))
	orDefault(&c.CommitTimeout, 5*time.Second)
	orDefault(&c.StuckAfter, time.Minute)
	orDefault(&c.StalledAfter, time.Minute)
	orDefault(&c.StartTimeout, 10*time.Second)
	orDefault(&c.FetchMinBytes, 1)
	orDefault(&c.FetchMaxBytes, 16<<20)
	orDefault(&c.FetchMaxPartitionBytes, 1<<20)
	orDefault(&c.FetchMaxWait, 250*time.Millisecond)
	orDefault(&c.FetchMaxBatchBytes, 128<<20)
	return c
}

// mostWorkers is the most handlers that run at once.
func (c *Config) mostWorkers() int {
	if c.Workers == Auto {
		return c.MaxWorkers
	}
	return c.Workers
}

func (c *Config) batching() bool { return c.BatchHandler != nil || len(c.BatchHandlers) > 0 }
