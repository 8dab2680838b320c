package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/bench"
	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const benchLong = `Bench measures the engine at worker counts, and at any other settings, against two controls that always run with it, in turn:

  bare-loop   the leanest franz-go poll loop on the same log, with the same fetch options and commits and no handler: what fetching allows
  goroutines  as many goroutines as there are workers, with the same handler and nothing else: what timers and cores allow

A parameter may be a list, separated by commas; every combination is measured, --rounds times in turn, and medians are shown. Each run of
an arm is a process of its own, and so is the broker, so CPU and memory are the consumer's alone.

  records/s   with the bound beside it: the least of what fetching, the workers at this handler time, the cores and the order of keys allow
  cpu/record  of the consumer's process; rss MB its peak of memory; allocs per record
  in flight   the most handlers that were seen at once; a run that does not reach its workers says so below the table
  slots full  the share of the workers' time that is spent in the handler: what is missing to 1 is the engine's loss. Where it is 1 and the
              rate is below the bound, timers fire late or the cores are taken
  lag 0 in    with --records: from the start until all is committed
  p50 ...     with --rate: latency from when a record should have been sent to the end of its handler

The broker is an embedded one (its log has no end, unless --records or --rate is set), or a real one with --brokers: topics and groups named
gapless-bench-... are made there, and removed. --synthetic has no broker: records are decoded by the client's decoder, tracked by package
tracker and run by package workers; it has no group, commits, retries, dead letters or dedupe, which need one.

An interrupt ends the sweep, and shows what was measured until then.

`

const benchExamples = `  # which worker count, for calls that take about 5 ms? with a page of pictures
  gapless bench --handler exp:5ms --workers 1,4,16,64,256,1024 --html bench.html

  # what order costs, with a few hot keys
  gapless bench --handler sleep:2ms --workers 64,256 --order key,unordered --keys zipf:10000:1.2

  # the engine's own price: a handler that does nothing
  gapless bench --handler none --workers 8 --order key,unordered,partition --rounds 7

  # latency at 5,000 records a second
  gapless bench --handler sleep:2ms --workers 100 --rate 5000 --duration 10s

  # beside what people write by hand, on your own Kafka
  gapless bench --brokers localhost:9092 --records 2000000 --handler none --arm gapless,errgroup --json

  # which count to use, in words
  gapless bench recommend --handler http:5ms`

const (
	secMeasure = "Measuring"
)

// bencher is "gapless bench", and what its subcommands share.
type bencher struct {
	*app
	cfg     engine.Config // the connection
	secrets secrets
	lists   map[string]*string
	bench   bench.Config
	arms    []string

	json           bool
	csv, html, png string
	jsonFile       string
	target         float64
}

func (a *app) benchCommand() *cobra.Command {
	b := &bencher{app: a}
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure the engine at worker counts and other settings", Long: benchLong + exitCodesHelp, Example: benchExamples, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return b.run(cmd, func(r *bench.Report) error { return b.print(r) })
		},
	}
	b.register(cmd)
	cmd.Flags().BoolVar(&b.json, "json", false, "a line of JSON for each result on stdout, instead of the table")
	section(cmd.Flags(), secOutput, "json")
	b.registerFiles(cmd.Flags())
	cmd.AddCommand(a.recommendCommand(), a.goalsCommand(), a.benchDocsCommand())
	return cmd
}

