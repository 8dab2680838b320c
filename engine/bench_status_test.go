package engine_test

import (
	"testing"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// BenchmarkStatus: a status and a scrape ten times a second cost the hot path nothing. (goal: within the spread of without)
func BenchmarkStatus(b *testing.B) {
	engine.BenchStatus(b, func(e *engine.Engine) {
		_ = e.Status()
		reg := prometheus.NewRegistry()
		reg.MustRegister(metrics.New(e))
		if _, err := reg.Gather(); err != nil {
			b.Error(err)
		}
	})
}
