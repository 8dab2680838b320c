package bench

import (
	"context"
	"strings"
)

// TB is what Sweep needs of a *testing.T or *testing.B.
type TB interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Sweep measures a handler of your own from a Go test, logs the table and which worker count to use, and returns the report: see the
// example. Cases that are left out are worker counts from 1 to 1,024 with the engine's defaults. It fails the test if the measuring
// does, never for what was measured.
func Sweep(t TB, cfg Config) *Report {
	t.Helper()
	if len(cfg.Cases) == 0 {
		cases, err := Grid(DefaultCase(), map[string]string{"workers": "1,4,16,64,256,1024"})
		if err != nil {
			t.Fatalf("%v", err)
			return nil
		}
		cfg.Cases = cases
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("measure: %v", err)
		return nil
	}
	var b strings.Builder
	_ = r.WriteTable(&b) // a Builder takes everything
	b.WriteString("\n")
	_ = r.WriteRecommendations(&b, 0)
	t.Logf("\n%s", strings.TrimRight(b.String(), "\n"))
	return r
}
