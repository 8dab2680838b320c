package admin

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/engine"
)

// forgetTimeout bounds the wait for a store that can't write.
const forgetTimeout = 30 * time.Second

// dedupeRoutes serves the store of a running engine.
func dedupeRoutes(mux *http.ServeMux, e *engine.Engine) {
	d := storeRoutes{e}
	mux.HandleFunc("GET /dedupe/stats", d.with(func(w http.ResponseWriter, _ *http.Request, s *dedupe.Store) error {
		st := StatsOf(s, e.DedupeRetention())
		st.Process = e.Status().Dedupe
		answer(w, true, st)
		return nil
	}))
	mux.HandleFunc("GET /dedupe/key", d.with(func(w http.ResponseWriter, r *http.Request, s *dedupe.Store) error {
		scope, keys, err := d.keys(r)
		if err != nil {
			return err
		}
		if len(keys) != 1 {
			return badRequest{errors.New("key: give one as key=K, key_hex=H or key_base64=B")}
		}
		k, err := LookUp(s, scope, keys[0])
		if err == nil {
			answer(w, true, k)
		}
		return err
	}))
	mux.HandleFunc("POST /dedupe/forget", d.with(func(w http.ResponseWriter, r *http.Request, s *dedupe.Store) error {
		scope, keys, err := d.keys(r)
		if err != nil {
			return err
		}
		if all := r.FormValue("all") == "true"; all == (len(keys) > 0) {
			return badRequest{errors.New("key: give keys as key=K, key_hex=H or key_base64=B, or all=true for the whole scope")}
		}
		ctx, cancel := context.WithTimeout(r.Context(), forgetTimeout)
		defer cancel()
		f, err := Forget(ctx, s, scope, keys)
		if err == nil {
			answer(w, true, f)
		}
		return err
	}))
	mux.HandleFunc("POST /dedupe/verify", d.with(d.verify))
	mux.HandleFunc("POST /dedupe/compact", d.with(func(w http.ResponseWriter, r *http.Request, s *dedupe.Store) error {
		c, err := Compact(r.Context(), s)
		if err == nil {
			answer(w, true, c)
		}
		return err
	}))
}

type storeRoutes struct{ e *engine.Engine }

// badRequest is an error of who asks.
type badRequest struct{ error }

func (d storeRoutes) with(h func(w http.ResponseWriter, r *http.Request, s *dedupe.Store) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := d.e.Store()
		if s == nil {
			done(w, false, "this process has no dedupe store open")
			return
		}
		err := h(w, r, s)
		var bad badRequest
		switch {
		case err == nil:
		case errors.As(err, &bad):
			refuse(w, err)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, err)
		}
	}
}

// keys reads a scope and keys. The group may be given to be sure of whose process this is.
func (d storeRoutes) keys(r *http.Request) (scope string, keys [][]byte, err error) {
	if err := r.ParseForm(); err != nil {
		return "", nil, badRequest{err}
	}
	group := d.e.Status().Group
	if g := r.Form.Get("group"); g != "" && g != group {
		return "", nil, badRequest{fmt.Errorf("group: this process is of group %q, not %q", group, g)}
	}
	topic, named := r.Form.Get("topic"), d.e.DedupeScope("")
	switch scope = r.Form.Get("scope"); {
	case scope != "" && topic != "":
		return "", nil, badRequest{errors.New("scope: give scope=S or topic=T, not both")}
	case scope != "":
	case named != engine.DedupeScope(group, ""): // its topics share it
		scope = named
	case topic == "":
		return "", nil, badRequest{errors.New("topic: give topic=T, or scope=S")}
	default:
		scope = d.e.DedupeScope(topic)
	}
	keys, err = formKeys(r.Form)
	return scope, keys, err
}

func formKeys(form url.Values) (keys [][]byte, err error) {
	for name, decode := range map[string]func(string) ([]byte, error){
		"key": func(s string) ([]byte, error) { return []byte(s), nil }, "key_hex": hex.DecodeString, "key_base64": base64.StdEncoding.DecodeString,
	} {
		for _, text := range form[name] {
			key, err := decode(text)
			if err == nil && len(key) == 0 {
				err = errors.New("an empty key is never marked")
			}
			if err != nil {
				return nil, badRequest{fmt.Errorf("%s: %w", name, err)}
			}
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// verify answers in lines of JSON, as it gets on: many {"done","total"}, and at the end {"result"} or {"error"}.
func (storeRoutes) verify(w http.ResponseWriter, r *http.Request, s *dedupe.Store) error {
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc, flush := json.NewEncoder(w), http.NewResponseController(w)
	said := time.Now()
	v, err := Verify(r.Context(), s, func(p VerifyProgress) {
		if now := time.Now(); now.Sub(said) >= 100*time.Millisecond || p.Done == p.Total {
			said = now
			_ = enc.Encode(p)
			_ = flush.Flush()
		}
	})
	last := VerifyEnd{Result: &v}
	if err != nil {
		last = VerifyEnd{Error: err.Error()}
	}
	_ = enc.Encode(last)
	return nil
}

// VerifyEnd is the last line of POST /dedupe/verify.
type VerifyEnd struct {
	Result *Verified `json:"result,omitempty"`
	Error  string    `json:"error,omitempty"`
}
