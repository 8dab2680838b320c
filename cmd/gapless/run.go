package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/admin"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const runLong = `Run consumes topics as a member of a consumer group, and hands every record to a sink: print (one JSON object a line on
stdout), discard, or sleep (which takes as long as a call to your service would, to try out settings).

A record counts as handled, and its offset may be committed, only when the sink is done with it: print has written the line.
stdout carries records only; the log and the progress go to stderr.

A record whose attempts are spent goes to the dead-letter topic <topic>.dlq (--dead-letter-topic). It is created at start where it
is missing, unless --give-up is skip or hold, or with --dead-letter-no-create, which refuses to start instead.

--dedupe-key has one record a business key handled: a producer's duplicate, at whatever offset, is settled without the sink, for
--dedupe-retention and while this host's disk is there. In a JSON value a string is the same key as that text in a header; a number
is a key by its exact value (1 and 1.0 are one), and never that of a string (1 and "1" are two). A record without the key, header or
path (also null or empty there), whose value is not JSON, or whose key is nested deeper than 32 levels, has no business key: it is handled whatever it is, counted as unkeyed
in /status and /metrics, and the first of a topic is warned of. A key that comes with another value is no plain duplicate: see
--dedupe-on-differ. "gapless dedupe" looks into the store.

An interrupt (ctrl-C, SIGTERM) stops cleanly: running handlers end, their offsets are committed, the member leaves the group.
A second one stops at once, and lists the records that were abandoned; they will be delivered again.

