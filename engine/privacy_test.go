package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lockedText is a log that may be read while it is written.
type lockedText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

const (
	plantedPassword = "p4ssw0rd-planted"
	plantedKey      = "customer-planted"
	plantedPayload  = "payload-planted"
)

// A Config, and whatever holds one, can be printed by any verb and written as JSON without giving the password away.
func TestConfigCanBePrinted(t *testing.T) {
	c := Config{Brokers: []string{"b:1"}, Group: "g", Topics: []string{"t"}, Handler: HandlerFunc(func(context.Context, *Record) error { return nil }),
		SASL: SASL{Mechanism: "PLAIN", User: "ann", Password: plantedPassword}}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	holder := struct {
		Config Config
		SASL   *SASL
		e      *Engine
	}{c, &c.SASL, e}
	for _, v := range []any{c, &c, c.SASL, &c.SASL, e, holder, &holder, []Config{c}, map[string]SASL{"s": c.SASL}, any(c.SASL)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
			text := fmt.Sprintf(verb, v)
			if strings.Contains(text, plantedPassword) || strings.Contains(text, fmt.Sprintf("%x", plantedPassword)) {
				t.Errorf("%s of a %T shows the password: %s", verb, v, text)
			}
		}
	}
	if text := fmt.Sprintf("%+v", c); !strings.Contains(text, "[redacted]") || !strings.Contains(text, "ann") || !strings.Contains(text, "PLAIN") {
		t.Errorf("what is no secret is missing: %s", text)
	}
	b, err := json.Marshal(map[string]any{"sasl": c.SASL, "pointer": &c.SASL})
	if err != nil || bytes.Contains(b, []byte(plantedPassword)) || !bytes.Contains(b, []byte("[redacted]")) {
		t.Errorf("%s, %v", b, err)
	}
	//nolint:staticcheck // it can't be marshalled; the error is what must not show it
	if b, err := json.Marshal(c); bytes.Contains(b, []byte(plantedPassword)) || err != nil && strings.Contains(err.Error(), plantedPassword) {
		t.Errorf("%s, %v", b, err)
	}
	if text := fmt.Sprint(SASL{}); strings.Contains(text, "redacted") {
		t.Errorf("an empty SASL hides what it does not have: %s", text)
	}
}

// Whatever the engine writes, at debug level and with the client's own log passed on, has neither password nor token in it, in
// success and in failure.
func TestSecretsAreNeverShown(t *testing.T) {
	for _, way := range []struct {
		name  string
		right bool
		sasl  SASL
	}{
		{"PLAIN", true, SASL{Mechanism: "PLAIN", User: "ann", Password: plantedPassword}},
		{"SCRAM-SHA-256", true, SASL{Mechanism: "SCRAM-SHA-256", User: "ben", Password: plantedPassword}},
		{"wrong PLAIN", false, SASL{Mechanism: "PLAIN", User: "ann", Password: plantedPassword + "-wrong"}},
		{"wrong SCRAM", false, SASL{Mechanism: "SCRAM-SHA-256", User: "ben", Password: plantedPassword + "-wrong"}},
		{"token", false, SASL{Mechanism: "OAUTHBEARER", Token: func(context.Context) (string, error) { return plantedPassword, nil }}},
	} {
		t.Run(way.name, func(t *testing.T) {
			inWorldOf(t, func(w *world) {
				var log lockedText
				c := w.config(func(context.Context, *Record) error { return errBoom })
				c.SASL = way.sasl
				c.Log = zerolog.New(&log).Level(zerolog.TraceLevel)
				c.KgoOpts = append(c.KgoOpts, kgo.WithLogger(kgo.BasicLogger(&log, kgo.LogLevelDebug, nil)))
				c.Retry.Attempts = 1
				var said []string
				m := w.launch(c)
				if way.right {
					w.produce(0, "k=v")
					m.awaitName(EventDeadLettered)
					said = append(said, m.e.Status().String())
					m.stop()
				} else if err := <-m.done; err == nil {
					t.Error("wrong credentials were accepted")
				} else {
					said = append(said, err.Error(), fmt.Sprintf("%+v", err), m.e.Status().String())
				}
				said = append(said, log.String(), strings.Join(m.names(), "\n"))
				for _, text := range said {
					if strings.Contains(text, plantedPassword) {
						t.Errorf("a secret is shown in:\n%s", text)
					}
				}
				if !strings.Contains(log.String(), "beginning sasl authentication") && !strings.Contains(log.String(), "opening connection to broker") {
					t.Errorf("the client's log was not looked at:\n%s", log.String())
				}
			}, kfake.EnableSASL(), kfake.Superuser("PLAIN", "ann", plantedPassword), kfake.Superuser("SCRAM-SHA-256", "ben", plantedPassword),
				kfake.Superuser("PLAIN", "admin", "admin"))
		})
	}
}

// inWorldOf is a world with users.
func inWorldOf(t *testing.T, body func(*world), opts ...kfake.Opt) {
	t.Helper()
	asAdmin = kgo.SASL(SASL{Mechanism: "PLAIN", User: "admin", Password: "admin"}.mechanism())
	defer func() { asAdmin = nil }()
	inWorld(t, 1, body, opts...)
}

