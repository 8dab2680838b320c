package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// result is what the run came to.
type result struct {
	Good     bool     `json:"good"`
	Problems []string `json:"problems"` // why it is not good
	Command  string   `json:"command"`
	Seed     uint64   `json:"seed"`
	Ended    string   `json:"ended"`
	Kafka    string   `json:"kafka"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"`

	Seconds    float64 `json:"seconds"`
	Rate       int     `json:"rate"`
	Members    int     `json:"members"`
	Partitions int     `json:"partitions"`
	Counts     counts  `json:"counts"`
	Lag        int64   `json:"lag"`    // in the end
	Worst      float64 `json:"max_ms"` // of all latencies, those during the churn included
	Series     []trend `json:"series"`
	Left       string  `json:"left_out"`
	Events     []event `json:"events"`

	options   options
	samples   []sample
	latencies []latency
}

// judge fills in what follows from what was seen.
func (r *result) judge() {
	o := r.options
	r.Command, r.Seed, r.Ended = o.again(), o.seed, time.Now().UTC().Format(time.RFC3339)
	r.Kafka, r.Go, r.Platform = kafkatest.KafkaVersion, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	r.Seconds, r.Rate, r.Members, r.Partitions = o.duration.Seconds(), o.rate, o.members, o.partitions
	for _, l := range r.latencies {
		r.Worst = max(r.Worst, l.Max)
	}
	r.Left = fmt.Sprintf("the first %v; of member A's own numbers, samples from a broker's restart to %v after it; of the latencies, those from any churn but changed workers to %v after it (after a kill: after the dead member's session)",
		warmUp(o.duration), settling(o.every), settling(o.every))
	c := r.Counts
	wrong := func(is bool, format string, args ...any) {
		if is {
			r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
		}
	}
	wrong(c.Acked < c.Records, "%d of %d records were never acknowledged to the producer", c.Records-c.Acked, c.Records)
	wrong(c.Lost > 0, "%d of %d records were neither handled nor dead-lettered", c.Lost, c.Records)
	wrong(c.Violations > 0, "%d records began before an earlier one of their key was settled", c.Violations)
	wrong(c.Unknown > 0, "handlers got %d records that were never sent, or from another partition", c.Unknown)
	wrong(r.Lag != 0, "the lag did not return to 0: it is %d", r.Lag)
	if len(r.samples) > 0 {
		for _, m := range r.samples[len(r.samples)-1].Members {
			for what, problem := range m.Problems {
				wrong(true, "member %s is unhealthy in the end: %s: %s", m.Life, what, problem)
			}
		}
	}
	r.Series = r.trends()
	for _, t := range r.Series {
		wrong(t.Verdict == grows && t.Control != itself, "%s grows: by %.3g %s an hour (%.1f %% of its median, %.4g)", t.Name, t.AnHour, t.Unit, t.Percent, t.Median)
	}
	r.Good = len(r.Problems) == 0
	if r.Problems == nil {
		r.Problems = []string{}
	}
}

// write leaves summary.json and soak.svg.
func (r *result) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "summary.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return r.plot(filepath.Join(dir, "soak.svg"))
}

func (r *result) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	c := r.Counts
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var errs []error
	row := func(format string, args ...any) {
		_, err := fmt.Fprintf(t, format+"\n", args...)
		errs = append(errs, err)
	}
	row("\nrecords\t%d at %d/s for %v, %d of them twice", c.Records, r.Rate, r.options.duration, c.Copies)
	row("handled\t%d; %d of the copies as well, where the store had no mark; %d once more after a kill or a loss", c.Handled, c.CopiesHandled, c.HandledAgain)
	row("dead-lettered\t%d (%d attempts failed)", c.DeadLettered, c.Failures)
	row("lost\t%d", c.Lost)
	row("order violations\t%d", c.Violations)
	row("lag in the end\t%d", r.Lag)
	counted := map[kind]int{}
	for _, e := range r.Events {
		counted[e.Kind]++
	}
	for _, k := range kinds {
		row("%s\t%d", k, counted[k])
	}
	row("")
	errs = append(errs, t.Flush())
	row("series\tmedian\tslope, an hour\t(95 %%)\tof the median\tsamples\tverdict")
	for _, s := range r.Series {
		if s.Samples == 0 {
			row("%s\t\t\t\t\t\t%s", s.Name, s.Verdict)
			continue
		}
		row("%s\t%s %s\t%+.3g %s\t(%+.3g to %+.3g)\t%+.1f %%\t%d\t%s", s.Name, figure(s.Median), s.Unit, s.AnHour, s.Unit, s.Low, s.High, s.Percent, s.Samples, s.Verdict)
	}
	errs = append(errs, t.Flush())
	row("\nLeft out: %s.", r.Left)
	row("Flat: over the measured time the slope comes to no more than %.0f %% of the median (times: %.0f %%), or can't be told from 0.", 100*ofMemory, 100*ofLatency)
	row("Again: %s", r.Command)
	row("Written to %s", r.options.out)
	for _, p := range r.Problems {
		row("WRONG: %s", p)
	}
	if r.Good {
		row("good: %s", r.state())
	}
	return errors.Join(append(errs, t.Flush())...)
}

// state is the result in a few words.
func (r *result) state() string {
	if !r.Good {
		return r.Problems[0]
	}
	for _, t := range r.Series {
		if t.Verdict == tooShort || t.Verdict == tooFew {
			return "nothing lost, in order, lag 0; too short to say what grows"
		}
	}
	for _, t := range r.Series {
		if t.Verdict == growsWith {
			return "nothing lost, in order, lag 0; the machine got slower, and nothing else grows"
		}
	}
	return "nothing lost, in order, lag 0, nothing grows"
}

// figure is a number to three or four figures.
func figure(v float64) string {
	switch {
	case math.Abs(v) >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
