package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/admin"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type service struct {
	*testing.T
	e      *engine.Engine
	events chan engine.Event
	done   chan error // what Run returned
	srv    *httptest.Server
}

// start runs an engine on an embedded broker whose topic holds the given values, behind an admin address.
func start(t *testing.T, h engine.HandlerFunc, change func(*engine.Config), values ...string) *service {
	t.Helper()
	addresses := broker(t)
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Key: []byte("k"), Value: []byte(v)}
	}
	produce(t, addresses, records...)
	cfg := engine.Config{Brokers: addresses, Group: "g", Topics: []string{"t"}, Handler: h}
	if change != nil {
		change(&cfg)
	}
	return serve(t, cfg)
}

// broker is an embedded one with the topic t.
func broker(t *testing.T, opts ...kfake.Opt) (addresses []string) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(2, "t")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()
}

// produce writes to t[0], unless the records say otherwise.
func produce(t *testing.T, addresses []string, records ...*kgo.Record) {
	t.Helper()
	produceAs(t, []kgo.Opt{kgo.SeedBrokers(addresses...)}, records...)
}

func produceAs(t *testing.T, opts []kgo.Opt, records ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("t"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// serve runs an engine behind an admin address.
func serve(t *testing.T, cfg engine.Config) *service {
	t.Helper()
	s := &service{T: t, events: make(chan engine.Event, 10_000), done: make(chan error, 1)}
	cfg.OnEvent = func(ev engine.Event) { s.events <- ev }
	var err error
	if s.e, err = engine.New(cfg); err != nil {
		t.Fatal(err)
	}
	s.srv = httptest.NewServer(admin.Handler(s.e))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		s.done <- s.e.Run(ctx)
		close(s.done)
	}()
	t.Cleanup(func() {
		s.srv.Close()
		cancel()
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func (s *service) await(n engine.EventName) engine.Event {
	for ev := range s.events {
		if ev.Name == n {
			return ev
		}
	}
	return engine.Event{}
}

func (s *service) get(path string) (int, string) {
	s.Helper()
	return s.do(http.MethodGet, path, nil)
}

func (s *service) post(path string, form url.Values) (int, string) {
	s.Helper()
	return s.do(http.MethodPost, path, form)
}

func (s *service) do(method, path string, form url.Values) (int, string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.srv.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// C9: state is visible from outside, by partition, and a problem is a 503 that says what.
func TestAdmin(t *testing.T) {
	gate, handled := make(chan struct{}), make(chan struct{}, 10)
	s := start(t, func(_ context.Context, r *engine.Record) error {
		if string(r.Value) == "hold" && r.Attempt == 1 {
			select {
			case <-gate:
			default:
				return engine.Hold(io.ErrUnexpectedEOF)
			}
		}
		handled <- struct{}{}
		return nil
	}, nil, "a", "b", "hold", "c")
	if s.await(engine.EventHeld).Offset != 2 {
		t.Error("held elsewhere")
	}
	if code, body := s.get("/readyz"); code != 200 {
		t.Error(code, body)
	}
	if code, body := s.get("/healthz"); code != 503 || !strings.Contains(body, "hold") {
		t.Error(code, body)
	}
	var st engine.Status
	_, body := s.get("/status")
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		t.Fatal(err)
	}
	if p := st.Partitions[0]; len(st.Partitions) != 2 || p.Frontier != 2 || p.LogEnd != 4 || p.Oldest == nil || p.Oldest.Offset != 2 || p.Oldest.State != "held" {
		t.Errorf("%s", body)
	}
	_, body = s.get("/metrics")
	for _, want := range []string{
		`gapless_partition_frontier{group="g",partition="0",topic="t"} 2`, `gapless_healthy{group="g"} 0`, `gapless_records_handled_total{group="g"} 2`,
		`gapless_handler_seconds_count{group="g"} 3`, `gapless_events_total{event="held",group="g"} 1`, `gapless_partition_paused{group="g",partition="0",topic="t"} 1`,
		`gapless_partition_paused{group="g",partition="1",topic="t"} 0`, "gapless_partitions_assigned", "go_goroutines",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	close(gate)
	for _, tc := range []struct {
		path string
		form url.Values
		code int
	}{
		{"/partition/unhold", url.Values{"topic": {"t"}, "partition": {"x"}}, 400},
		{"/partition/unhold", url.Values{"topic": {"t"}, "partition": {"1"}}, 404},
		{"/partition/unhold", url.Values{"topic": {"t"}, "partition": {"0"}}, 200},
		{"/breaker/reset", url.Values{"topic": {"t"}}, 404},
		{"/key/release", url.Values{"topic": {"t"}, "partition": {"0"}, "key": {"k"}}, 404},
		{"/key/release", url.Values{"topic": {"t"}, "partition": {"0"}, "key_base64": {"?"}}, 400},
		{"/workers", url.Values{"total": {"0"}}, 400},
		{"/workers", url.Values{"total": {"7"}, "per_partition": {"3"}}, 200},
	} {
		if code, body := s.post(tc.path, tc.form); code != tc.code {
			t.Errorf("%s %v: %d %s", tc.path, tc.form, code, body)
		}
	}
	for range 4 {
		<-handled
	}
	if code, body := s.post("/commit", nil); code != 200 {
		t.Error(code, body)
	}
	if code, body := s.get("/healthz"); code != 200 {
		t.Error(code, body)
	}
	for _, step := range []struct {
		form url.Values
		code int
		want string // "limit/per partition", then min-max and per partition under Auto
	}{
		{url.Values{"total": {"auto"}}, 200, "7/3 auto 1-512/3"},
		{url.Values{"total": {"auto"}, "per_partition": {"0"}, "min": {"4"}, "max": {"40"}}, 200, "7/7 auto 4-40/0"},
		{url.Values{"max": {"5"}}, 200, "5/5 auto 4-5/0"},
		{url.Values{"max": {"3"}}, 400, "5/5 auto 4-5/0"},
		{url.Values{"total": {"atuo"}}, 400, "5/5 auto 4-5/0"},
		{url.Values{"total": {"9"}, "max": {"30"}}, 400, "5/5 auto 4-5/0"},
		{url.Values{}, 400, "5/5 auto 4-5/0"},
		{url.Values{"total": {"9"}}, 200, "9/9"},
		{url.Values{"total": {"7"}, "per_partition": {"3"}}, 200, "7/3"},
	} {
		code, body := s.post("/workers", step.form)
		w := s.e.Status().Workers
		got := fmt.Sprintf("%d/%d", w.Limit, w.LimitPerPartition)
		if w.Auto != nil {
			got += fmt.Sprintf(" auto %d-%d/%d", w.Auto.Min, w.Auto.Max, w.Auto.PerPartition)
		}
		if code != step.code || got != step.want {
			t.Errorf("POST /workers %v: %d %s; the limits are %s, want %s", step.form, code, body, got, step.want)
		}
	}
	if w := s.e.Status().Workers; w.Limit != 7 || w.LimitPerPartition != 3 {
		t.Errorf("%+v", w)
	}
	if code, _ := s.get("/workers"); code != http.StatusMethodNotAllowed {
		t.Errorf("GET changes something: %d", code)
	}
}

// A page of another origin can't have a browser change anything.
func TestCrossOriginRequestsAreRefused(t *testing.T) {
	s := start(t, func(context.Context, *engine.Record) error { return nil }, nil)
	for _, header := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Origin": {"https://example.com"}}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.srv.URL+"/workers?total=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%v: %s", header, resp.Status)
		}
	}
	if n := s.e.Status().Workers.Limit; n != 64 {
		t.Errorf("the limit is %d now", n)
	}
}
