package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gaplesshq/gapless/bench/peers/internal/catalogue"
)

// options are the flags.
type options struct {
	sizes     catalogue.Sizes
	repeats   int
	libraries []string
	workloads []string
	limit     time.Duration
	json      string
	list      bool
}

// usageError is a wrong flag.
type usageError struct{ error }

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "peers",
		Short: "Run Gapless and its peers on the same work, and print one table",
		Long: `Peers starts a real Kafka, fills topics once, and lets Gapless and its peers consume them: same records, same handler, a commit each
second. Each run is a process of its own, and is complete if every record was handled exactly once and the broker holds every offset
as committed; a row that is not says so. Runs are interleaved and repeated.

It needs what the tests with a real Kafka need, Java and, for the first time, Maven; for all rows also a Java compiler, a C compiler
(confluent-kafka-go) and Python 3 with venv. What is not there is a row that says so. The first run downloads some 100 MB.
GAPLESS_TEST_BROKERS names brokers that run already.

Ctrl-C ends it and prints what there is. The exit code is 1 if a row of Gapless is not complete.`,
		Example: `  # everything: about a quarter of an hour on two processors
  go run ./bench/peers --json peers.json

  # the Go libraries, without a handler to wait for
  go run ./bench/peers --workloads noop --libraries gapless,franz-go,sarama,kafka-go,confluent-kafka-go

  # does everything work here?
  go run ./bench/peers --records 20000 --sleep-records 2000 --repeats 1`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.list {
				_, err := io.WriteString(c.OutOrStdout(), catalogue.Markdown())
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			return run(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := c.Flags()
	f.IntVar(&o.sizes.Records, "records", 16_000_000, "records of the no-op workload; slow libraries read a part of that")
	f.IntVar(&o.sizes.SleepRecords, "sleep-records", 100_000, "records of the workloads with 100 in flight; those with 1,000 have four times as many")
	f.IntVar(&o.sizes.Partitions, "partitions", 12, "partitions of the no-op workload; the others have one")
	f.IntVar(&o.sizes.Size, "size", 100, "bytes of a record's value")
	f.DurationVar(&o.sizes.Mean, "handler", 2*time.Millisecond, "mean time of the handlers that sleep")
	f.IntVar(&o.repeats, "repeats", 3, "runs of each row")
	f.StringSliceVar(&o.libraries, "libraries", nil, "libraries, or single arms of them as in gapless/key (default: all; see --list)")
	f.StringSliceVar(&o.workloads, "workloads", nil, "workloads: noop, fixed-100, fixed-1000, pareto-100, pareto-1000 (default: all)")
	f.DurationVar(&o.limit, "limit", 2*time.Minute, "time after which a run is ended and counts as not complete")
	f.StringVar(&o.json, "json", "", "write a JSON object a row to this file (- for the standard output, the table then goes to stderr)")
	f.BoolVar(&o.list, "list", false, "print the arms and their settings")
	return c
}

func (o *options) check() error {
	for _, n := range []struct {
		flag               string
		value, least, most int
	}{
		{"records", o.sizes.Records, 1, 100_000_000},
		{"sleep-records", o.sizes.SleepRecords, 1, 10_000_000},
		{"partitions", o.sizes.Partitions, 1, 1000},
		{"size", o.sizes.Size, 8, 100_000},
		{"repeats", o.repeats, 1, 100},
	} {
		if n.value < n.least || n.value > n.most {
			return usageError{fmt.Errorf("--%s %d: write a number from %d to %d", n.flag, n.value, n.least, n.most)}
		}
	}
	if o.sizes.Mean < 10*time.Microsecond || o.sizes.Mean > time.Second {
		return usageError{fmt.Errorf("--handler %v: write a time from 10us to 1s", o.sizes.Mean)}
	}
	if o.limit < time.Second {
		return usageError{fmt.Errorf("--limit %v: write 1s or more", o.limit)}
	}
	if o.json != "" && o.json != "-" {
		// Found out now rather than after a quarter of an hour.
		f, err := os.OpenFile(o.json, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return usageError{fmt.Errorf("--json %s: %w", o.json, err)}
		}
		return f.Close()
	}
	return nil
}
