package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// TestSecuredBroker has the tests that need a broker which asks its clients who they are; they share one.
func TestSecuredBroker(t *testing.T) {
	ownBroker(t, "it has every listener, and ACLs")
	cluster := kafkatest.Start(t, kafkatest.Listeners(append(kafkatest.AllListeners, kafkatest.ExpiredTLS)...), kafkatest.ACLs(), kafkatest.Credentials("bob", "bob-pw"))
	t.Run("Connects", func(t *testing.T) { testConnects(t, cluster) })
	t.Run("RefusesPromptly", func(t *testing.T) { testRefuses(t, cluster) })
	t.Run("MissingRights", func(t *testing.T) { testMissingRights(t, cluster) })
	t.Run("Rights", func(t *testing.T) { testRights(t, cluster) })
	t.Run("CommandRights", func(t *testing.T) { testCommandRights(t, cluster) })
	t.Run("RightsTakenAway", func(t *testing.T) { testRightsTakenAway(t, cluster) })
}

// at points a configuration to a listener.
func (w *world) at(c *engine.Config, l kafkatest.Listener) {
	c.Brokers = w.cluster.Addresses(l)
	if l == kafkatest.TLS || l == kafkatest.SASLTLS || l == kafkatest.MTLS || l == kafkatest.ExpiredTLS {
		c.TLS.CAFile = w.cluster.CA()
	}
}

// allow grants operations, on what build names, to a user.
func (w *world) allow(user string, build *kadm.ACLBuilder, ops ...kadm.ACLOperation) {
	w.Helper()
	ctx, cancel := patient()
	defer cancel()
	acls := build.Allow("User:" + user).AllowHosts().Operations(ops...).ResourcePatternType(kadm.ACLPatternLiteral)
	results, err := w.adm.CreateACLs(ctx, acls)
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			w.Fatal(r.Err)
		}
	}
}

// allowAll grants what a member needs: the documentation lists the same.
func (w *world) allowAll(user string) {
	w.Helper()
	w.allow(user, kadm.NewACLs().Topics(w.topic), kadm.OpRead, kadm.OpDescribe)
	w.allow(user, kadm.NewACLs().Groups(w.group), kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs)
	w.allow(user, kadm.NewACLs().Topics(w.topic+".dlq"), kadm.OpWrite, kadm.OpDescribe, kadm.OpCreate)
}

// C1: every way to authenticate carries a member's whole life: the checks at start, fetches, commits and dead letters.
func testConnects(t *testing.T, cluster *kafkatest.Cluster) {
	var tokens atomic.Int64
	sasl := func(mechanism string) engine.SASL {
		return engine.SASL{Mechanism: mechanism, User: kafkatest.User, Password: kafkatest.Password}
	}
	token := func(context.Context) (string, error) {
		tokens.Add(1)
		return kafkatest.UnsignedToken("carol", time.Hour), nil
	}
	for _, way := range []connection{
		{"TLS", "ANONYMOUS", kafkatest.TLS, engine.SASL{}},
		{"mTLS", kafkatest.ClientName, kafkatest.MTLS, engine.SASL{}},
		{"PLAIN", kafkatest.User, kafkatest.SASLPlaintext, sasl("PLAIN")},
		{"PLAIN over TLS", kafkatest.User, kafkatest.SASLTLS, sasl("PLAIN")},
		{"SCRAM-SHA-256", kafkatest.User, kafkatest.SASLPlaintext, sasl("SCRAM-SHA-256")},
		{"SCRAM-SHA-512 over TLS", kafkatest.User, kafkatest.SASLTLS, sasl("SCRAM-SHA-512")},
		{"OAUTHBEARER", "carol", kafkatest.SASLPlaintext, engine.SASL{Mechanism: "OAUTHBEARER", Token: token}},
		{"OAUTHBEARER over TLS", "carol", kafkatest.SASLTLS, engine.SASL{Mechanism: "OAUTHBEARER", Token: token}},
	} {
		t.Run(way.name, func(t *testing.T) {
			inBothProtocols(t, func(t *testing.T, set func(*engine.Config)) { testConnect(t, cluster, way, set) })
		})
	}
	if tokens.Load() < 4 { // each of two members has at least a consumer's and a producer's connection
		t.Errorf("the token function was called %d times", tokens.Load())
	}
}

// connection is a way to connect.
type connection struct {
	name     string
	user     string // for the ACLs
	listener kafkatest.Listener
	sasl     engine.SASL
}

