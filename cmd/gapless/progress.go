package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/pflag"
)

// watchEvery is how often the command looks at the engine; a look costs the hot path nothing.
const watchEvery = 50 * time.Millisecond

// progressFlags say how "gapless run" tells how it is getting on: a live line on a terminal, plain lines elsewhere, JSON for
// machines.
type progressFlags struct {
	json  bool
	every time.Duration
}

func (p *progressFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&p.json, "json", false, "progress, summary and log on stderr as JSON lines")
	flags.DurationVar(&p.every, "progress-every", -1, "time between two looks; 0 = no progress")
	flags.Lookup("progress-every").DefValue = "1s on a terminal and with --json, else 10s"
	section(flags, secOutput, "json", "progress-every")
}

// watch follows a running engine.
type watch struct {
	e       *engine.Engine
	console *console
	json    bool
	live    bool
	every   time.Duration

	began, lastAt time.Time
	lastHandled   int64
}

func newWatch(r *runner, e *engine.Engine) *watch {
	w := &watch{e: e, console: r.console, json: r.progress.json, every: r.progress.every, began: time.Now(), lastAt: time.Now()}
	// Records that scroll over the same terminal would tear a live line.
	w.live = r.console.live && !w.json && (r.sinkFlags.name != "print" || !isTerminal(r.out))
	if w.every < 0 {
		w.every = 10 * time.Second
		if w.live || w.json {
			w.every = time.Second
		}
	}
	return w
}

// progress is one look at the engine.
type progress struct {
	Event        string            `json:"event"`
	Seconds      float64           `json:"seconds"`
	Handled      int64             `json:"handled"`
	Rate         float64           `json:"rate"` // handled a second, since the last look; in the summary: in all
	Failures     int64             `json:"failures"`
	Retries      int64             `json:"retries"`
	DeadLettered int64             `json:"dead_lettered"`
	Skipped      int64             `json:"skipped"`
	Duplicates   int64             `json:"duplicates"`  // settled without their work: their business key was handled before
	Redelivered  int64             `json:"redelivered"` // the same, because an earlier owner had settled them
	Lag          int64             `json:"lag"`
	InFlight     int               `json:"in_flight"`
	Waiting      int               `json:"waiting"`
	Parked       int               `json:"parked"`
	Partitions   int               `json:"partitions"`
	Healthy      bool              `json:"healthy"`
	Problems     map[string]string `json:"problems,omitempty"`
}

// look prints the progress when it is time to, and says whether everything that is assigned here is consumed.
func (w *watch) look(now time.Time) (atEnd bool) {
	s := w.e.Status()
	if w.every > 0 && now.Sub(w.lastAt) >= w.every {
		w.print(w.measure(s, now))
		w.lastAt, w.lastHandled = now, s.Counts.Handled
	}
	if !s.Ready || len(s.Partitions) == 0 {
		return false
	}
	for _, p := range s.Partitions {
		if p.Phase != "active" || p.LogEnd < 0 || p.Frontier < p.LogEnd {
			return false
		}
	}
	return true
}

func (w *watch) measure(s engine.Status, now time.Time) progress {
	p := progress{
		Event: "progress", Seconds: round(now.Sub(w.began).Seconds()), Handled: s.Counts.Handled, Failures: s.Counts.Failures, Retries: s.Counts.Retries,
		DeadLettered: s.Counts.DeadLettered, Skipped: s.Counts.Skipped, Partitions: len(s.Partitions), Healthy: s.Healthy, Problems: s.Problems,
	}
	p.Redelivered = s.Counts.Redelivered
	if s.Dedupe != nil {
		p.Duplicates = s.Dedupe.Hits
	}
	if took := now.Sub(w.lastAt).Seconds(); took > 0 {
		p.Rate = round(float64(p.Handled-w.lastHandled) / took)
	}
	for _, part := range s.Partitions {
		p.Lag += part.Lag
		p.InFlight += part.InFlight
		p.Waiting += part.Waiting
		p.Parked += part.Parked
	}
	return p
}

func isReady(e *engine.Engine) bool {
	select {
	case <-e.Ready():
		return true
	default:
		return false
	}
}

func (w *watch) print(p progress) {
	switch {
	case w.json:
		writeJSON(w.console, p)
	case w.live:
		w.console.setLine(p.within(w.console.width()))
	default:
		_, _ = fmt.Fprintln(w.console, p)
	}
}

// sayStopping tells who interrupted what is waited for, where it is anything.
func (w *watch) sayStopping() {
	s := w.e.Status()
	if w.json {
		p := w.measure(s, time.Now())
		p.Event = "stopping"
		writeJSON(w.console, p)
	} else if n := s.Workers.Running; n > 0 {
		_, _ = fmt.Fprintf(w.console, "stopping: %s running; interrupt again to abandon that work\n", handlers(n))
	}
}

// finish removes the live line, and sums up.
func (w *watch) finish() {
	if w.live && w.every > 0 {
		w.console.setLine("")
	}
	s := w.e.Status()
	if !isReady(w.e) { // it failed at start: there is nothing to sum up
		return
	}
	w.lastAt, w.lastHandled = w.began, 0
	p := w.measure(s, time.Now())
	p.Event = "summary"
	if w.json {
		writeJSON(w.console, p)
		return
	}
	_, _ = fmt.Fprintf(w.console, "handled %s in %.1f s (%s/s)%s\n", count(p.Handled), p.Seconds, count(int64(p.Rate)), p.failures())
}

// String is the line for people.
func (p progress) String() string { return strings.Join(p.parts(), "") }

// within is the line without the parts at its end that do not fit: half a number would be a wrong one.
func (p progress) within(width int) string {
	s := ""
	for _, part := range p.parts() {
		if s != "" && len(s)+len(part) >= width {
			break
		}
		s += part
	}
	return s
}

// parts are what the line is made of; what matters most comes first, since a narrow terminal has no room for the rest.
func (p progress) parts() []string {
	parts := []string{fmt.Sprintf("%5.0f s", p.Seconds)}
	if !p.Healthy {
		parts = append(parts, fmt.Sprintf("  UNHEALTHY (%d)", len(p.Problems)))
	}
	parts = append(parts, p.failureParts()...)
	parts = append(parts, fmt.Sprintf("  handled %s (%s/s)", count(p.Handled), count(int64(p.Rate))), "  lag "+count(p.Lag),
		"  in flight "+count(int64(p.InFlight)), "  waiting "+count(int64(p.Waiting)))
	if p.Parked > 0 {
		parts = append(parts, "  parked "+count(int64(p.Parked)))
	}
	return append(parts, fmt.Sprintf("  partitions %d", p.Partitions))
}

func (p progress) failures() string { return strings.Join(p.failureParts(), "") }

func (p progress) failureParts() (parts []string) {
	for _, f := range []struct {
		name string
		n    int64
	}{{"failed attempts", p.Failures}, {"dead-lettered", p.DeadLettered}, {"skipped", p.Skipped}, {"duplicates", p.Duplicates}} {
		if f.n > 0 {
			parts = append(parts, fmt.Sprintf("  %s %s", f.name, count(f.n)))
		}
	}
	return parts
}

func handlers(n int) string {
	if n == 1 {
		return "1 handler is"
	}
	return count(int64(n)) + " handlers are"
}

func round(x float64) float64 { return float64(int64(x*10+0.5)) / 10 }

func writeJSON(w io.Writer, v any) {
	b, err := json.Marshal(v)
	if err != nil { // not seen: all of v's types have a form in JSON
		b = fmt.Appendf(nil, `{"error":%q}`, err)
	}
	_, _ = w.Write(append(b, '\n'))
}