func (b *bencher) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	b.lists = map[string]*string{}
	def := map[string]string{"workers": "1,4,16,64,256,1024", "handler": "sleep:2ms"}
	for _, s := range []string{bench.SectionEngine, bench.SectionHandler, bench.SectionLog} {
		for _, p := range bench.Params() {
			if p.Section != s {
				continue
			}
			value := p.Default()
			if d, ok := def[p.Name]; ok {
				value = d
			}
			b.lists[p.Name] = flags.String(p.Name, value, p.Usage+"; one or a `list`")
			section(flags, s, p.Name)
		}
	}
	flags.IntVar(&b.bench.Rounds, "rounds", 3, "how often each arm of each case runs")
	flags.DurationVar(&b.bench.Duration, "duration", time.Second, "how long a run is measured")
	flags.DurationVar(&b.bench.Warm, "warm", 300*time.Millisecond, "how long it goes before that")
	flags.DurationVar(&b.bench.Limit, "limit", time.Minute, "most that a run with --records may take")
	flags.StringSliceVar(&b.arms, "arm", nil, "arms besides the controls: gapless, errgroup (franz-go and an errgroup for each poll, as written by hand); default gapless")
	flags.BoolVar(&b.bench.Synthetic, "synthetic", false, "no broker at all")
	section(flags, secMeasure, "rounds", "duration", "warm", "limit", "arm", "synthetic")
	register(flags, &b.cfg, secConnection)
	b.secrets.register(flags)
	flags.StringVar(&b.bench.Topic, "topic", "", "read this topic of --brokers, instead of one that is made; --records says how many it has")
	section(flags, secConnection, "topic")
	words(cmd, "order", "key", "unordered", "partition")
	words(cmd, "handler", "none", "sleep:2ms", "exp:2ms", "pareto:2ms:1.5", "bykey:2ms", "cpu:10us", "json", "http:2ms")
	words(cmd, "compression", "none", "gzip", "snappy", "lz4", "zstd")
	words(cmd, "dedupe", "none", "windows", "store", "keys", "duplicates")
	words(cmd, "keys", "none", "uniform:10000", "zipf:10000:1.1", "hot:10000:0.5")
	words(cmd, "arm", "gapless", "errgroup")
}

func (b *bencher) registerFiles(flags *pflag.FlagSet) {
	flags.StringVar(&b.html, "html", "", "write a page with pictures to this `file`; it needs nothing else")
	flags.StringVar(&b.png, "png", "", "write the picture of the throughput to this `file`")
	flags.StringVar(&b.csv, "csv", "", "write the figures to this `file`")
	flags.StringVar(&b.jsonFile, "json-file", "", "write the lines of --json to this `file`, beside the table")
	section(flags, secOutput, "html", "png", "csv", "json-file")
}

// prepare turns the flags into what package bench takes.
func (b *bencher) prepare() error {
	lists := map[string]string{}
	for name, value := range b.lists {
		lists[name] = *value
	}
	cases, err := bench.Grid(bench.DefaultCase(), lists)
	if err != nil {
		return usageError("--%s", err)
	}
	if err := b.secrets.fill(&b.cfg, b.app); err != nil {
		return err
	}
	b.bench.Cases = cases
	b.bench.Brokers, b.bench.TLS, b.bench.SASL = b.cfg.Brokers, b.cfg.TLS, b.cfg.SASL
	for _, a := range b.arms {
		b.bench.Arms = append(b.bench.Arms, bench.Arm(a))
	}
	switch {
	case b.bench.Rounds < 1:
		return usageError("--rounds %d: write 1 or more", b.bench.Rounds)
	case b.bench.Duration < 10*time.Millisecond:
		return usageError("--duration %v: write 10ms or more", b.bench.Duration)
	case b.bench.Warm <= 0:
		return usageError("--warm %v: write 1ms or more", b.bench.Warm)
	}
	if err := b.bench.Check(); err != nil {
		return usageError("%s", err)
	}
	return nil
}

// run measures, and has the report printed. An interrupt is no failure: there is less to print.
func (b *bencher) run(cmd *cobra.Command, show func(*bench.Report) error) error {
	if err := b.prepare(); err != nil {
		return err
	}
	ctx := cmd.Context()
	if len(b.cfg.Brokers) > 0 {
		cl, err := connect(ctx, b.cfg)
		if err != nil {
			return err
		}
		cl.Close()
	}
	p := newBenchProgress(b.err)
	b.bench.Progress, b.bench.Say = p.tell, p.say
	report, err := bench.Run(ctx, b.bench)
	p.end()
	report.Command = b.typed(cmd)
	return errors.Join(err, show(report))
}

