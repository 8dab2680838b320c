package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/pflag"
)

// sink is the work that "gapless run" does with a record, or with a batch (--batch). It is the seam for others: a sink that
// hands records to a service in another language (HTTP, gRPC, a pipe to a child process) implements it, and adds itself to the
// sinks below; its settings join sinkFlags. The engine does the rest.
//
// Many goroutines call it at once. A call returns when its work is done for good, since the engine then counts the records as
// settled: a sink that buffers returns after its flush. Its error is retried and dead-lettered like that of any handler, and
// may steer (engine.Permanent, engine.RetryAfter, engine.Hold, engine.End, ...); a batch may fail in part (engine.Batch.Fail).
type sink interface {
	engine.Handler
	engine.BatchHandler
}

// sinks are the known ones.
var sinks = map[string]func(f *sinkFlags, out io.Writer) sink{
	"print":   func(_ *sinkFlags, out io.Writer) sink { return &printer{out: out} },
	"discard": func(*sinkFlags, io.Writer) sink { return discard{} },
	"sleep":   func(f *sinkFlags, _ io.Writer) sink { return sleeper(f.sleep) },
}

var sinkNames = []string{"print", "discard", "sleep"}

// sinkFlags are the settings of the sinks.
type sinkFlags struct {
	name  string
	sleep time.Duration
	batch bool
}

const secSink = "Sink"

func (f *sinkFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "sink", "print", "what is done with a record: print (JSON lines on stdout), discard, sleep")
	flags.DurationVar(&f.sleep, "sleep", 0, "how long the sink sleeps a record, such as 2ms; given alone it chooses that sink")
	flags.BoolVar(&f.batch, "batch", false, "hand records to the sink in batches, see --batch-size and --batch-linger")
	section(flags, secSink, "sink", "sleep", "batch")
}

// choose makes the sink.
func (f *sinkFlags) choose(a *app, flags *pflag.FlagSet, out io.Writer) (sink, error) {
	if flags.Changed("sleep") && !flags.Changed("sink") {
		f.name = "sleep"
	}
	if flags.Changed("sleep") && (f.name != "sleep" || f.sleep < 0) {
		return nil, usageError("%s: %v needs --sink sleep, and a time that is not negative", a.origins.Of("sleep"), f.sleep)
	}
	for _, batching := range []string{"batch-size", "batch-linger"} {
		if flags.Changed(batching) && !f.batch {
			return nil, usageError("%s: has an effect with --batch only", a.origins.Of(batching))
		}
	}
	newSink, ok := sinks[f.name]
	if !ok {
		return nil, usageError("%s: %q is not one of %s", a.origins.Of("sink"), f.name, strings.Join(sinkNames, ", "))
	}
	return newSink(f, out), nil
}

// attach makes s the handler of cfg.
func (f *sinkFlags) attach(cfg *engine.Config, s sink) {
	if f.batch {
		cfg.BatchHandler = s
	} else {
		cfg.Handler = s
	}
}

// discard does nothing: what is left is the engine's own cost.
type discard struct{}

func (discard) Handle(context.Context, *engine.Record) error     { return nil }
func (discard) HandleBatch(context.Context, *engine.Batch) error { return nil }

// sleeper takes as long as a call to another service would, once for each record.
type sleeper time.Duration

func (s sleeper) Handle(ctx context.Context, _ *engine.Record) error { return s.nap(ctx, 1) }

func (s sleeper) HandleBatch(ctx context.Context, b *engine.Batch) error {
	return s.nap(ctx, len(b.Records))
}

func (s sleeper) nap(ctx context.Context, records int) error {
	t := time.NewTimer(time.Duration(s) * time.Duration(records))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("asleep when its time was up: %w", context.Cause(ctx))
	}
}
