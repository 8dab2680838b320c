package kafkatest_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// at returns the options of a client of one listener.
func at(tb testing.TB, cluster *kafkatest.Cluster, l kafkatest.Listener, mechanisms ...sasl.Mechanism) []kgo.Opt {
	tb.Helper()
	opts := []kgo.Opt{kgo.SeedBrokers(cluster.Addresses(l)...), kgo.SASL(mechanisms...)}
	var config *tls.Config
	var err error
	switch l {
	case kafkatest.TLS, kafkatest.SASLTLS:
		config, err = cluster.TLSConfig()
	case kafkatest.MTLS:
		config, err = cluster.MutualTLSConfig()
	}
	if err != nil {
		tb.Fatal(err)
	}
	if config != nil {
		opts = append(opts, kgo.DialTLSConfig(config))
	}
	return opts
}

func plainAs(user, password string) sasl.Mechanism {
	return plain.Auth{User: user, Pass: password}.AsMechanism()
}

func scramAs(user, password string) scram.Auth { return scram.Auth{User: user, Pass: password} }

func bearer(token string) sasl.Mechanism { return oauth.Auth{Token: token}.AsMechanism() }

func TestEveryListenerTakesItsClients(t *testing.T) {
	cluster := kafkatest.Shared(t)
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plainAs(kafkatest.User, kafkatest.Password),
		"SCRAM-SHA-256": scramAs(kafkatest.User, kafkatest.Password).AsSha256Mechanism(),
		"SCRAM-SHA-512": scramAs(kafkatest.User, kafkatest.Password).AsSha512Mechanism(),
		"OAUTHBEARER":   bearer(kafkatest.UnsignedToken("carol", time.Hour)),
	}
	for _, l := range kafkatest.AllListeners {
		if l != kafkatest.SASLPlaintext && l != kafkatest.SASLTLS {
			t.Run(string(l), func(t *testing.T) { roundTrip(t, cluster, at(t, cluster, l)) })
			continue
		}
		for name, mechanism := range mechanisms {
			t.Run(string(l)+"/"+name, func(t *testing.T) { roundTrip(t, cluster, at(t, cluster, l, mechanism)) })
		}
	}
}

func roundTrip(t *testing.T, cluster *kafkatest.Cluster, opts []kgo.Opt) {
	topic := kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 1, nil)
	client := newClient(t, append(opts, kgo.ConsumeTopics(topic))...)
	produce(t, client, topic, "hello")
	expect(t, client, "hello")
}

func TestListenersRefuseStrangers(t *testing.T) {
	cluster := kafkatest.Shared(t)
	for name, mechanism := range map[string]sasl.Mechanism{
		"PLAIN":         plainAs(kafkatest.User, "wrong"),
		"SCRAM-SHA-256": scramAs(kafkatest.User, "wrong").AsSha256Mechanism(),
		"SCRAM-SHA-512": scramAs(kafkatest.User, "wrong").AsSha512Mechanism(),
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, at(t, cluster, kafkatest.SASLPlaintext, mechanism)...)
			if err := client.Ping(patient(t)); !errors.Is(err, kerr.SaslAuthenticationFailed) {
				t.Errorf("a wrong password gave %v", err)
			}
		})
	}
	t.Run("expired token", func(t *testing.T) {
		expired := bearer(kafkatest.UnsignedToken("carol", -time.Hour))
		client := newClient(t, at(t, cluster, kafkatest.SASLPlaintext, expired)...)
		if err := client.Ping(patient(t)); err == nil || !strings.Contains(err.Error(), "invalid_token") {
			t.Errorf("an expired token gave %v", err)
		}
	})
	t.Run("no client certificate", func(t *testing.T) {
		config, err := cluster.TLSConfig()
		if err != nil {
			t.Fatal(err)
		}
		client := newClient(t, kgo.SeedBrokers(cluster.Addresses(kafkatest.MTLS)...), kgo.DialTLSConfig(config))
		if err := client.Ping(patient(t)); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("a client without a certificate gave %v", err)
		}
	})
	t.Run("authority the client does not know", func(t *testing.T) {
		pem, err := os.ReadFile(cluster.OtherCA())
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		client := newClient(t, kgo.SeedBrokers(cluster.Addresses(kafkatest.TLS)...), kgo.DialTLSConfig(&tls.Config{RootCAs: roots}))
		var unknown x509.UnknownAuthorityError
		if err := client.Ping(patient(t)); !errors.As(err, &unknown) {
			t.Errorf("an unknown authority gave %v", err)
		}
	})
}

func TestExpiredCertificates(t *testing.T) {
	cluster := kafkatest.Start(t, kafkatest.Listeners(kafkatest.MTLS, kafkatest.ExpiredTLS))
	config, err := cluster.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	var invalid x509.CertificateInvalidError
	old := newClient(t, kgo.SeedBrokers(cluster.Addresses(kafkatest.ExpiredTLS)...), kgo.DialTLSConfig(config))
	if err := old.Ping(patient(t)); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("a broker whose certificate has expired gave %v", err)
	}
	pair, err := tls.LoadX509KeyPair(cluster.ExpiredClientCert())
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{pair}
	client := newClient(t, kgo.SeedBrokers(cluster.Addresses(kafkatest.MTLS)...), kgo.DialTLSConfig(config))
	if err := client.Ping(patient(t)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client whose certificate has expired gave %v", err)
	}
}

func TestACLsBindNamedUsers(t *testing.T) {
	cluster := kafkatest.Start(t,
		kafkatest.ACLs(),
		kafkatest.Listeners(kafkatest.MTLS, kafkatest.SASLPlaintext),
		kafkatest.Credentials("bob", "bob-pw"),
	)
	topic := kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 1, nil)
	allow := kadm.NewACLs().Topics(topic).Allow("User:bob", "User:"+kafkatest.ClientName).AllowHosts().
		Operations(kadm.OpRead, kadm.OpWrite, kadm.OpDescribe).ResourcePatternType(kadm.ACLPatternLiteral)
	if _, err := cluster.Admin().CreateACLs(patient(t), allow); err != nil {
		t.Fatal(err)
	}

	stranger := newClient(t, at(t, cluster, kafkatest.SASLPlaintext, plainAs(kafkatest.User, kafkatest.Password))...)
	err := stranger.ProduceSync(patient(t), &kgo.Record{Topic: topic}).FirstErr()
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("a user without an ACL could produce: %v", err)
	}
	bob := newClient(t, at(t, cluster, kafkatest.SASLPlaintext, plainAs("bob", "bob-pw"))...)
	produce(t, bob, topic, "from bob")
	certified := newClient(t, append(at(t, cluster, kafkatest.MTLS), kgo.ConsumeTopics(topic))...)
	expect(t, certified, "from bob")
}