// C9: with HideKeys and HideErrors nothing of a record is in what the engine writes, and it can be operated all the same. Without
// them it is there, so that this test is seen to look at the right places.
func TestKeysAndErrorTextsCanBeHidden(t *testing.T) {
	type failure struct {
		name   string
		handle HandlerFunc
		set    func(c *Config)
	}
	quoting := func(_ context.Context, r *Record) error { return fmt.Errorf("bad value %s", r.Value) }
	failures := []failure{
		{"error", quoting, func(*Config) {}},
		{"envelope", quoting, func(c *Config) { c.DeadLetter.Format = DeadLetterEnvelope }},
		{"permanent", func(_ context.Context, r *Record) error { return Permanent(fmt.Errorf("bad value %s", r.Value)) }, func(*Config) {}},
		{"panic", func(_ context.Context, r *Record) error { panic("bad value " + string(r.Value)) }, func(*Config) {}},
		{"panic with an error", func(_ context.Context, r *Record) error { panic(fmt.Errorf("bad value %s", r.Value)) }, func(*Config) {}},
		{"hold", quoting, func(c *Config) { c.DeadLetter.GiveUp = GiveUpHold }},
		{"skip", func(_ context.Context, r *Record) error { return Skip("bad value " + string(r.Value)) }, func(*Config) {}},
		{"end", func(_ context.Context, r *Record) error { return End(fmt.Errorf("bad value %s", r.Value)) }, func(*Config) {}},
		{"classified", quoting, func(c *Config) {
			c.Retry.Classify = func(err error) error { return Permanent(fmt.Errorf("classified: %w", err)) }
		}},
	}
	for _, f := range failures {
		for _, hidden := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hidden %v", f.name, hidden), func(t *testing.T) {
				inWorld(t, 1, func(w *world) {
					var log lockedText
					c := w.config(f.handle)
					c.Log = zerolog.New(&log).Level(zerolog.TraceLevel)
					c.HideKeys, c.HideErrors = hidden, hidden
					c.Retry.Attempts = 2
					f.set(&c)
					m := w.start(c)
					w.produce(0, plantedKey+"="+plantedPayload)
					said := log.String
					var rest []string
					switch {
					case f.name == "end":
						rest = append(rest, fmt.Sprint(<-m.done))
					case f.name == "skip":
						m.awaitName(EventSkipped)
					case c.DeadLetter.GiveUp == GiveUpHold:
						m.awaitName(EventHeld)
						w.eventually("the status names the record", func() bool { return m.e.Status().Partitions[0].Oldest != nil })
						s := m.e.Status()
						key := s.Partitions[0].Oldest.Key
						if shown := strings.Contains(key, plantedKey); shown == hidden || key == "" {
							t.Errorf("the status names the key %q", key)
						}
						if again := m.e.Status().Partitions[0].Oldest.Key; again != key {
							t.Errorf("one key is shown as %q and as %q", key, again)
						}
						rest = append(rest, s.String())
					default:
						m.awaitName(EventDeadLettered)
						for _, r := range w.dead("t.dlq", 1) {
							rest = append(rest, headerText(r, HeaderError))
							var env Envelope
							if json.Unmarshal(r.Value, &env) == nil {
								rest = append(rest, env.Error)
							}
						}
					}
					m.mu.Lock()
					for _, ev := range m.events {
						rest = append(rest, fmt.Sprint(ev.Err), ev.Hint)
					}
					m.mu.Unlock()
					all := said() + strings.Join(rest, "\n")
					if shown := strings.Contains(all, plantedPayload); shown == hidden {
						t.Errorf("the record is shown: %v, in:\n%s", shown, all)
					}
					if strings.Contains(said(), plantedKey+`"`) {
						t.Errorf("the log has the key:\n%s", said())
					}
					if f.name != "end" {
						m.stop()
					}
				})
			})
		}
	}
}

func headerText(r *kgo.Record, name string) (text string) {
	for _, h := range r.Headers {
		if h.Key == name {
			text = string(h.Value)
		}
	}
	return text
}

// What an error is stays visible where its text is hidden; and the engine's own errors are not hidden.
func TestHiddenErrorsKeepWhatTheyAre(t *testing.T) {
	e := &Engine{cfg: Config{HideErrors: true}}
	cause := &ConfigError{"secret", "secret"}
	err := e.hide(Permanent(fmt.Errorf("quoting %w", cause)))
	var c *ConfigError
	if v, _ := steerOf(err); v != verdictPermanent || !errors.As(err, &c) || !errors.Is(err, cause) {
		t.Errorf("%v lost what it is", err)
	}
	if got, want := err.Error(), "engine.ConfigError (its text is hidden: HideErrors)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if errorType(err) != "engine.ConfigError" {
		t.Errorf("its type is %s", errorType(err))
	}
	own := &ownError{fmt.Errorf("write an output: %w", errNoRoom)}
	if got := e.hide(own); got.Error() != own.Error() {
		t.Errorf("the engine's own error is hidden: %v", got)
	}
}

// A key that is not UTF-8 is shown so that an operator can name it.
func TestKeysThatAreNotText(t *testing.T) {
	s := PartitionStatus{BusiestKey: "caf\xe9", Oldest: &OldestRecord{Key: "\xff\x00"}}
	(&Engine{}).showKeys(&s)
	if s.BusiestKey != "Y2Fm6Q==" || s.BusiestKeyEncoding != "base64" || s.Oldest.Key != "/wA=" || s.Oldest.KeyEncoding != "base64" {
		t.Errorf("%+v %+v", s, *s.Oldest)
	}
	s = PartitionStatus{Oldest: &OldestRecord{Key: "café"}}
	(&Engine{}).showKeys(&s)
	if s.Oldest.Key != "café" || s.Oldest.KeyEncoding != "" {
		t.Errorf("%+v", *s.Oldest)
	}
}
