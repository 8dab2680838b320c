package admin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/admin"
)

func parsed[T any](s *service, code int, body string) (v T) {
	s.Helper()
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != http.StatusOK {
		s.Fatalf("%d %s: %v", code, body, err)
	}
	return v
}

// The store of a running engine: what is in it, and what it is to forget.
func TestDedupeStore(t *testing.T) {
	handled := make(chan string, 10)
	s := start(t, func(_ context.Context, r *engine.Record) error { handled <- string(r.Value); return nil }, func(c *engine.Config) {
		c.Dedupe.Dir, c.Dedupe.Key = t.TempDir(), engine.RecordKey
	}, "v", "v")
	<-handled
	settled := func(n int64) func() bool {
		return func() bool { return s.e.Status().Dedupe.Hits == n }
	}
	s.eventually(settled(1))

	code, body := s.get("/dedupe/stats")
	if st := parsed[admin.StoreStats](s, code, body); st.Keys != 1 || st.Process.Hits != 1 || st.RetentionSeconds != 86400 || len(st.ID) != 32 || st.Buckets != 1 {
		t.Errorf("%s", body)
	}
	code, body = s.get("/dedupe/key?topic=t&group=g&key_base64=aw==")
	if k := parsed[admin.StoreKey](s, code, body); !k.Marked || k.Key != "k" || k.Scope != "g\x00t" || k.ExpiresIn < 86300 || len(k.Fingerprint) != 10 {
		t.Errorf("%s", body)
	}
	code, body = s.get("/dedupe/key?scope=other&key=k")
	if k := parsed[admin.StoreKey](s, code, body); k.Marked {
		t.Errorf("%s", body)
	}
	code, body = s.post("/dedupe/forget", url.Values{"topic": {"t"}, "key": {"k", "unknown"}, "key_hex": {"ff"}})
	if f := parsed[admin.Forgotten](s, code, body); f.Keys != 3 || f.Known != 1 || f.All {
		t.Errorf("%s", body)
	}
	code, body = s.get("/dedupe/key?topic=t&key=k")
	if k := parsed[admin.StoreKey](s, code, body); k.Marked {
		t.Errorf("%s", body)
	}
	code, body = s.post("/dedupe/forget", url.Values{"topic": {"t"}, "all": {"true"}})
	if f := parsed[admin.Forgotten](s, code, body); !f.All {
		t.Errorf("%s", body)
	}
	code, body = s.post("/dedupe/compact", nil)
	if c := parsed[admin.Compacted](s, code, body); c.After <= 0 {
		t.Errorf("%s", body)
	}
	code, body = s.post("/dedupe/verify", nil)
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if v := parsed[admin.VerifyEnd](s, code, lines[len(lines)-1]); len(lines) < 2 || v.Result == nil || !v.Result.OK || v.Result.Rows == 0 {
		t.Errorf("%s", body)
	}

	for path, want := range map[string]string{
		"/dedupe/key?topic=t":                     "key: give one",
		"/dedupe/key?key=k":                       "topic: give",
		"/dedupe/key?topic=t&key=a&key=b":         "key: give one",
		"/dedupe/key?topic=t&key=":                "empty key",
		"/dedupe/key?topic=t&key_hex=x":           "key_hex",
		"/dedupe/key?topic=t&scope=s&key=k":       "not both",
		"/dedupe/key?topic=t&key=k&group=another": `of group "g"`,
	} {
		if code, body := s.get(path); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, form := range []url.Values{{"topic": {"t"}}, {"topic": {"t"}, "key": {"k"}, "all": {"true"}}, {"topic": {"t"}, "all": {"yes"}}} {
		if code, body := s.post("/dedupe/forget", form); code != http.StatusBadRequest || !strings.Contains(body, "all=true") {
			t.Errorf("%v: %d %s", form, code, body)
		}
	}
	for _, path := range []string{"/dedupe/forget", "/dedupe/verify", "/dedupe/compact"} {
		if code, _ := s.get(path); code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, code)
		}
	}
}

func (s *service) eventually(ok func() bool) {
	s.Helper()
	for !ok() {
		select {
		case <-s.Context().Done():
			s.Fatal("not in time")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestNoDedupeStore(t *testing.T) {
	s := start(t, func(context.Context, *engine.Record) error { return nil }, nil)
	s.await(engine.EventAssigned)
	if code, body := s.get("/dedupe/stats"); code != http.StatusNotFound || !strings.Contains(body, "no dedupe store") {
		t.Error(code, body)
	}
}

// A scope that topics share needs no topic.
func TestDedupeNamedScope(t *testing.T) {
	s := start(t, func(context.Context, *engine.Record) error { return nil }, func(c *engine.Config) {
		c.Dedupe.Dir, c.Dedupe.Key, c.Dedupe.Scope = t.TempDir(), engine.RecordKey, "orders"
	}, "v")
	s.eventually(func() bool { d := s.e.Status().Dedupe; return d != nil && d.Keys == 1 })
	code, body := s.get("/dedupe/key?key=k")
	if k := parsed[admin.StoreKey](s, code, body); !k.Marked || k.Scope != "orders" {
		t.Errorf("%s", body)
	}
}