// typed is the command line, as far as it is not the default.
func (b *bencher) typed(cmd *cobra.Command) string {
	parts := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "html", "png", "csv", "json-file", "json", "config":
		case "sasl-user":
			parts = append(parts, "--sasl-user ...")
		default:
			if f.Value.Type() == "bool" {
				parts = append(parts, "--"+f.Name+"="+f.Value.String())
				return
			}
			parts = append(parts, "--"+f.Name+" "+strings.Trim(f.Value.String(), "[]"))
		}
	})
	return strings.Join(parts, " ")
}

func (b *bencher) print(r *bench.Report) error {
	var errs []error
	if b.json {
		errs = append(errs, r.WriteJSON(b.out))
	} else {
		errs = append(errs, r.WriteTable(b.out))
	}
	return errors.Join(append(errs, b.files(r))...)
}

// files writes what was asked for besides.
func (b *bencher) files(r *bench.Report) error {
	if len(r.Results) == 0 {
		return nil
	}
	var errs []error
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{{b.html, r.WriteHTML}, {b.png, r.WritePNG}, {b.csv, r.WriteCSV}, {b.jsonFile, r.WriteJSON}} {
		if f.path != "" {
			errs = append(errs, writeFile(f.path, f.write))
		}
	}
	return errors.Join(errs...)
}

func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}

const recommendLong = `Recommend measures a handler at several worker counts, and says which one to use and why: the fewest that reach 0.95 of the most
that was measured. Fewer are better where they do, for what is in flight is what a crash may redo, and what the systems behind the
handler have to bear. A handler in Go is measured from a test of yours: see bench.Sweep.

`

const recommendExamples = `  # a call that takes about 20 ms, with some that take much longer
  gapless bench recommend --handler pareto:20ms:1.5

  # the fewest workers for 3,000 records a second, with a third to spare
  gapless bench recommend --handler sleep:50ms --target 3000`

func (a *app) recommendCommand() *cobra.Command {
	b := &bencher{app: a}
	cmd := &cobra.Command{
		Use: "recommend", Short: "Say which worker count to use for a handler, and why", Long: recommendLong + exitCodesHelp, Example: recommendExamples, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.target < 0 {
				return usageError("--target %v: write how many records a second are needed, such as 3000", b.target)
			}
			return b.run(cmd, b.recommend)
		},
	}
	b.register(cmd)
	cmd.Flags().Float64Var(&b.target, "target", 0, "records a second that are needed; 0 = as many as possible")
	cmd.Flags().BoolVar(&b.json, "json", false, "the recommendations as a JSON array on stdout")
	section(cmd.Flags(), secOutput, "target", "json")
	b.registerFiles(cmd.Flags())
	return cmd
}

func (b *bencher) recommend(r *bench.Report) error {
	if b.json {
		writeJSON(b.out, r.Recommend(b.target))
		return b.files(r)
	}
	if r.Interrupted {
		_, _ = fmt.Fprintln(b.out, "Interrupted: this is what the runs until then say.")
	}
	return errors.Join(r.WriteRecommendations(b.out, b.target), b.files(r))
}

// benchProgress tells how far a sweep is: a live line on a terminal, a line a run elsewhere.
type benchProgress struct {
	console *console
}

func newBenchProgress(w io.Writer) *benchProgress { return &benchProgress{newConsole(w)} }

func (p *benchProgress) tell(x bench.Progress) {
	switch {
	case x.Done == nil && p.console.live:
		p.console.setLine(x.String())
	case x.Done != nil && !p.console.live:
		_, _ = fmt.Fprintln(p.console, x)
	}
}

func (p *benchProgress) say(text string) { _, _ = fmt.Fprintln(p.console, text) }

func (p *benchProgress) end() {
	if p.console.live {
		p.console.setLine("")
	}
}
