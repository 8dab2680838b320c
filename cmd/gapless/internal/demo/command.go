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

type options struct {
	records    int
	partitions int
	workers    int
	order      string
	seed       uint64
	rate       int
	noKill     bool
	noCopies   bool
	json       bool
	plain      bool
	journal    string
	log        string

	// These are no flags.
	stallAfter time.Duration // no sign of life for that long ends the run
	session    time.Duration // how long the group waits for B after it was killed
	broken     broken
}

const long = `Demo runs a consumer group on an embedded broker: nothing to install, nothing leaves this machine.

A producer writes orders, keyed by customer, to a topic of several partitions. Most of them take a few milliseconds to handle;
some are slow, some fail once or twice before they succeed (flaky), and a few can't be handled at all (poisonous: they fail each
time, are refused for good, or panic) and belong in the dead-letter topic. One order in a hundred is sent twice. Two members of one
group, A and B, handle them, each a process with a store of its own. In the thick of it

  B leaves cleanly and comes back,
  B is killed (kill -9) and comes back at once: to its partitions, and with its store,
  B is killed again and stays away until the group gives it up: A takes over, and knows only what B had committed.

The verdict at the end is counted from the records themselves, not from the engine's counters:

  what was produced      the topic, read back by an independent client
  what was handled       a journal outside of the stores, to which the handlers of all processes append: partition, offset, key,
                         order, attempt, start, end
  what was given up      the dead-letter topic, read back by an independent client
  what was committed     the group's offsets and what stands beside them, read by an independent client ten times a second, after
                         each kill, and at the end
  what was durable       a copy of the store that a killed process left, opened for that

It is good when nothing is lost, the order holds, every poisonous order and no other is a dead letter, nothing unfinished was ever
committed, the lag is 0, and

  duplicates            is 0: no record was handled twice, unless a kill explains it. A clean leave never does.
  redone                counts the records that a handler got again after a kill, though they were finished or in flight. Each is one
                        that might be redone, and redone_allowed counts those: in flight, and where B returned with its store what was
                        not yet durable, where A took over what was finished since the last commit (or fell out of its window).
  business_duplicates   is 0: no order was handled a second time by a member whose store had its mark. (A mark does not follow a
                        partition: a copy that another member gets is handled there. Those are counted, too.)

The exit code is 0 then, and 1 if the verdict is bad, or if there is none, after an interrupt.`

const examples = `  # 200,000 orders, by key; less than half a minute
  gapless demo

  # strictly one record after the other in every partition
  gapless demo --order partition

  # as fast as the handlers go, with more of them
  gapless demo --rate 0 --workers 256

  # only the clean leave
  gapless demo --no-kill

  # for machines: the verdict as one JSON object in the last line; progress goes to stderr
  gapless demo --json | tail -n 1 | jq '.redone, .redone_allowed'

  # keep the journal, to count again yourself
  gapless demo --journal journal.jsonl --log events.jsonl`

// Command is `gapless demo`. Its context ends at an interrupt.
func Command() *cobra.Command {
	o := options{stallAfter: 30 * time.Second, session: sessionTimeout}
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
	f.IntVar(&o.records, "records", 200_000, "how many orders are produced")
	f.IntVar(&o.partitions, "partitions", 8, "partitions of the topic")
	f.IntVar(&o.workers, "workers", 64, "handlers that run at once, in each of the two members")
	f.StringVar(&o.order, "order", string(engine.OrderKey), "order within a partition: key, unordered or partition")
	f.Uint64Var(&o.seed, "seed", 1, "decides which record has which key, and which are slow, flaky or poisonous")
	f.IntVar(&o.rate, "rate", 10_000, "records produced a second; 0 = as fast as possible")
	f.BoolVar(&o.noKill, "no-kill", false, "B is not killed; it leaves and comes back")
	f.BoolVar(&o.noCopies, "no-copies", false, "no order is sent twice")
	f.BoolVar(&o.json, "json", false, "print the verdict as one JSON object; progress goes to stderr")
	f.BoolVar(&o.plain, "plain", false, "plain progress lines on a terminal, too")
	f.StringVar(&o.journal, "journal", "", "write the handlers' journal to this file, as JSON lines")
	f.StringVar(&o.log, "log", "", "write the engines' log to this file, as JSON lines")
	complete := func(words ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	_ = c.RegisterFlagCompletionFunc("order", complete("key", "unordered", "partition"))
	c.AddCommand(memberCommand())
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
	if cerr := d.close(); err == nil {
		err = cerr
	}
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