func testConnect(t *testing.T, cluster *kafkatest.Cluster, way connection, set func(*engine.Config)) {
	w := worldOn(t, cluster, 1)
	w.allowAll(way.user)
	w.produce(0, "k=0", "k=1", "k=2")
	l := w.ledger()
	c := w.config(l.keep(func(_ context.Context, r *engine.Record) error {
		if r.Offset == 1 {
			return engine.Permanent(errBoom)
		}
		return nil
	}))
	set(&c)
	w.at(&c, way.listener)
	c.SASL = way.sasl
	if way.listener == kafkatest.MTLS {
		c.TLS.CertFile, c.TLS.KeyFile = cluster.ClientCert()
	}
	c.DeadLetter = engine.DeadLetter{}
	var log safeBuffer
	c.Log = zerolog.New(&log).Level(zerolog.TraceLevel)
	c.KgoOpts = append(c.KgoOpts, kgo.WithLogger(kgo.BasicLogger(&log, kgo.LogLevelDebug, nil)))
	m := w.start(c)
	l.reaches(2)
	w.noLagLeft()
	status := m.e.Status().String()
	m.stop()
	if n := len(w.read(w.topic+".dlq", 1)); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	m.quiet(engine.EventCommitFailed, engine.EventFetchFailed, engine.EventSessionEnded, engine.EventConfigWarning)
	for name, secret := range way.secrets(t, cluster) {
		if strings.Contains(log.String()+status+fmt.Sprintf("%+v %#v", c, c)+strings.Join(m.told(), "\n"), secret) {
			t.Errorf("%s is shown; the log:\n%s", name, log.String())
		}
	}
}

// secrets are what nothing may show.
func (way *connection) secrets(t *testing.T, cluster *kafkatest.Cluster) map[string]string {
	t.Helper()
	secrets := map[string]string{"a part of every token": strings.SplitN(kafkatest.UnsignedToken("carol", time.Hour), ".", 2)[0]}
	if way.sasl.Password != "" {
		secrets["the password"] = way.sasl.Password
	}
	if way.listener == kafkatest.MTLS {
		_, key := cluster.ClientCert()
		b, err := os.ReadFile(key)
		if err != nil {
			t.Fatal(err)
		}
		secrets["the private key"] = strings.Split(string(b), "\n")[1]
	}
	return secrets
}

// safeBuffer is a log that many write to.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// C8, C9: what a consumer would be silent about for ever is an exact error at start, within seconds.
func testRefuses(t *testing.T, cluster *kafkatest.Cluster) {
	plain := engine.SASL{Mechanism: "PLAIN", User: kafkatest.User, Password: kafkatest.Password}
	for _, fault := range []struct {
		name  string
		set   func(w *world, c *engine.Config)
		words []string
	}{
		{"wrong PLAIN password", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.SASLPlaintext)
			c.SASL = plain
			c.SASL.Password = "wrong"
		}, []string{"SASL_AUTHENTICATION_FAILED", "check SASL.Mechanism, User and Password"}},
		{"wrong SCRAM password", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.SASLTLS)
			c.SASL = engine.SASL{Mechanism: "SCRAM-SHA-512", User: kafkatest.User, Password: "wrong"}
		}, []string{"SASL_AUTHENTICATION_FAILED", "check SASL.Mechanism, User and Password"}},
		{"expired token", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.SASLPlaintext)
			c.SASL = engine.SASL{Mechanism: "OAUTHBEARER", Token: func(context.Context) (string, error) {
				return kafkatest.UnsignedToken("carol", -time.Hour), nil
			}}
		}, []string{"invalid_token", "check what SASL.Token returns"}},
		{"token function fails", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.SASLPlaintext)
			c.SASL = engine.SASL{Mechanism: "OAUTHBEARER", Token: func(context.Context) (string, error) { return "", errBoom }}
		}, []string{"boom"}},
		{"no SASL on a SASL port", func(w *world, c *engine.Config) { w.at(c, kafkatest.SASLPlaintext) }, []string{"it may expect SASL"}},
		{"wrong SCRAM-SHA-256 password", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.SASLPlaintext)
			c.SASL = engine.SASL{Mechanism: "SCRAM-SHA-256", User: kafkatest.User, Password: "wrong"}
		}, []string{"SASL_AUTHENTICATION_FAILED", "check SASL.Mechanism, User and Password"}},
		{"unknown user", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.SASLTLS)
			c.SASL = engine.SASL{Mechanism: "SCRAM-SHA-512", User: "nobody", Password: kafkatest.Password}
		}, []string{"SASL_AUTHENTICATION_FAILED", "check SASL.Mechanism, User and Password"}},
		{"expired server certificate", func(w *world, c *engine.Config) { w.at(c, kafkatest.ExpiredTLS) },
			[]string{"the broker's certificate has expired", "renew it at the broker", "current time"}},
		{"wrong server name", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.TLS)
			c.TLS.ServerName = "kafka.example.com"
		}, []string{"the broker's certificate is for other names", "localhost", "set TLS.ServerName"}},
		{"expired client certificate", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.MTLS)
			c.TLS.CertFile, c.TLS.KeyFile = cluster.ExpiredClientCert()
		}, []string{"client's certificate", "check TLS.CertFile"}},
		{"untrusted CA", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.TLS)
			c.TLS.CAFile = cluster.OtherCA()
		}, []string{"not signed by a trusted authority", "set TLS.CAFile"}},
		{"no client certificate", func(w *world, c *engine.Config) { w.at(c, kafkatest.MTLS) },
			[]string{"asks for a client certificate", "set TLS.CertFile and TLS.KeyFile"}},
		{"plaintext on a TLS port", func(w *world, c *engine.Config) {
			w.at(c, kafkatest.TLS)
			c.TLS = engine.TLS{}
		}, []string{"expects TLS", "set TLS.Enable"}},
		{"TLS on a plaintext port", func(w *world, c *engine.Config) { c.TLS.CAFile = cluster.CA() }, []string{"port is plaintext", "leave TLS off"}},
		{"missing topic", func(w *world, c *engine.Config) { c.Topics = []string{w.topic + "-nowhere"} },
			[]string{"-nowhere\" does not exist", "create it, or check Config.Topics"}},
		{"missing dead-letter topic", func(w *world, c *engine.Config) { c.DeadLetter = engine.DeadLetter{NoCreate: true} },
			[]string{".dlq\" does not exist", "create it"}},
		{"no broker there", func(_ *world, c *engine.Config) {
			c.Brokers, c.StartTimeout = []string{"127.0.0.1:1"}, 2*time.Second
		}, []string{"no broker answers there", "check Brokers"}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			w := worldOn(t, cluster, 1)
			c := w.config(w.ledger().keep(nil))
			fault.set(w, &c)
			w.failsAtOnce(c, fault.words...)
		})
	}
}

