// Package demo is `gapless demo`: a consumer group at work on an embedded broker, and a verdict on it that is counted from the
// records themselves. The engine's own counters are shown while it runs, and not believed in the end.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/cobra"
)

// ErrVerdict is what Command's error wraps when the verdict is bad: the process is to exit with 1.
var ErrVerdict = errors.New("the verdict is bad")

// interruptedError is no good verdict and no bad one.
type interruptedError struct{}

func (interruptedError) Error() string {
	return "interrupted: the members have stopped, and there is no verdict"
}
func (interruptedError) Unwrap() error { return context.Canceled }

// usageError is a wrong flag.
type usageError struct{ error }

// ExitCode is the process's; the command documents it.
func (usageError) ExitCode() int { return 2 }

// leave is how member B goes away in the middle.
type leave string

const (
	leaveQuiet leave = "quiet"
	leaveBusy  leave = "busy"
)

type options struct {
	records    int
	partitions int
	workers    int
	order      string
	seed       uint64
	rate       int
	leave      string
	json       bool
	plain      bool
	journal    string
	log        string

	stallAfter time.Duration // no sign of life for that long ends the run; not a flag
}

const long = `Demo runs a consumer group on an embedded broker: nothing to install, nothing leaves this machine.

A producer writes keyed records to a topic of several partitions. Most of them take a few milliseconds to handle; some are
slow, some fail once or twice before they succeed (flaky), and a few can't be handled at all (poisonous: they fail each time,
are refused for good, or panic) and belong in the dead-letter topic. Two members of one group, A and B, handle them. In the
middle B leaves, A goes on alone, and B comes back.

The verdict at the end is counted from the records themselves, not from the engine's counters:

  what was produced      the topic, read back by an independent client
  what was handled       a journal that the handlers write: partition, offset, key, number in the key, attempt, start, end
  what was given up      the dead-letter topic, read back by an independent client
  what was committed     the group's offsets, read by an independent client at the end, and ten times a second while it runs

It is good when nothing is lost or handled twice, the order holds, every poisonous record and no other is a dead letter, the
committed offset was at no time past a record that was not finished, and the lag is 0. The exit code is 0 then, and 1 if the
verdict is bad, or if there is none, after an interrupt.

With --leave quiet (the default) B's partitions get no new records for a moment, so that B has finished all it was given when
it leaves, and the group is as quiet when B comes back. With --leave busy B comes and goes in the thick of it. Then what was
finished behind a record that was not is delivered again to the next owner: delivery is at least once, and such duplicates
are counted, but allowed.`

const examples = `  # 200,000 records, key order; some 20 seconds
  gapless demo

  # strictly one record after the other in every partition
  gapless demo --order partition

  # as fast as the handlers go, with more of them
  gapless demo --rate 0 --workers 256

  # a member that leaves in the thick of it
  gapless demo --leave busy

  # for machines: the verdict as one JSON object in the last line; progress goes to stderr
  gapless demo --json | tail -n 1 | jq .order_violations

  # keep the journal, to count again yourself
  gapless demo --journal journal.jsonl --log events.jsonl`

// Command is `gapless demo`. Its context ends at an interrupt.
func Command() *cobra.Command {
	o := options{stallAfter: 30 * time.Second}
	c := &cobra.Command{
		Use:          "demo",
		Short:        "Watch a group at work on an embedded broker; no Kafka needed",
		Long:         long,
		Example:      examples,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return runCommand(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.IntVar(&o.records, "records", 200_000, "how many records are produced")
	f.IntVar(&o.partitions, "partitions", 8, "partitions of the topic")
	f.IntVar(&o.workers, "workers", 64, "handlers that run at once, in each of the two members")
	f.StringVar(&o.order, "order", string(engine.OrderKey), "order within a partition: key, unordered or partition")
	f.Uint64Var(&o.seed, "seed", 1, "decides which record has which key, and which are slow, flaky or poisonous")
	f.IntVar(&o.rate, "rate", 12_000, "records produced a second; 0 = as fast as possible")
	f.StringVar(&o.leave, "leave", string(leaveQuiet), "how member B leaves and comes back: quiet or busy (see above)")
	f.BoolVar(&o.json, "json", false, "print the verdict as one JSON object; progress goes to stderr")
	f.BoolVar(&o.plain, "plain", false, "plain progress lines on a terminal, too")
	f.StringVar(&o.journal, "journal", "", "write the handlers' journal to this file, as JSON lines")
	f.StringVar(&o.log, "log", "", "write the engines' log to this file, as JSON lines")
	complete := func(words ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	_ = c.RegisterFlagCompletionFunc("order", complete("key", "unordered", "partition"))
	_ = c.RegisterFlagCompletionFunc("leave", complete("quiet", "busy"))
	return c
}

func (o *options) validate() error {
	for _, n := range []struct {
		flag        string
		value       int
		least, most int
	}{
		{"records", o.records, 100, 20_000_000},
		{"partitions", o.partitions, 1, 1000},
		{"workers", o.workers, 1, 100_000},
		{"rate", o.rate, 0, 10_000_000},
	} {
		if n.value < n.least || n.value > n.most {
			return usageError{fmt.Errorf("--%s %d: write a number from %d to %d", n.flag, n.value, n.least, n.most)}
		}
	}
	switch engine.Order(o.order) {
	case engine.OrderKey, engine.OrderUnordered, engine.OrderPartition:
	default:
		return usageError{fmt.Errorf("--order %q: write key, unordered or partition", o.order)}
	}
	switch leave(o.leave) {
	case leaveQuiet, leaveBusy:
	default:
		return usageError{fmt.Errorf("--leave %q: write quiet or busy", o.leave)}
	}
	return nil
}

// runCommand plays the demo, and prints.
func runCommand(ctx context.Context, o options, stdout, stderr io.Writer) error {
	d, err := newDemo(o)
	if err != nil {
		return err
	}
	progress := stdout
	if o.json {
		progress = stderr
	}
	watching := d.watch(progress)
	f, err := d.run(ctx)
	watching.end()
	if err != nil {
		if ctx.Err() != nil {
			return interruptedError{}
		}
		return err
	}
	if o.json {
		err = f.printJSON(stdout, stderr)
	} else {
		err = f.print(stdout, d)
	}
	if err != nil {
		return err
	}
	if !f.good() {
		return fmt.Errorf("%w: %s", ErrVerdict, f.problems[0])
	}
	return nil
}
