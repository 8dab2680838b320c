package enginetest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// TestSecuredBroker has the tests that need a broker which asks its clients who they are; they share one.
func TestSecuredBroker(t *testing.T) {
	ownBroker(t, "it has every listener, and ACLs")
	cluster := kafkatest.Start(t, kafkatest.Listeners(kafkatest.AllListeners...), kafkatest.ACLs(), kafkatest.Credentials("bob", "bob-pw"))
	t.Run("Connects", func(t *testing.T) { testConnects(t, cluster) })
	t.Run("RefusesPromptly", func(t *testing.T) { testRefuses(t, cluster) })
	t.Run("MissingRights", func(t *testing.T) { testMissingRights(t, cluster) })
	t.Run("RightTakenAway", func(t *testing.T) { testRightTakenAway(t, cluster) })
}

// at points a configuration to a listener.
func (w *world) at(c *engine.Config, l kafkatest.Listener) {
	c.Brokers = w.cluster.Addresses(l)
	if l == kafkatest.TLS || l == kafkatest.SASLTLS || l == kafkatest.MTLS {
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
	w.allow(user, kadm.NewACLs().Groups(w.group), kadm.OpRead, kadm.OpDescribe)
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
	for _, way := range []struct {
		name     string
		user     string // for the ACLs
		listener kafkatest.Listener
		sasl     engine.SASL
	}{
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
			w.at(&c, way.listener)
			c.SASL = way.sasl
			if way.listener == kafkatest.MTLS {
				c.TLS.CertFile, c.TLS.KeyFile = cluster.ClientCert()
			}
			c.DeadLetter = engine.DeadLetter{}
			m := w.start(c)
			l.reaches(2)
			w.noLagLeft()
			m.stop()
			if n := len(w.read(w.topic+".dlq", 1)); n != 1 {
				t.Errorf("%d dead letters", n)
			}
			m.quiet(engine.EventCommitFailed, engine.EventFetchFailed, engine.EventSessionEnded, engine.EventConfigWarning)
		})
	}
	if tokens.Load() < 4 { // each of two members has at least a consumer's and a producer's connection
		t.Errorf("the token function was called %d times", tokens.Load())
	}
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

// failsAtOnce checks Run's error, and that it comes long before the checks' own deadline.
func (w *world) failsAtOnce(c engine.Config, words ...string) {
	w.Helper()
	begun := time.Now()
	saysWhatToDo(w, w.launch(c), words...)
	if took := time.Since(begun); took > 5*time.Second {
		w.Errorf("Run took %v to say it", took)
	}
}

// C9: a right that is missing is named at start, with whom to grant it to what.
func testMissingRights(t *testing.T, cluster *kafkatest.Cluster) {
	const describe = kadm.OpDescribe
	for _, lack := range []struct {
		name  string
		grant func(w *world)
		words func(w *world) []string
	}{
		{"topic", func(w *world) { w.allow("bob", kadm.NewACLs().Groups(w.group), kadm.OpRead) },
			func(w *world) []string { return []string{"grant READ and DESCRIBE on topic \"" + w.topic + "\""} }},
		{"group", func(w *world) { w.allow("bob", kadm.NewACLs().Topics(w.topic), kadm.OpRead, describe) },
			func(w *world) []string { return []string{"grant READ on group \"" + w.group + "\""} }},
		{"group, of which only DESCRIBE is granted", func(w *world) {
			w.allow("bob", kadm.NewACLs().Topics(w.topic), kadm.OpRead, describe)
			w.allow("bob", kadm.NewACLs().Topics(w.topic+".dlq"), kadm.OpWrite, describe, kadm.OpCreate)
			w.allow("bob", kadm.NewACLs().Groups(w.group), describe)
		}, func(w *world) []string { return []string{"grant READ on group \"" + w.group + "\""} }},
		{"dead-letter topic that exists", func(w *world) {
			w.cluster.CreateTopic(t, w.topic+".dlq", 1, nil)
			w.allow("bob", kadm.NewACLs().Topics(w.topic), kadm.OpRead, describe)
			w.allow("bob", kadm.NewACLs().Groups(w.group), kadm.OpRead)
		}, func(w *world) []string {
			return []string{"grant WRITE and DESCRIBE on dead-letter topic \"" + w.topic + ".dlq\""}
		}},
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
		{"dead-letter topic that is to be created", func(w *world) {
			w.allow("bob", kadm.NewACLs().Topics(w.topic), kadm.OpRead, describe)
			w.allow("bob", kadm.NewACLs().Groups(w.group), kadm.OpRead)
			w.allow("bob", kadm.NewACLs().Topics(w.topic+".dlq"), kadm.OpWrite, describe)
		}, func(w *world) []string { return []string{"may not create it", "grant CREATE"} }},
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

// C9: a right that is taken away while a member runs pauses the partition, where the client alone would return the error
// thousands of times a second. It is said, and the work goes on when the right is back.
func testRightTakenAway(t *testing.T, cluster *kafkatest.Cluster) {
	w := worldOn(t, cluster, 1)
	w.allowAll("bob")
	w.produce(0, "k=0")
	l := w.ledger()
	c := w.config(l.keep(nil))
	w.at(&c, kafkatest.SASLPlaintext)
	c.SASL = engine.SASL{Mechanism: "PLAIN", User: "bob", Password: "bob-pw"}
	m := w.start(c)
	l.reaches(1)

	ctx, cancel := patient()
	defer cancel()
	read := kadm.NewACLs().Topics(w.topic).Allow("User:bob").AllowHosts().Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral)
	if _, err := w.adm.DeleteACLs(ctx, read); err != nil {
		t.Fatal(err)
	}
	if ev := m.hears(engine.EventFetchFailed); !strings.Contains(ev.Hint, "grant READ and DESCRIBE on the topic") {
		t.Errorf("event %+v", ev)
	}
	w.eventually("unhealthy", func() bool { ok, _ := m.e.Healthy(); return !ok })
	w.allow("bob", kadm.NewACLs().Topics(w.topic), kadm.OpRead)
	w.produce(0, "k=1")
	l.reaches(2)
	w.noLagLeft()
	m.becomesHealthy()
	m.stop()
	if n := m.count(engine.EventFetchFailed); n > 5 {
		t.Errorf("%d fetch_failed events", n)
	}
}