` + exitCodesHelp

const runExamples = `  # no Kafka at hand: an embedded broker with 1,000 generated records
  gapless run --embedded --until-end

  # print two topics, 200 records at once, in order within each key
  gapless run --brokers localhost:9092 --group printer --topic orders,payments --workers 200

  # what would a 20 ms service need? watch lag and rate
  gapless run --brokers localhost:9092 --group trial --topic orders --sleep 20ms --workers 500

  # how many workers does it need? find out, and follow it when the service changes; never more than 300
  gapless run --brokers localhost:9092 --group trial --topic orders --workers auto --workers-max 300

  # SASL over TLS; the password comes from the environment
  GAPLESS_SASL_PASSWORD=... gapless run --brokers k1:9093,k2:9093 --tls --sasl-mechanism SCRAM-SHA-512 --sasl-user me \
      --group g --topic orders

  # everything from a file: brokers, group, topic, retry: {attempts: 5, max: 1m}, ...
  gapless run --config gapless.yaml

  # is the work idempotent? handle the last 100 records of each partition once more; nothing is committed
  gapless run --brokers localhost:9092 --group printer --topic orders --replay-last 100

  # an order that the producer sends twice is printed once; the store is in ~/.local/state/gapless/dedupe/billing/0
  gapless run --brokers localhost:9092 --group billing --topic orders --dedupe-key json:order.id --dedupe-retention 7d

  # the same by a header, with the store on a volume, and a key with two payloads to the dead-letter topic
  gapless run --brokers localhost:9092 --group billing --topic orders --dedupe-key header:Idempotency-Key \
      --dedupe-dir /data/gapless --dedupe-on-differ dead-letter

  # probes, metrics and operations
  gapless run --config gapless.yaml --admin-addr localhost:8080 &
  curl localhost:8080/status`

// runner is "gapless run".
type runner struct {
	*app
	cfg        engine.Config
	secrets    secrets
	sinkFlags  sinkFlags
	dedupeKey  dedupeKeyFlag
	embedded   embedded
	seed       int
	logs       logFlags
	progress   progressFlags
	adminAddr  string
	replayLast int
	untilEnd   bool
	console    *console
	notes      notes
}

func (a *app) runCommand() *cobra.Command {
	r := &runner{app: a}
	cmd := &cobra.Command{
		Use:     "run",
		Short:   "Consume topics and hand each record to a sink",
		Long:    runLong,
		Example: runExamples,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context(), cmd.Flags()) },
	}
	flags := cmd.Flags()
	r.sinkFlags.register(flags)
	register(flags, &r.cfg, secConnection)
	r.secrets.register(flags)
	register(flags, &r.cfg, secGroup, secTopics, secWork, secCommit)
	r.dedupeKey.register(flags)
	register(flags, &r.cfg, secDedupe, secFailure, secLimits, secFetch, secPrivacy)
	flags.IntVar(&r.replayLast, "replay-last", 0, "handle the N records before each partition's committed offset again, commit nothing, and exit")
	flags.BoolVar(&r.untilEnd, "until-end", false, "stop once all that is in the partitions assigned here is handled")
	section(flags, "What to do", "replay-last", "until-end")
	flags.StringVar(&r.adminAddr, "admin-addr", "", "`address` for /metrics, /healthz, /readyz, /status and operations; has no access control")
	section(flags, secOutput, "admin-addr")
	r.logs.register(flags)
	r.progress.register(flags)
	r.embedded.register(flags)
	flags.IntVar(&r.seed, "embedded-records", 1000, "records generated into each topic of the embedded broker at start")
	section(flags, secEmbedded, "embedded-records")
	completeRun(cmd)
	return cmd
}

func (r *runner) run(ctx context.Context, flags *pflag.FlagSet) error {
	if r.replayLast < 0 || r.replayLast == 0 && flags.Changed("replay-last") {
		return usageError("%s: %d is not a number of records", r.origins.Of("replay-last"), r.replayLast)
	}
	r.console = newConsole(r.err)
	r.notes = notes{r.console, r.progress.json}
	var err error
	if r.cfg.Log, err = r.logs.logger(r.app, r.console, r.progress.json); err != nil {
		return err
	}
	s, err := r.sinkFlags.choose(r.app, flags, r.out)
	if err != nil {
		return err
	}
	r.sinkFlags.attach(&r.cfg, s)
	if err := r.dedupeKey.fill(&r.cfg, r.app); err != nil {
		return err
	}
	if err := r.checkDedupe(&r.cfg); err != nil {
		return err
	}
	r.cfg.OnEvent = r.sayEvent
	if err := r.secrets.fill(&r.cfg, r.app); err != nil {
		return err
	}
	if err := r.embedded.start(r.app, &r.cfg, r.notes); err != nil {
		return err
	}
	defer r.embedded.close()
	if r.embedded.on {
		if err := r.seedEmbedded(ctx); err != nil {
			return stoppedOr(ctx, err)
		}
	}
	e, err := engine.New(r.cfg)
	if err != nil {
		return r.refusal(err)
	}
	if r.replayLast > 0 {
		return stoppedOr(ctx, r.replay(ctx, s))
	}
	return r.consume(ctx, e)
}

// stoppedOr is nil for an error that only says that ctx has ended: who interrupts gets what was asked for.
func stoppedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func (r *runner) seedEmbedded(ctx context.Context) error {
	if r.cfg.Group == "" {
		r.cfg.Group = embeddedName
	}
	topics := r.cfg.Topics
	if len(topics) == 0 {
		topics = []string{embeddedName}
		if r.cfg.TopicPattern == "" {
			r.cfg.Topics = topics
		} else if re, err := regexp.Compile(r.cfg.TopicPattern); err == nil && !re.MatchString(embeddedName) {
			return usageError("%s: %q does not match the embedded broker's topic %s", r.origins.Of("topic-pattern"), r.cfg.TopicPattern, embeddedName)
		}
	}
	if r.seed < 0 {
		return usageError("%s: %d is negative", r.origins.Of("embedded-records"), r.seed)
	}
	if err := r.embedded.seed(ctx, &r.cfg, topics, r.seed, r.notes); err != nil || r.replayLast == 0 {
		return err
	}
	cl, err := connect(ctx, r.cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	r.notes.say("group %s has committed all of it, so that there is something to replay", r.cfg.Group)
	return commitShare(ctx, cl, r.cfg.Group, topics, 1)
}

// consume runs the engine until it is interrupted, has reached the end (--until-end), or fails.
func (r *runner) consume(ctx context.Context, e *engine.Engine) error {
	stopAdmin, err := r.serveAdmin(e)
	if err != nil {
		return err
	}
	defer stopAdmin()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()

	w := newWatch(r, e)
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	stopping := ctx.Done()
	for {
		select {
		case <-stopping:
			stopping = nil
			w.sayStopping()
		case now := <-ticker.C:
			if w.look(now) && r.untilEnd {
				stop()
			}
		case err := <-ended:
			w.finish()
			return r.outcome(e, err)
		case <-hardStop(ctx):
			w.finish()
			return hardStopped(e)
		}
	}
}

// sayEvent tells where the store is whatever the log's level: at info and below, the log does.
func (r *runner) sayEvent(ev engine.Event) {
	if ev.Name == engine.EventStoreOpened && r.cfg.Log.GetLevel() > zerolog.InfoLevel {
		r.notes.say("%s; opened in %v", ev.Hint, ev.Took.Round(time.Millisecond))
	}
}

// outcome gives the engine's error its exit code: what comes before it was ready is a check at start.
func (r *runner) outcome(e *engine.Engine, err error) error {
	if err == nil {
		return nil
	}
	var c *engine.ConfigError
	if errors.As(err, &c) {
		return r.refusal(err)
	}
	if errors.Is(err, engine.ErrStore) {
		return &exitError{explained(err), exitStore}
	}
	if isReady(e) {
		return explained(err)
	}
	return unreachable(explained(err))
}

// hardStopped ends the engine at once, and says which records are left behind.
func hardStopped(e *engine.Engine) error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	err := e.Stop(now)
	var left *engine.AbandonedError
	if !errors.As(err, &left) {
		err = errors.New("stopped at the second interrupt, before the first one's stop had ended")
	}
	return &exitError{err, exitInterrupted}
}

// serveAdmin serves the admin address, where one is wanted.
func (r *runner) serveAdmin(e *engine.Engine) (stop func(), err error) {
	if r.adminAddr == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", r.adminAddr)
	if err != nil {
		return nil, unreachable(fmt.Errorf("%s: %w", r.origins.Of("admin-addr"), err))
	}
	server := &http.Server{Handler: admin.Handler(e), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	r.notes.say("admin address: http://%s/status", l.Addr())
	return func() { _ = server.Close() }, nil
}
