package kafkatest

import (
	"fmt"
	"regexp"
	"slices"
)

// An Option shapes the cluster to start.
type Option func(*config)

// A Listener is one of the addresses a broker can be reached at, by the way it asks its clients to
// prove who they are. Each has its own port on 127.0.0.1.
type Listener string

const (
	// Plaintext asks for nothing. Every cluster has this listener, and brokers use it among
	// themselves.
	Plaintext Listener = "PLAINTEXT"
	// TLS encrypts, and lets any client in.
	TLS Listener = "TLS"
	// MTLS asks for a client certificate; its common name is the user.
	MTLS Listener = "MTLS"
	// SASLPlaintext takes PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.
	SASLPlaintext Listener = "SASL_PLAINTEXT"
	// SASLTLS takes the same mechanisms as SASLPlaintext, encrypted.
	SASLTLS Listener = "SASL_TLS"
	// ExpiredTLS is TLS with a certificate of the broker that has expired: no client should go on.
	ExpiredTLS Listener = "EXPIRED_TLS"
)

// AllListeners lists every listener that clients can use, for use with [Listeners].
var AllListeners = []Listener{Plaintext, TLS, MTLS, SASLPlaintext, SASLTLS}

// protocols says what Kafka calls the way each listener speaks.
var protocols = map[Listener]string{
	Plaintext:     "PLAINTEXT",
	TLS:           "SSL",
	MTLS:          "SSL",
	SASLPlaintext: "SASL_PLAINTEXT",
	SASLTLS:       "SASL_SSL",
	ExpiredTLS:    "SSL",
}

// User and Password are known to PLAIN and SCRAM on every SASL listener; [Credentials] adds others.
const (
	User     = "alice"
	Password = "alice-pw"
)

// AdminUser is the user, besides the anonymous one of the plaintext listener, whom [ACLs] does not
// bind. It has no password until [Credentials] gives it one.
const AdminUser = "admin"

type config struct {
	version    string
	nodes      int
	properties []property
	listeners  []Listener
	users      []credential
	acls       bool
	jvmFlags   []string
	networks   int
	// demands names the options that only a cluster of our own can satisfy.
	demands []string
	err     error
}

type property struct{ key, value string }

type credential struct{ user, password string }

func newConfig(opts []Option) (config, error) {
	cfg := config{
		version:   KafkaVersion,
		nodes:     1,
		listeners: []Listener{Plaintext},
		users:     []credential{{User, Password}},
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	return cfg, cfg.err
}

func (cfg *config) demand(format string, args ...any) {
	cfg.demands = append(cfg.demands, fmt.Sprintf(format, args...))
}

// versionNumber keeps other words from Maven's command line.
var versionNumber = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)

// Version sets the version of Kafka, such as [OlderKafkaVersion]. Each has its own jars in the cache. Lines
// before 3.9 have not been tried.
func Version(version string) Option {
	return func(cfg *config) {
		cfg.demand("Version(%q)", version)
		cfg.version = version
		if !versionNumber.MatchString(version) {
			cfg.err = fmt.Errorf("kafkatest: %q is no version of Kafka: write it like %s", version, KafkaVersion)
		}
	}
}

func (cfg *config) has(l Listener) bool { return slices.Contains(cfg.listeners, l) }

// Nodes sets how many brokers the cluster has, numbered from 1. Each is a controller, too. From
// three on, internal topics are replicated three times and need two replicas in sync.
func Nodes(n int) Option {
	return func(cfg *config) {
		cfg.demand("Nodes(%d)", n)
		cfg.nodes = n
		if n < 1 {
			cfg.err = fmt.Errorf("kafkatest: a cluster of %d brokers", n)
		}
	}
}

// Property sets a line of every broker's server.properties. It wins over what the package sets
// itself.
func Property(key, value string) Option {
	return func(cfg *config) {
		cfg.demand("Property(%q)", key)
		cfg.properties = append(cfg.properties, property{key, value})
	}
}

// JVM adds flags to every broker's command line. They come after the package's own, which suit a process that lives for seconds: a
// measurement of throughput wants a larger heap and the optimizing compiler, -XX:TieredStopAtLevel=4.
func JVM(flags ...string) Option {
	return func(cfg *config) {
		cfg.demand("JVM(%q)", flags)
		cfg.jvmFlags = append(cfg.jvmFlags, flags...)
	}
}

// Listeners opens listeners besides [Plaintext]; see [Cluster.Bootstrap] for their addresses.
func Listeners(listeners ...Listener) Option {
	return func(cfg *config) {
		cfg.demand("Listeners(%v)", listeners)
		for _, l := range listeners {
			if _, known := protocols[l]; !known {
				cfg.err = fmt.Errorf("kafkatest: there is no listener %q", l)
			}
			if !cfg.has(l) {
				cfg.listeners = append(cfg.listeners, l)
			}
		}
	}
}

// plainWord is what passes unharmed through a JAAS line, a properties file and a command line.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// Credentials adds a user that PLAIN and SCRAM accept.
func Credentials(user, password string) Option {
	return func(cfg *config) {
		cfg.demand("Credentials(%q)", user)
		cfg.users = append(cfg.users, credential{user, password})
		if !plainWord.MatchString(user) || !plainWord.MatchString(password) {
			cfg.err = fmt.Errorf("kafkatest: user %q: only letters, digits and . _ - in names and passwords", user)
		}
	}
}

// ACLs makes the brokers refuse whatever no ACL allows. [AdminUser] and the anonymous user may do
// everything: the latter is anyone on the [Plaintext] and [TLS] listeners, [Cluster.Admin] included.
func ACLs() Option {
	return func(cfg *config) {
		cfg.demand("ACLs()")
		cfg.acls = true
	}
}
