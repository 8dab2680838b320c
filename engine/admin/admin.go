// Package admin serves an engine's state and its few operations over HTTP, for probes, for Prometheus and for people at 3 a.m.
package admin

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves
//
//	GET  /metrics              Prometheus
//	GET  /healthz              200, or 503 with what is wrong: a stuck handler, a stalled partition, an open breaker, ...
//	GET  /readyz               200 once the engine consumes; a member without partitions is ready
//	GET  /status               the snapshot as JSON
//	POST /breaker/reset        topic=T: closes the breaker of a topic
//	POST /key/release          topic=T partition=P key=K (or key_base64=K): lets a held key go on
//	POST /partition/unhold     topic=T partition=P: tries a record again that holds its partition
//	POST /workers              total=N|auto [per_partition=M] [min=L] [max=H]: changes the limits, ends or takes up Auto, changes its bounds
//	POST /commit               commits what is settled now
//	GET  /dedupe/stats         the dedupe store in figures
//	GET  /dedupe/key           topic=T (or scope=S) key=K (or key_hex=H, key_base64=B): when it was marked, and when that expires
//	POST /dedupe/forget        topic=T (or scope=S), and any number of keys, or all=true: they are handled again if they come again
//	POST /dedupe/verify        reads all of the store; lines of JSON, the last one with the result
//	POST /dedupe/compact       brings the store to its smallest size
//
// It has no access control: bind it to an address that only operators reach. What a browser sends for a page of another origin is refused
// where it would change something.
func Handler(e *engine.Engine) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(metrics.New(e), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		ok, problems := e.Healthy()
		answer(w, ok, map[string]any{"healthy": ok, "problems": problems})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready := e.Status().Ready
		answer(w, ready, map[string]any{"ready": ready})
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, true, e.Status()) })
	mux.HandleFunc("POST /breaker/reset", func(w http.ResponseWriter, r *http.Request) {
		topic := r.FormValue("topic")
		done(w, e.ResetBreaker(topic), fmt.Sprintf("the breaker of topic %q is not open", topic))
	})
	mux.HandleFunc("POST /key/release", func(w http.ResponseWriter, r *http.Request) {
		p, err := partition(r)
		if err != nil {
			refuse(w, err)
			return
		}
		if !r.Form.Has("key") && !r.Form.Has("key_base64") { // an empty key is a key, so it is not to be guessed
			refuse(w, errors.New("key: give key=K or key_base64=K; /status names it (oldest.key, in base64 where oldest.key_encoding says so)"))
			return
		}
		key := []byte(r.FormValue("key"))
		if b := r.FormValue("key_base64"); b != "" {
			if key, err = base64.StdEncoding.DecodeString(b); err != nil {
				refuse(w, fmt.Errorf("key_base64: %w", err))
				return
			}
		}
		done(w, e.ReleaseKey(r.FormValue("topic"), p, key), "no such key is held in a partition that is assigned here")
	})
	mux.HandleFunc("POST /partition/unhold", func(w http.ResponseWriter, r *http.Request) {
		p, err := partition(r)
		if err != nil {
			refuse(w, err)
			return
		}
		done(w, e.Unhold(r.FormValue("topic"), p), "no record holds that partition here")
	})
	mux.HandleFunc("POST /workers", func(w http.ResponseWriter, r *http.Request) {
		if err := setWorkers(e, r); err != nil {
			refuse(w, err)
			return
		}
		done(w, true, "")
	})
	mux.HandleFunc("POST /commit", func(w http.ResponseWriter, r *http.Request) {
		if err := e.Commit(r.Context()); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, err)
			return
		}
		done(w, true, "")
	})
	dedupeRoutes(mux, e)
	return http.NewCrossOriginProtection().Handler(mux)
}

func partition(r *http.Request) (int32, error) {
	p, err := strconv.ParseInt(r.FormValue("partition"), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("partition: %w", err)
	}
	return int32(p), nil
}

func answer(w http.ResponseWriter, ok bool, v any) {
	w.Header().Set("Content-Type", "application/json")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}

func done(w http.ResponseWriter, ok bool, problem string) {
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintln(w, problem)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

func refuse(w http.ResponseWriter, err error) {
	w.WriteHeader(http.StatusBadRequest)
	_, _ = fmt.Fprintln(w, err)
}
