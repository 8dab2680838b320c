package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Goal is a figure that the engine is held to, as a ratio within one run wherever one can be had.
type Goal struct {
	ID      string `json:"id"`   // P1 ... P14
	What    string `json:"what"` // is measured
	Goal    string `json:"goal"` // that it is to be
	Value   string `json:"value"`
	OK      bool   `json:"ok"`
	Spread  string `json:"spread,omitempty"` // least and most of the rounds
	Command string `json:"command"`          // that measures it again
}

// notRun is the value of a goal that was not measured.
const notRun = "not run"

// GoalsConfig says which goals to measure, and how long.
type GoalsConfig struct {
	// Only are the goals to measure, such as "P1". Default all.
	Only []string
	// Rounds is how often each arm runs. Default 3; what is compared by small differences runs twice as often.
	Rounds int
	// Duration is how long a run is measured. Default 1 s.
	Duration time.Duration
	// Peers is a file that the peers' command wrote (see ReadPeers), for P9. Default none: P9 is not run.
	Peers string
	// Stuck is how many records are handled behind the stuck one of P6. Default 10 million.
	Stuck int64
	// Idle is how many idle partitions P7 has. Default 10,000.
	Idle int

	// Progress and Say, if set, are told how far it is.
	Progress func(Progress)
	Say      func(text string)

	until int64 // ends a run after so many records instead, for tests
}

// part is what measures some goals together, because they share runs.
type part struct {
	ids  []string
	what string
	run  func(g *goals, ctx context.Context) error
}

var parts = []part{
	{[]string{"P1", "P10", "P11"}, "a handler that does nothing", (*goals).overhead},
	{[]string{"P2"}, "handlers that sleep", (*goals).sleepers},
	{[]string{"P4"}, "layers of deduplication", (*goals).dedupe},
	{[]string{"P5"}, "the tracker", (*goals).tracker},
	{[]string{"P6"}, "a stuck record", (*goals).stuck},
	{[]string{"P7"}, "idle partitions", (*goals).idle},
	{[]string{"P8"}, "a revoke", (*goals).revoke},
	{[]string{"P9"}, "the peers", (*goals).peers},
	{[]string{"P12"}, "latency at half load", (*goals).latency},
	{[]string{"P13"}, "growth", (*goals).growth},
	{[]string{"P14"}, "two members", (*goals).members},
}

// GoalIDs are the ids of all goals, in their order.
func GoalIDs() (ids []string) {
	for _, p := range parts {
		ids = append(ids, p.ids...)
	}
	slices.SortFunc(ids, byNumber)
	return ids
}

