package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/gaplesshq/gapless/bench/peers/internal/arms"
	"github.com/gaplesshq/gapless/bench/peers/internal/catalogue"
	"github.com/gaplesshq/gapless/bench/peers/internal/ground"
	"github.com/gaplesshq/gapless/bench/peers/internal/java"
	"github.com/gaplesshq/gapless/bench/peers/internal/plan"
	"github.com/gaplesshq/gapless/bench/peers/internal/process"
	"github.com/gaplesshq/gapless/bench/peers/internal/python"
	"github.com/gaplesshq/gapless/bench/peers/internal/report"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

var errInterrupted = errors.New("interrupted")

// patience is how long an arm waits for a record, and how long the broker may take to say what is committed.
const patience = 30 * time.Second

// A bench is the whole of it at work.
type bench struct {
	o        options
	plan     *plan.Plan
	ground   *ground.Ground
	progress io.Writer
	self     string
	machine  string
	kafka    *java.Kit
	parallel *java.Kit
	python   *python.Kit
	began    time.Time
}

// run runs everything and writes the table, and before that what there is of it if ctx ends.
func run(ctx context.Context, o options, out, progress io.Writer) (err error) {
	p, err := plan.New(o.sizes, o.libraries, o.workloads)
	if err != nil {
		return usageError{err}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b := &bench{o: o, plan: p, progress: progress, self: self, machine: machine(), kafka: java.Kafka(), parallel: java.Parallel(), python: new(python.Kit), began: time.Now()}
	b.say("looking for Java, Python and what they need")
	b.prepare(ctx)
	b.say("starting Kafka")
	if b.ground, err = ground.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	defer func() { err = errors.Join(err, b.ground.Close()) }()
	err = b.measure(ctx)
	if err != nil && ctx.Err() == nil {
		return err
	}
	if err := b.write(out); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return b.verdict()
}

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "%6.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// prepare finds out which arms can't be run here.
func (b *bench) prepare(ctx context.Context) {
	kits := map[catalogue.Runner]func(context.Context) error{
		catalogue.JavaKafka:    b.kafka.Prepare,
		catalogue.JavaParallel: b.parallel.Prepare,
		catalogue.Python:       b.python.Prepare,
	}
	tried := make(map[catalogue.Runner]string)
	for _, c := range b.plan.All() {
		if c.Arm.Runner == catalogue.Go {
			c.Missing = arms.Missing(c.Arm.Library)
			continue
		}
		why, done := tried[c.Arm.Runner]
		if !done {
			if err := kits[c.Arm.Runner](ctx); err != nil {
				why = err.Error()
				b.say("without %s: %s", c.Arm.Library, why)
			}
			tried[c.Arm.Runner] = why
		}
		c.Missing = why
	}
}

// measure fills the topics and runs the rounds.
func (b *bench) measure(ctx context.Context) error {
	for _, c := range b.plan.Round(0) {
		if _, err := b.topic(ctx, c); err != nil {
			return err
		}
	}
	if err := b.warm(ctx); err != nil {
		return err
	}
	for round := range b.o.repeats {
		cells := b.plan.Round(round)
		for i, c := range cells {
			r := b.runOnce(ctx, c)
			if ctx.Err() != nil { // it was cut off: it says nothing
				return context.Cause(ctx)
			}
			c.Runs = append(c.Runs, r)
			b.say("round %d of %d, run %d of %d  %-32s %s", round+1, b.o.repeats, i+1, len(cells), c.Name(), describe(c, &r))
		}
	}
	return nil
}

func describe(c *plan.Cell, r *report.Run) string {
	n := int64(c.Records())
	if why := r.Flaw(n); why != "" {
		return "NOT COMPLETE: " + why
	}
	return fmt.Sprintf("%.0f records/s, %.0f ns CPU a record", float64(n)/r.Outcome.Seconds, float64(r.Process)/float64(n))
}

// topic is the one that a cell reads, filled by the first that asks.
func (b *bench) topic(ctx context.Context, c *plan.Cell) (*ground.Filled, error) {
	began := time.Now()
	t := ground.Topic{Partitions: c.Workload.Partitions, Records: c.Records(), Size: c.Workload.Size, Mean: c.Workload.Mean}
	f, err := b.ground.Fill(ctx, t)
	if took := time.Since(began); err == nil && took > time.Second {
		b.say("filled a topic with %d records in %.1fs", t.Records, took.Seconds())
	}
	return f, err
}

// warm lets the broker compile its hot paths and make its internal topics, in a run that does not count.
func (b *bench) warm(ctx context.Context) error {
	cells := b.plan.Round(0)
	if len(cells) == 0 {
		return nil // nothing can be run
	}
	first := *cells[0]
	first.Arm = catalogue.Arms()[0] // Gapless, in whichever workload
	r := b.runOnce(ctx, &first)
	b.say("the broker is warm: %s", describe(&first, &r))
	return context.Cause(ctx)
}

// runOnce runs an arm and asks the broker what it left behind.
func (b *bench) runOnce(ctx context.Context, c *plan.Cell) (r report.Run) {
	f, err := b.topic(ctx, c)
	if err != nil {
		return report.Run{Err: err}
	}
	t := task.Task{
		Library: c.Arm.Library, Mode: c.Arm.Mode, Bootstrap: b.ground.Bootstrap(), Topic: f.Name,
		Group: b.ground.Group(c.Arm.Library + "-" + c.Arm.Mode), Ends: f.Ends,
		Workers: c.Workload.Workers(&c.Arm), Latency: c.Workload.Latency(), Patience: patience,
	}
	if c.Arm.Share {
		if err := b.ground.AllowShare(ctx, t.Group); err != nil {
			return report.Run{Err: err}
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, b.o.limit, fmt.Errorf("it was ended after %v", b.o.limit))
	defer cancel()
	r = process.Run(limited, b.command(limited, c, t))
	if r.Err != nil || ctx.Err() != nil {
		return r
	}
	asked, done := context.WithTimeout(ctx, patience)
	defer done()
	if c.Arm.Share {
		r.Unsettled, r.Err = b.ground.Unaccepted(asked, t.Group, f)
	} else {
		r.Unsettled, r.Err = b.ground.Uncommitted(asked, t.Group, f)
	}
	return r
}

func (b *bench) command(ctx context.Context, c *plan.Cell, t task.Task) *exec.Cmd {
	switch c.Arm.Runner {
	case catalogue.JavaKafka:
		return b.kafka.Command(ctx, t)
	case catalogue.JavaParallel:
		return b.parallel.Command(ctx, t)
	case catalogue.Python:
		return b.python.Command(ctx, t)
	}
	cmd := exec.CommandContext(ctx, b.self, t.Args()...)
	cmd.Env = append(os.Environ(), armEnv+"=1")
	return cmd
}

// write writes the table and the JSON lines.
func (b *bench) write(out io.Writer) (err error) {
	sections := b.plan.Sections()
	switch b.o.json {
	case "":
		return report.Table(out, b.machine, sections)
	case "-":
		return errors.Join(report.Table(b.progress, b.machine, sections), report.JSON(out, sections))
	}
	f, err := os.Create(b.o.json)
	if err != nil {
		return errors.Join(report.Table(out, b.machine, sections), err)
	}
	return errors.Join(report.JSON(f, sections), f.Close(), report.Table(out, b.machine, sections))
}

// verdict is an error if Gapless itself was not complete.
func (b *bench) verdict() error {
	for _, s := range b.plan.Sections() {
		for i := range s.Rows {
			if row := &s.Rows[i]; row.Library == "gapless" && !row.Complete {
				return fmt.Errorf("%s of Gapless is not complete: %s", row.Arm, row.Why)
			}
		}
	}
	return nil
}
