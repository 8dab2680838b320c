package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gaplesshq/gapless/bench"
	"github.com/spf13/cobra"
)

const goalsLong = `Goals measures the figures that the engine is held to, and prints a line each: goal, value, spread, met or not. They are ratios within
one run wherever one can be had: over the bare franz-go loop, over the same goroutines without an engine, over another setting. All of
it takes about 12 minutes on a quiet machine; on a busy one its figures mean little.

P9 compares with other libraries on a real Kafka; that is measured by a command of its own, because it needs Java and more:

  go run ./bench/peers --json peers.json
  gapless bench goals --peers peers.json

Each line of that file is an object with the fields library, arm (workload/mode, such as noop/unordered), records, seconds,
cpu_ns_per_record and complete. What was not run is not met.

`

const goalsExamples = `  # all of it, kept for docs/benchmarks.md
  gapless bench goals --peers bench/results/peers.json --results bench/results/goals.json
  gapless bench docs --results bench/results/goals.json > docs/benchmarks.md

  # some, longer
  gapless bench goals --only P1,P10 --rounds 7 --duration 2s

  # for scripts: which are missed?
  gapless bench goals --json | jq '.[] | select(.ok | not) | {id, what, goal, value}'`

func (a *app) goalsCommand() *cobra.Command {
	var cfg bench.GoalsConfig
	var asJSON bool
	var results string
	cmd := &cobra.Command{
		Use: "goals", Short: "Measure the figures that the engine is held to", Long: goalsLong + exitCodesHelp, Example: goalsExamples, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cfg.Rounds < 1:
				return usageError("--rounds %d: write 1 or more", cfg.Rounds)
			case cfg.Duration < 10*time.Millisecond:
				return usageError("--duration %v: write 10ms or more", cfg.Duration)
			case cfg.Stuck < 1000:
				return usageError("--stuck-records %d: write 1000 or more", cfg.Stuck)
			case cfg.Idle < 1:
				return usageError("--idle-partitions %d: write 1 or more", cfg.Idle)
			}
			if cfg.Peers != "" {
				if _, err := os.Stat(cfg.Peers); err != nil {
					return usageError("--peers: %w; it is written by: go run ./bench/peers --json %s", err, cfg.Peers)
				}
			}
			p := newBenchProgress(a.err)
			cfg.Progress, cfg.Say = p.tell, p.say
			report, err := bench.Goals(cmd.Context(), cfg)
			p.end()
			if report == nil {
				return usageError("--only: %w", err)
			}
			if asJSON {
				writeJSON(a.out, report.Goals)
			} else {
				err = errors.Join(err, report.WriteTable(a.out))
			}
			if report.Interrupted {
				_, _ = fmt.Fprintln(a.err, "interrupted: what was not measured is not run")
			}
			if results != "" {
				err = errors.Join(err, writeFile(results, report.WriteJSON))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Only, "only", nil, "goals to measure, such as P1,P10; default all")
	f.IntVar(&cfg.Rounds, "rounds", 3, "how often each arm runs; small differences take twice as many")
	f.DurationVar(&cfg.Duration, "duration", time.Second, "how long a run is measured")
	f.StringVar(&cfg.Peers, "peers", "", "`file` that the peers' command wrote, for P9")
	f.Int64Var(&cfg.Stuck, "stuck-records", 10_000_000, "records behind the stuck one of P6")
	f.IntVar(&cfg.Idle, "idle-partitions", 10_000, "idle partitions of P7")
	f.BoolVar(&asJSON, "json", false, "one JSON array on stdout, of objects with id, what, goal, value and ok")
	f.StringVar(&results, "results", "", "write everything to this `file`, for \"gapless bench docs\"")
	words(cmd, "only", bench.GoalIDs()...)
	return cmd
}

func (a *app) benchDocsCommand() *cobra.Command {
	var results string
	cmd := &cobra.Command{
		Use: "docs", Short: "Make docs/benchmarks.md out of the results of gapless bench goals", Args: noArgs,
		Example: "  gapless bench docs --results bench/results/goals.json > docs/benchmarks.md",
		RunE: func(*cobra.Command, []string) error {
			if results == "" {
				return usageError("--results is missing: name a file that \"gapless bench goals --results FILE\" wrote")
			}
			f, err := os.Open(results)
			if err != nil {
				return usageError("--results: %w", err)
			}
			defer func() { _ = f.Close() }()
			report, err := bench.ReadGoals(f)
			if err != nil {
				return usageError("--results %s: %w", results, err)
			}
			return report.WriteDocs(a.out, results)
		},
	}
	cmd.Flags().StringVar(&results, "results", "", "`file` with the results")
	return cmd
}
