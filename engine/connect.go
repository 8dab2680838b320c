package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// ConnectOpts are the client options for the connection settings of c alone: brokers, client id, TLS, SASL. A tool beside the
// engine (an admin client, a producer) connects in the same way with them.
func (c Config) ConnectOpts() ([]kgo.Opt, error) {
	orDefault(&c.ClientID, "gapless")
	if err := c.validateConnection(); err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("gapless", "0"),
		// A frozen broker holds a connection until this runs out, and with it every request queued behind.
		kgo.RequestTimeoutOverhead(5 * time.Second),
		kgo.DisableClientMetrics(),
	}
	if c.TLS.enabled() {
		t, err := c.TLS.config()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(t))
	}
	if c.SASL.Mechanism != "" {
		opts = append(opts, kgo.SASL(c.SASL.mechanism()))
	}
	return opts, nil
}

func (t TLS) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, bad("TLS.CAFile", "%v", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, bad("TLS.CAFile", "%s holds no PEM certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, bad("TLS.CertFile", "%v", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

func (s SASL) mechanism() sasl.Mechanism {
	switch s.Mechanism {
	case "PLAIN":
		return plain.Auth{User: s.User, Pass: s.password()}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: s.User, Pass: s.password()}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: s.User, Pass: s.password()}.AsSha512Mechanism()
	}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := s.Token(ctx)
		if err == nil && token == "" {
			err = errors.New("the token function returned an empty token")
		}
		return oauth.Auth{Token: token}, err
	})
}

// sideOpts make the clients beside the consumer: one asks for metadata and log ends, and says good-bye for static members, and the
// writers produce. They are not the consumer, so that none of this waits for a rebalance.
func (c *Config) sideOpts(more ...kgo.Opt) ([]kgo.Opt, error) {
	opts, err := c.ConnectOpts()
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(deadLetterPartitioner()),
		kgo.RecordDeliveryTimeout(time.Minute),
		// A client that is refused a producer id by an error that may pass asks again at once, as often as its records may be retried.
		kgo.RecordRetries(20),
	)
	return append(append(opts, more...), c.userOpts()...), nil
}

// consumerOpts make the group consumer.
func (c *Config) consumerOpts(e *Engine) ([]kgo.Opt, error) {
	opts, err := c.ConnectOpts()
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		kgo.ConsumerGroup(c.Group),
		kgo.SessionTimeout(c.SessionTimeout),
		kgo.RebalanceTimeout(c.RebalanceTimeout),
		kgo.HeartbeatInterval(c.HeartbeatInterval),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.KeepControlRecords(),
		kgo.OnPartitionsAssigned(e.onAssigned),
		kgo.OnPartitionsRevoked(e.onRevoked),
		kgo.OnPartitionsLost(e.onLost),
		kgo.OnOffsetsFetched(e.onOffsetsFetched),
		kgo.AdjustFetchOffsetsFn(e.resolveStart),
		kgo.FetchMinBytes(c.FetchMinBytes),
		kgo.FetchMaxBytes(c.FetchMaxBytes),
		kgo.FetchMaxPartitionBytes(c.FetchMaxPartitionBytes),
		kgo.FetchMaxWait(c.FetchMaxWait),
		kgo.MaxDecompressBatchBytes(int(c.FetchMaxBatchBytes)),
		kgo.WithPools(e.records),
		kgo.WithHooks(&e.clock),
	)
	opts = append(opts, c.balancerOpts()...)
	if c.Rack != "" {
		opts = append(opts, kgo.Rack(c.Rack))
	}
	if c.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(c.InstanceID))
	}
	if !c.ReadUncommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if c.TopicPattern != "" {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics(c.TopicPattern))
		if c.writesDeadLetters() {
			opts = append(opts, kgo.ConsumeExcludeTopics(c.deadLetterPattern()))
		}
	} else {
		opts = append(opts, kgo.ConsumeTopics(c.Topics...))
	}
	return append(opts, c.userOpts()...), nil
}

// newClient makes one client at a time: NewClient sorts the codecs of ProducerBatchCompression where they stand (franz-go 1.22), which is in an
// option of the embedder's that an engine's clients, and perhaps other engines, share.
func newClient(opts ...kgo.Opt) (*kgo.Client, error) {
	clients.Lock()
	defer clients.Unlock()
	return kgo.NewClient(opts...)
}

var clients sync.Mutex

// lender is the pool, if it may lend the records that the client gives: by their contexts it knows them again, and a hook of the
// embedder's for fetched records, as those for tracing are, may give them others.
func lender(cl *kgo.Client, pool *recordpool.Pool) *recordpool.Pool {
	hooks := reflect.ValueOf(cl.OptValue(kgo.WithHooks))
	for i := range hooks.Len() {
		switch hooks.Index(i).Interface().(type) {
		case kgo.HookFetchRecordBuffered, kgo.HookFetchRecordUnbuffered:
			return nil
		}
	}
	return pool
}

