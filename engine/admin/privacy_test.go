package admin_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	plantedPassword = "p4ssw0rd-planted"
	plantedToken    = "t0ken-planted"
	plantedKey      = "customer-planted"
	plantedPayload  = "payload-planted"
	keyOfNobody     = "asked" // what GET /dedupe/key is asked for: it repeats that
)

// getPages finds the pages in the source, so that one that is added is looked at, too.
func getPages(t *testing.T) (pages []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`"GET (/[^"]*)"`).FindAllSubmatch(source, -1) {
			page := string(m[1])
			if page == "/dedupe/key" {
				page += "?topic=t&key=" + keyOfNobody
			}
			pages = append(pages, page)
		}
	}
	if len(pages) < 6 {
		t.Fatalf("only these pages were found: %v", pages)
	}
	return pages
}

// served is all that the pages say, each with its header. Every page must have something to say; of a process that did not come
// up, those of the store have not.
func (s *service) served(up bool) string {
	s.Helper()
	var all strings.Builder
	for _, page := range getPages(s.T) {
		req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.srv.URL+page, nil)
		if err != nil {
			s.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			s.Fatal(err)
		}
		if ok := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusServiceUnavailable; !ok && up {
			s.Errorf("%s: %s", page, resp.Status)
		}
		fmt.Fprintf(&all, "%s\n", page)
		err = resp.Write(&all)
		_ = resp.Body.Close()
		if err != nil {
			s.Fatal(err)
		}
	}
	return all.String()
}

