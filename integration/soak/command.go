package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// options are the flags.
type options struct {
	duration   time.Duration
	every      time.Duration // between samples
	rate       int           // records a second
	members    int
	partitions int
	seed       uint64
	dedupe     bool
	out        string
	json       bool

	leak int // so many records to a leak, in every member; 0: none
}

// usageError is a wrong flag.
type usageError struct{ error }

// samples are about how many a run has where --every is not given: enough for a slope, few enough for a plot.
const samples = 180

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "soak",
		Short: "Run a group for a long time with churn, and look whether anything grows",
		Long: `Soak starts a Kafka and a consumer group of several processes, produces at a steady rate, lets members leave, be killed and come
back, changes workers, adds partitions and restarts the broker, and measures all the while. In the end it says whether memory,
goroutines, open files, the dedupe store or the latency have grown, whether a record was lost or out of its key's order, and whether
the lag came back to 0. It writes to the --out directory:

  soak.svg         the plot, with the churn marked
  summary.json     the result, with the seed and the command
  samples.jsonl    every sample and every event
  member-*.log     the engines' logs, as JSON lines
  heap-*.pb.gz     what is on member A's heap after the warm-up and at the end, for go tool pprof

It needs what the tests with a real Kafka need: Java and, for the first time, Maven. GAPLESS_TEST_BROKERS names brokers that run
already; those are not restarted.`,
		Example: `  # half an hour at 2,000 records a second
  go run ./integration/soak

  # a night, on a quiet machine, with a longer memory of business keys
  go run ./integration/soak --duration 10h --rate 5000 --out /tmp/soak

  # the result for machines
  go run ./integration/soak --json | jq '.series[] | {name, percent_an_hour, verdict}'`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return run(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := c.Flags()
	f.DurationVar(&o.duration, "duration", 30*time.Minute, "how long records are produced")
	f.DurationVar(&o.every, "every", 0, "time between samples (default: a 180th of the duration, at least 1s)")
	f.IntVar(&o.rate, "rate", 2000, "records produced a second")
	f.IntVar(&o.members, "members", 3, "processes of the group; the first lives through the run")
	f.IntVar(&o.partitions, "partitions", 12, "partitions of the topic at the start; a third of that is added")
	f.Uint64Var(&o.seed, "seed", 0, "decides the churn, and which records are slow, fail or are poisonous (default: a random one, which is printed)")
	f.BoolVar(&o.dedupe, "dedupe", true, "members have a dedupe store with business keys")
	f.StringVar(&o.out, "out", "", "directory for what is written (default: a new one in the temporary folder)")
	f.BoolVar(&o.json, "json", false, "print the result as one JSON object; progress goes to stderr")
	f.IntVar(&o.leak, "leak", 0, "let each member leak a goroutine, an open file and a kilobyte every so many records, to see that it is found")
	return c
}

// complete checks the flags and fills in what depends on others.
func (o *options) complete() error {
	for _, n := range []struct {
		flag               string
		value, least, most int
	}{
		{"rate", o.rate, 1, 1_000_000},
		{"members", o.members, 1, 26},
		{"partitions", o.partitions, 1, 1000},
		{"leak", o.leak, 0, 1 << 30},
	} {
		if n.value < n.least || n.value > n.most {
			return usageError{fmt.Errorf("--%s %d: write a number from %d to %d", n.flag, n.value, n.least, n.most)}
		}
	}
	if o.duration < 10*time.Second {
		return usageError{fmt.Errorf("--duration %v: the churn alone takes 10s; write 10s or more", o.duration)}
	}
	if o.every == 0 {
		o.every = max(o.duration/samples, time.Second).Round(time.Second)
	}
	if o.every < 100*time.Millisecond || o.every > o.duration/4 {
		return usageError{fmt.Errorf("--every %v: write something between 100ms and a quarter of the duration", o.every)}
	}
	if o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	if o.out == "" {
		dir, err := os.MkdirTemp("", "gapless-soak-")
		if err != nil {
			return err
		}
		o.out = dir
	}
	return os.MkdirAll(o.out, 0o755)
}

// again is the command that makes the same run again.
func (o *options) again() string {
	s := fmt.Sprintf("go run ./integration/soak --duration %v --every %v --rate %d --members %d --partitions %d --seed %d", o.duration, o.every, o.rate, o.members, o.partitions, o.seed)
	if !o.dedupe {
		s += " --dedupe=false"
	}
	if o.leak > 0 {
		s += fmt.Sprintf(" --leak %d", o.leak)
	}
	return s
}

// session is how long the group waits for a member that was killed.
func (o *options) session() time.Duration {
	if o.duration >= 5*time.Minute {
		return 10 * time.Second
	}
	return 6 * time.Second
}

// retention is how long business keys are remembered. It is short, so that keys begin to expire before the warm-up ends and the
// store has reached its size by then: what would grow for 24 hours by design could not be told from a leak in half an hour.
func (o *options) retention() time.Duration { return max(o.duration/12, 2*time.Second) }