func byNumber(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// goals is a Goals at work.
type goals struct {
	cfg  GoalsConfig
	done []Goal
}

// Goals measures the goals, and returns a line for each figure. What could not be measured, or was not because ctx ended, is there as
// not run, which is not met; an error says why.
func Goals(ctx context.Context, cfg GoalsConfig) (*GoalReport, error) {
	orDefault(&cfg.Rounds, 3)
	orDefault(&cfg.Duration, time.Second)
	orDefault(&cfg.Stuck, 10_000_000)
	orDefault(&cfg.Idle, 10_000)
	for _, id := range cfg.Only {
		if !slices.Contains(GoalIDs(), id) {
			return nil, fmt.Errorf("there is no goal %q: write some of %s", id, strings.Join(GoalIDs(), ", "))
		}
	}
	report := &GoalReport{Machine: ThisMachine(), Began: time.Now(), Rounds: cfg.Rounds, Seconds: cfg.Duration.Seconds()}
	g := &goals{cfg: cfg}
	var errs []error
	for _, p := range parts {
		if len(cfg.Only) > 0 && !slices.ContainsFunc(p.ids, func(id string) bool { return slices.Contains(cfg.Only, id) }) {
			continue
		}
		var err error
		if ctx.Err() == nil {
			g.say("%s: %s", strings.Join(p.ids, ", "), p.what)
			err = p.run(g, ctx)
		}
		if err != nil && ctx.Err() == nil {
			errs = append(errs, fmt.Errorf("%s: %w", strings.Join(p.ids, ", "), err))
		}
		for _, id := range p.ids {
			if !slices.ContainsFunc(g.done, func(d Goal) bool { return d.ID == id }) {
				g.add(Goal{ID: id, What: p.what, Value: notRun})
			}
		}
	}
	for _, d := range g.done {
		if len(cfg.Only) == 0 || slices.Contains(cfg.Only, d.ID) {
			report.Goals = append(report.Goals, d)
		}
	}
	slices.SortStableFunc(report.Goals, func(a, b Goal) int { return byNumber(a.ID, b.ID) })
	report.Took = time.Since(report.Began).Seconds()
	report.Interrupted = ctx.Err() != nil
	return report, errors.Join(errs...)
}

func (g *goals) say(format string, args ...any) {
	if g.cfg.Say != nil {
		g.cfg.Say(fmt.Sprintf(format, args...))
	}
}

func (g *goals) add(d Goal) {
	if d.Command == "" {
		d.Command = "gapless bench goals --only " + d.ID
		if d.ID == "P9" {
			d.Command = "go run ./bench/peers --json peers.json, then gapless bench goals --only P9 --peers peers.json"
		}
	}
	g.done = append(g.done, d)
}

// measure runs cases for a goal. An interrupted run is an error: half of a comparison is none.
func (g *goals) measure(ctx context.Context, cfg Config) (*Report, error) {
	orDefault(&cfg.Rounds, g.cfg.Rounds)
	orDefault(&cfg.Duration, g.cfg.Duration)
	cfg.Progress, cfg.Say = g.cfg.Progress, g.cfg.Say
	orDefault(&cfg.until, g.cfg.until)
	r, err := Run(ctx, cfg)
	if err == nil && r.Interrupted {
		err = context.Canceled
	}
	return r, err
}

// caseOf is the default case with some parameters set, for goals: those are written here, and can't be wrong.
func caseOf(pairs ...string) Case {
	c := DefaultCase()
	for i := 0; i+1 < len(pairs); i += 2 {
		if err := c.Set(pairs[i], pairs[i+1]); err != nil {
			panic(err)
		}
	}
	return c
}

// ratio compares a figure of two arms, round by round.
func (r *Report) ratio(a Arm, c Case, b Arm, d Case, of func(*Measurement) float64) Spread {
	return r.pair(a, c, b, d, of, func(x, y float64) float64 { return x / y })
}

// over is what the engine has of a figure beyond the bare loop, round by round.
func (r *Report) over(c Case, of func(*Measurement) float64) Spread {
	return r.pair(ArmEngine, c, ArmBare, c, of, func(x, y float64) float64 { return x - y })
}

func (r *Report) pair(a Arm, c Case, b Arm, d Case, of func(*Measurement) float64, op func(x, y float64) float64) Spread {
	x, y := r.find(a, c), r.find(b, d)
	if x == nil || y == nil {
		return Spread{}
	}
	var all []float64
	for i := range min(len(x.Runs), len(y.Runs)) {
		if v := op(of(&x.Runs[i]), of(&y.Runs[i])); !math.IsNaN(v) && !math.IsInf(v, 0) { // a control that did nothing is none
			all = append(all, v)
		}
	}
	return spreadOf(all)
}

func rateOf(m *Measurement) float64 { return m.Rate }
func cpuOf(m *Measurement) float64  { return m.CPUPerRecord }

// atLeast is a goal that the median must reach.
func (g *goals) atLeast(id, what string, least float64, s Spread) {
	g.judge(id, what, fmt.Sprintf(">= %s", ratio(least)), s, s.Median >= least, ratio)
}

// atMost is a goal that the median must not pass.
func (g *goals) atMost(id, what string, most float64, s Spread, show func(float64) string) {
	g.judge(id, what, "<= "+show(most), s, s.Median <= most, show)
}

func (g *goals) judge(id, what, goal string, s Spread, ok bool, show func(float64) string) {
	d := Goal{ID: id, What: what, Goal: goal, Value: notRun}
	if s.Rounds > 0 {
		d.Value, d.OK = show(s.Median), ok
		if s.Rounds > 1 {
			d.Spread = show(s.Least) + " to " + show(s.Most)
		}
	}
	g.add(d)
}

func ratio(x float64) string { return fmt.Sprintf("%.3g", x) }
func ns(x float64) string    { return fmt.Sprintf("%+.0f ns", x) }
func msec(x float64) string  { return fmt.Sprintf("%.2f ms", x) }
func mb(x float64) string    { return fmt.Sprintf("%.0f MB", x/1e6) }

// GoalReport is what Goals measured.
type GoalReport struct {
	Machine     Machine   `json:"machine"`
	Began       time.Time `json:"began"`
	Took        float64   `json:"took_seconds"`
	Rounds      int       `json:"rounds"`
	Seconds     float64   `json:"seconds"` // of a run
	Interrupted bool      `json:"interrupted,omitempty"`
	Goals       []Goal    `json:"goals"`
}

// Met says how many are met.
func (r *GoalReport) Met() (n int) {
	for _, d := range r.Goals {
		if d.OK {
			n++
		}
	}
	return n
}

// WriteTable writes a line for each goal.
func (r *GoalReport) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d rounds of %s and more; %s in all\n\n", r.Machine, r.Rounds, seconds(r.Seconds), seconds(r.Took))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\twhat\tgoal\tvalue\tspread\t")
	for _, d := range r.Goals {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", d.ID, d.What, d.Goal, d.Value, d.Spread, d.word())
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\n%d of %d met\n", r.Met(), len(r.Goals))
	_, err := io.WriteString(w, b.String())
	return err
}

func (d Goal) word() string {
	switch {
	case d.OK:
		return "met"
	case d.Value == notRun:
		return notRun
	}
	return "MISSED"
}