// shows says whether a text has another one in it, as it is or as bytes are often written.
func shows(text, planted string) bool {
	b := []byte(planted)
	for _, form := range []string{planted, hex.EncodeToString(b), strings.TrimRight(base64.StdEncoding.EncodeToString(b), "=")} {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

// identity is a certificate that trusts itself: for the broker and for the client.
type identity struct {
	certFile, keyFile string
	key               []string // what would give the key away: the lines of its PEM, and its number
	broker            *tls.Config
}

func newIdentity(t *testing.T) *identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gapless"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	number, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	id := &identity{key: append(strings.Split(strings.TrimSpace(string(keyPEM)), "\n"), string(number))}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certPEM)
	id.broker = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert, RootCAs: trusted, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	dir := t.TempDir()
	id.certFile, id.keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, content := range map[string][]byte{id.certFile: certPEM, id.keyFile: keyPEM} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

// C9: no page has a password, a token or a piece of the client's private key on it: neither where they are right and there is
// trouble to tell of, nor where they were refused.
func TestSecretsAreNotServed(t *testing.T) {
	id, other := newIdentity(t), newIdentity(t)
	for _, way := range []struct {
		name   string
		right  bool
		sasl   engine.SASL
		client *identity
	}{
		{"PLAIN", true, engine.SASL{Mechanism: "PLAIN", User: "ann", Password: plantedPassword}, id},
		{"SCRAM", true, engine.SASL{Mechanism: "SCRAM-SHA-256", User: "ben", Password: plantedPassword}, id},
		{"wrong PLAIN", false, engine.SASL{Mechanism: "PLAIN", User: "ann", Password: plantedPassword + "-wrong"}, id},
		{"wrong SCRAM", false, engine.SASL{Mechanism: "SCRAM-SHA-256", User: "ben", Password: plantedPassword + "-wrong"}, id},
		{"token", false, engine.SASL{Mechanism: "OAUTHBEARER", Token: func(context.Context) (string, error) { return plantedToken, nil }}, id},
		{"untrusted certificate", false, engine.SASL{Mechanism: "PLAIN", User: "ann", Password: plantedPassword}, other},
	} {
		t.Run(way.name, func(t *testing.T) {
			addresses := broker(t, kfake.TLS(id.broker), kfake.EnableSASL(), kfake.Superuser("PLAIN", "ann", plantedPassword), kfake.Superuser("SCRAM-SHA-256", "ben", plantedPassword))
			if way.right {
				opts, err := (&engine.Config{Brokers: addresses, TLS: engine.TLS{CAFile: id.certFile, CertFile: id.certFile, KeyFile: id.keyFile}, SASL: way.sasl}).ConnectOpts()
				if err != nil {
					t.Fatal(err)
				}
				produceAs(t, opts, &kgo.Record{Value: []byte("dead")}, &kgo.Record{Value: []byte("hold")})
			}
			s := serve(t, engine.Config{
				Brokers: addresses, Group: "g", Topics: []string{"t"}, Order: engine.OrderPartition,
				TLS: engine.TLS{CAFile: id.certFile, CertFile: way.client.certFile, KeyFile: way.client.keyFile}, SASL: way.sasl,
				Dedupe: engine.Dedupe{Dir: t.TempDir(), Key: engine.RecordKey},
				Handler: engine.HandlerFunc(func(_ context.Context, r *engine.Record) error {
					if string(r.Value) == "hold" {
						return engine.Hold(errors.New("trouble"))
					}
					return engine.Permanent(errors.New("trouble"))
				}),
			})
			var text string
			if way.right {
				s.await(engine.EventHeld)
				s.eventually(func() bool { return s.e.Status().Partitions[0].Oldest != nil })
				if text = s.served(true); !strings.Contains(text, "trouble") || !strings.Contains(text, `gapless_records_dead_lettered_total{group="g"} 1`) {
					t.Errorf("the pages don't tell of the trouble:\n%s", text)
				}
			} else if err := <-s.done; err == nil {
				t.Error("wrong credentials were accepted")
			} else {
				text = s.served(false)
			}
			for _, secret := range append([]string{plantedPassword, plantedToken}, append(id.key, other.key...)...) {
				if shows(text, secret) {
					t.Errorf("%q is shown in:\n%s", secret, text)
				}
			}
		})
	}
}

// C9: with HideKeys and HideErrors no page has a key or a piece of a payload on it, whatever trouble there is to tell of; a stand-in
// names the key, so the engine can be operated all the same. Without them they are there, so that this test is seen to look at
// the right places.
func TestKeysAndPayloadsAreNotServed(t *testing.T) {
	quoting := func(_ context.Context, r *engine.Record) error { return fmt.Errorf("bad value %s", r.Value) }
	hold := func(c *engine.Config) { c.Retry.Attempts, c.DeadLetter.GiveUp = 1, engine.GiveUpHold }
	oldest := func(state string) func(engine.Status) bool {
		return func(st engine.Status) bool {
			p := st.Partitions[0]
			return p.Oldest != nil && p.Oldest.State == state && p.Oldest.Error != ""
		}
	}
	ok := func(context.Context, *engine.Record) error { return nil }
	for _, c := range []struct {
		name            string
		handle          engine.HandlerFunc
		set             func(*engine.Config)
		after           engine.EventName
		until           func(engine.Status) bool
		key, payload    bool // whether they are there, where they are not hidden
		differing, mark bool // records of one business key with two payloads; that key is asked for
	}{
		{name: "held", handle: func(_ context.Context, r *engine.Record) error {
			return engine.Hold(fmt.Errorf("bad value %s", r.Value))
		},
			after: engine.EventHeld, until: oldest("held"), key: true, payload: true},
		{name: "given up", handle: quoting, set: hold, after: engine.EventHeld, until: oldest("held"), key: true, payload: true},
		{name: "panic", handle: func(_ context.Context, r *engine.Record) error { panic("bad value " + string(r.Value)) }, set: hold,
			after: engine.EventHeld, until: oldest("held"), key: true, payload: true},
		{name: "retried", handle: quoting, set: func(c *engine.Config) { c.Retry.Base, c.Retry.Max = time.Hour, time.Hour },
			after: engine.EventAssigned, until: oldest("retrying"), key: true, payload: true},
		{name: "breaker", handle: quoting, set: func(c *engine.Config) { c.Retry.Attempts, c.DeadLetter.BreakerMin = 1, 1 },
			after: engine.EventBreakerOpen, until: oldest("dead-letter"), key: true, payload: true},
		{name: "key function", handle: ok, set: func(c *engine.Config) {
			hold(c)
			c.Dedupe.Key = func(_ []byte, r *kgo.Record) []byte { panic("bad value " + string(r.Value)) }
		}, after: engine.EventHeld, until: oldest("held"), key: true, payload: true},
		{name: "another payload", handle: ok, set: func(c *engine.Config) { c.Dedupe.Key, c.Dedupe.OnDiffer = engine.RecordKey, engine.DifferHold },
			differing: true, after: engine.EventHeld, until: oldest("held"), key: true},
		{name: "marked", handle: ok, set: func(c *engine.Config) { c.Dedupe.Key = engine.RecordKey }, mark: true,
			after: engine.EventAssigned, until: func(st engine.Status) bool { return st.Dedupe.Hits == records-1 }},
	} {
		for _, hidden := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hidden %v", c.name, hidden), func(t *testing.T) {
				addresses := broker(t)
				var rs []*kgo.Record
				for i := range records {
					r := &kgo.Record{Key: []byte(plantedKey), Value: []byte(plantedPayload)}
					if c.differing {
						r.Value = fmt.Appendf(nil, "%s-%d", plantedPayload, i)
					}
					rs = append(rs, r)
				}
				produce(t, addresses, rs...)
				cfg := engine.Config{Brokers: addresses, Group: "g", Topics: []string{"t"}, Handler: c.handle, HideKeys: hidden, HideErrors: hidden}
				cfg.Dedupe.Dir = t.TempDir()
				if c.set != nil {
					c.set(&cfg)
				}
				s := serve(t, cfg)
				s.await(c.after)
				s.eventually(func() bool { st := s.e.Status(); return len(st.Partitions) == 2 && c.until(st) })
				text := s.served(true)
				if c.mark {
					code, page := s.get("/dedupe/key?topic=t&key=" + plantedKey)
					if code != http.StatusOK || !strings.Contains(page, `"marked": true`) {
						t.Errorf("%d %s", code, page)
					}
					text += strings.Replace(page, `"key": "`+plantedKey+`"`, "", 1) // which the question had
				}
				if got := shows(text, plantedKey); got != (c.key && !hidden) {
					t.Errorf("the key is shown: %v, in:\n%s", got, text)
				}
				if got := shows(text, plantedPayload); got != (c.payload && !hidden) {
					t.Errorf("the payload is shown: %v, in:\n%s", got, text)
				}
				if got := strings.Contains(text, `"key": "hidden-`); got != (c.key && hidden) {
					t.Errorf("a stand-in is shown: %v, in:\n%s", got, text)
				}
			})
		}
	}
}