func (c *Config) balancerOpts() []kgo.Opt {
	var b kgo.GroupBalancer
	switch c.Balancer {
	case BalancerRange:
		b = kgo.RangeBalancer()
	case BalancerRoundRobin:
		b = kgo.RoundRobinBalancer()
	case BalancerSticky:
		b = kgo.StickyBalancer()
	default:
		b = kgo.CooperativeStickyBalancer()
	}
	opts := []kgo.Opt{kgo.Balancers(b)}
	if c.Protocol == ProtocolConsumer {
		if c.Balancer == BalancerRoundRobin { // the broker has none; its uniform assignor is what the client asks for with sticky
			opts = []kgo.Opt{kgo.Balancers(kgo.StickyBalancer())}
		}
		opts = append(opts, kgo.ServerSideBalancer())
	}
	return opts
}

func (c *Config) userOpts() []kgo.Opt { return c.KgoOpts }

func (c *Config) writesDeadLetters() bool { return c.DeadLetter.GiveUp == GiveUpDeadLetter }

func (c *Config) deadLetterTopic(source string) string {
	return strings.ReplaceAll(c.DeadLetter.Topic, "{topic}", source)
}

// deadLetterPattern matches every topic that deadLetterTopic can name.
func (c *Config) deadLetterPattern() string {
	return "^" + strings.ReplaceAll(regexp.QuoteMeta(c.DeadLetter.Topic), regexp.QuoteMeta("{topic}"), ".+") + "$"
}

// connectFaults are what clients say of a connection that can't be had, and what to do about it; the first that fits counts.
var connectFaults = []struct{ part, say string }{
	{"invalid_token", "the broker refused the token: check what SASL.Token returns"},
	{"SASL_AUTHENTICATION_FAILED", "the broker refused the credentials: check SASL.Mechanism, User and Password"},
	{"UNSUPPORTED_SASL_MECHANISM", "the broker does not offer this mechanism: check SASL.Mechanism"},
	{"unknown authority", "the broker's certificate is not signed by a trusted authority: set TLS.CAFile"},
	{"certificate has expired or is not yet valid", "the broker's certificate has expired, or is not valid yet (the dates are below): renew it at the broker, or set this host's clock"},
	{"certificate is valid for", "the broker's certificate is for other names (listed below): set TLS.ServerName to one of them, or connect by that name"},
	{"certificate is not valid for any names", "the broker's certificate is for other names: give it a certificate with the name that Brokers has"},
	{"cannot validate certificate for", "the broker's certificate is not for this address: set TLS.ServerName to a name that it has, or connect by that name"},
	{"tls: expired certificate", "the broker says that this client's certificate has expired: renew TLS.CertFile"},
	{"tls: unknown certificate authority", "the broker does not trust who signed this client's certificate: check TLS.CertFile"},
	{"tls: certificate unknown", "the broker does not accept this client's certificate (who signed it, or its dates): check TLS.CertFile"},
	{"tls: unknown certificate", "the broker does not accept this client's certificate (who signed it, or its dates): check TLS.CertFile"},
	{"bad certificate", "the broker asks for a client certificate: set TLS.CertFile and TLS.KeyFile"},
	{"certificate required", "the broker asks for a client certificate: set TLS.CertFile and TLS.KeyFile"},
	{"plaintext connection speaking to a tls", "the broker expects TLS: set TLS.Enable"},
	{"is TLS misconfigured", "the broker's port is plaintext: leave TLS off, or use its TLS port"},
	{"first record does not look like a TLS", "the broker's port is plaintext: leave TLS off, or use its TLS port"},
	{"is SASL missing", closedConnection},
	{"connection refused", nobodyThere}, {"no such host", nobodyThere}, {"unable to dial", nobodyThere},
}

const (
	closedConnection = "the broker closed the connection: it may expect SASL or TLS, or refuse the credentials"
	nobodyThere      = "no broker answers there: check Brokers, and that the broker runs"
)

// ConnectHint says what to do about an error of a connection, in terms of the fields of Config; "" where it is not known.
func ConnectHint(err error) string {
	text := err.Error()
	for _, f := range connectFaults {
		if strings.Contains(text, f.part) {
			return f.say
		}
	}
	if strings.HasSuffix(text, "EOF") {
		return closedConnection
	}
	return ""
}

// explainConnect puts what a client says about a broken connection into words that say what to do. The error wraps err.
func explainConnect(brokers []string, err error) error {
	if hint := ConnectHint(err); hint != "" {
		return fmt.Errorf("gapless: brokers %s: %s: %w", strings.Join(brokers, ","), hint, err)
	}
	return fmt.Errorf("gapless: brokers %s: %w", strings.Join(brokers, ","), err)
}