// failsAtOnce checks Run's error. It has to come by itself: the checks' own deadline is beyond what the test waits for.
func (w *world) failsAtOnce(c engine.Config, words ...string) {
	w.Helper()
	if c.StartTimeout == 0 {
		c.StartTimeout = 2 * patience
	}
	saysWhatToDo(w, w.launch(c), words...)
}

// C9: DESCRIBE alone lets a user see a resource, and do nothing with it: the right that is missing is named at start all the same. What is
// said where there is no right at all stands in rights_test.go.
func testMissingRights(t *testing.T, cluster *kafkatest.Cluster) {
	const describe = kadm.OpDescribe
	for _, lack := range []struct {
		name  string
		grant func(w *world)
		words func(w *world) []string
	}{
		{"group, of which only DESCRIBE is granted", func(w *world) {
			w.allow("bob", kadm.NewACLs().Topics(w.topic), kadm.OpRead, describe)
			w.allow("bob", kadm.NewACLs().Topics(w.topic+".dlq"), kadm.OpWrite, describe, kadm.OpCreate)
			w.allow("bob", kadm.NewACLs().Groups(w.group), describe)
		}, func(w *world) []string { return []string{"grant READ on group \"" + w.group + "\""} }},
		{"dead-letter topic, of which only DESCRIBE is granted", func(w *world) {
			w.cluster.CreateTopic(t, w.topic+".dlq", 1, nil)
			w.allow("bob", kadm.NewACLs().Topics(w.topic), kadm.OpRead, describe)
			w.allow("bob", kadm.NewACLs().Groups(w.group), kadm.OpRead)
			w.allow("bob", kadm.NewACLs().Topics(w.topic+".dlq"), describe)
		}, func(w *world) []string { return []string{"grant WRITE", w.topic + ".dlq"} }},
		{"topic, of which only DESCRIBE is granted", func(w *world) {
			w.allow("bob", kadm.NewACLs().Topics(w.topic), describe)
			w.allow("bob", kadm.NewACLs().Groups(w.group), kadm.OpRead)
		}, func(w *world) []string { return []string{"grant READ and DESCRIBE on topic \"" + w.topic + "\""} }},
	} {
		t.Run(lack.name, func(t *testing.T) {
			w := worldOn(t, cluster, 1)
			lack.grant(w)
			c := w.config(w.ledger().keep(nil))
			c.DeadLetter = engine.DeadLetter{}
			w.at(&c, kafkatest.SASLPlaintext)
			c.SASL = engine.SASL{Mechanism: "PLAIN", User: "bob", Password: "bob-pw"}
			w.failsAtOnce(c, lack.words(w)...)
		})
	}
}