// A handler that does not return is told of with its key, and that can be hidden, too.
func TestKeyOfStuckHandlerIsNotServed(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		gate := make(chan struct{})
		addresses := broker(t)
		var rs []*kgo.Record
		for range records {
			rs = append(rs, &kgo.Record{Key: []byte(plantedKey), Value: []byte(plantedPayload)})
		}
		produce(t, addresses, rs...)
		s := serve(t, engine.Config{Brokers: addresses, Group: "g", Topics: []string{"t"}, HideKeys: hidden, StuckAfter: time.Nanosecond, Dedupe: engine.Dedupe{Dir: t.TempDir()},
			Handler: engine.HandlerFunc(func(context.Context, *engine.Record) error { <-gate; return nil })})
		s.await(engine.EventStuck)
		s.eventually(func() bool { p := s.e.Status().Partitions[0]; return p.Oldest != nil && p.BusiestKey != "" })
		text := s.served(true)
		close(gate)
		if got := shows(text, plantedKey); got == hidden || shows(text, plantedPayload) || !strings.Contains(text, "the handler has not returned") || strings.Contains(text, `"busiest_key": "hidden-`) != hidden {
			t.Errorf("hidden %v, the key is shown: %v, in:\n%s", hidden, got, text)
		}
	}
}

// records are how many a topic gets here: some wait behind the first.
const records = 4
