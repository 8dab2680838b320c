// Command tuning plays the workloads that the tuner of Workers: Auto is judged by, in virtual time, beside every static count, prints
// the table of docs/tuning.md and draws its pictures. It needs neither a broker nor time: the same seed gives the same result.
//
//	go run ./integration/tuning --out docs/tuning
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gaplesshq/gapless/internal/tunesim"
	"github.com/gaplesshq/gapless/workers/tuning"
	"github.com/spf13/cobra"
)

// options are the flags.
type options struct {
	out  string
	seed uint64
	more int
}

func main() {
	var o options
	c := &cobra.Command{
		Use:   "tuning",
		Short: "Compare the tuner with static worker counts, in a simulation",
		Args:  cobra.NoArgs, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	f := c.Flags()
	f.StringVar(&o.out, "out", ".", "directory for the pictures")
	f.Uint64Var(&o.seed, "seed", 1, "of the run that is drawn; the table looks at --seeds of them from there on")
	f.IntVar(&o.more, "seeds", 10, "runs for the table")
	if err := c.Execute(); err != nil {
		os.Exit(1)
	}
}

func (o *options) run() error {
	if o.more < 1 {
		return fmt.Errorf("--seeds: %d runs are none", o.more)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	fmt.Println("| workload | best static count | does | Auto does, of that: worst and median of " + fmt.Sprint(o.more) + " runs | with |")
	fmt.Println("|---|---|---|---|---|")
	for _, w := range append(tunesim.Workloads(), tunesim.Hard()...) {
		r := o.compare(&w)
		fmt.Println(r.row())
		if err := r.draw(filepath.Join(o.out, fileName(w.Name))); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	return nil
}

// fileName is the picture of a workload.
func fileName(workload string) string {
	return strings.ReplaceAll(strings.ToLower(workload), " ", "-") + ".svg"
}

// result is a workload under the tuner and under the best static count.
type result struct {
	*tunesim.Workload
	best       int
	rate       float64 // of the best, from Workload.From on
	static     tunesim.Run
	auto       tunesim.Run // of the first seed
	shares     []float64   // of rate, by seed
	least, top int         // settled on in the end
}

func (o *options) compare(w *tunesim.Workload) *result {
	r := &result{Workload: w, least: w.Max}
	r.best, r.rate, r.static = tunesim.Best(w.Load, w.Seconds, w.From, o.seed, w.Statics(1.125)...)
	for i := range o.more {
		seed := o.seed + uint64(i)
		run := tunesim.Play(w.Load, w.Seconds, seed, tuning.New(tuning.Options{Min: 1, Max: w.Max, Start: 4, Seed: seed}))[0]
		if i == 0 {
			r.auto = run
		}
		r.shares = append(r.shares, run.Rate(w.From, w.Seconds)/r.rate)
		last := run[len(run)-1].Settled
		r.least, r.top = min(r.least, last), max(r.top, last)
	}
	return r
}
