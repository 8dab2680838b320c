package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const produceLong = `Produce writes records to a topic: lines from stdin, JSON lines in the shape that "gapless run" prints, or generated ones.
At the end it prints how the records and their keys spread over the partitions.

Keys go to the same partitions as with the Java client (murmur2). Records are written idempotently, acknowledged by all in-sync
replicas. An interrupt (ctrl-C) ends the input; what was read until then is flushed.

With --format json a line is {"key":"k","value":"v","headers":[{"key":"h","value":"x"}]}. A key or value that is not UTF-8 is
base64, with "key_encoding":"base64" or "value_encoding":"base64"; null is none. topic, partition, offset and timestamp are
accepted and ignored, so that what was printed can be produced.

` + exitCodesHelp

const produceExamples = `  # lines as values, without keys
  printf 'one\ntwo\n' | gapless produce --brokers localhost:9092 --topic t

  # key and value on a line
  printf 'ann:1\nbob:2\n' | gapless produce --brokers localhost:9092 --topic t --key-separator :

  # copy records, byte for byte
  gapless run --brokers localhost:9092 --group copy --topic a --until-end | gapless produce --brokers localhost:9092 --topic b --format json

  # a new topic with 12 partitions and 100,000 records, some keys much hotter than others
  gapless produce --brokers localhost:9092 --topic load --create --partitions 12 --generate 100000 --keys 5000 --zipf 1.1

  # 500 records a second, until ctrl-C
  gapless produce --brokers localhost:9092 --topic load --generate 0 --rate 500

  # how would these keys spread? no Kafka needed
  gapless produce --embedded --topic t --partitions 6 --generate 10000 --keys 300 --zipf 1`

// producer is "gapless produce".
type producer struct {
	*app
	cfg      engine.Config
	secrets  secrets
	embedded embedded

	topic       string
	create      bool
	partitions  int32
	replication int16

	format    string
	separator string

	generate int
	rate     float64
	size     int
	keys     int
	zipf     float64
	seed     uint64

	json bool
}

func (a *app) produceCommand() *cobra.Command {
	p := &producer{app: a}
	cmd := &cobra.Command{
		Use:     "produce",
		Short:   "Write lines, JSON lines or generated records to a topic",
		Long:    produceLong,
		Example: produceExamples,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), cmd.Flags()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&p.topic, "topic", "", "topic to write to")
	flags.BoolVar(&p.create, "create", false, "create the topic where it is missing")
	flags.Int32Var(&p.partitions, "partitions", 0, "partitions of a topic created here; 0 = the broker's default")
	flags.Int16Var(&p.replication, "replication", 0, "replication factor of a topic created here; 0 = the broker's default")
	section(flags, "Topic", "topic", "create", "partitions", "replication")
	flags.StringVar(&p.format, "format", "lines", "what stdin holds: lines or json")
	flags.StringVar(&p.separator, "key-separator", "", "what divides a line into key and value; none = the line is the value")
	section(flags, "Input from stdin", "format", "key-separator")
	flags.IntVar(&p.generate, "generate", -1, "generate that many records instead; 0 = until interrupted")
	flags.Lookup("generate").DefValue = "0" // the help shows no default of 0; -1 is none
	flags.Float64Var(&p.rate, "rate", 0, "records a second; 0 = as fast as it goes")
	flags.IntVar(&p.size, "size", 100, "bytes of a generated value")
	flags.IntVar(&p.keys, "keys", 1000, "number of different keys; 0 = no keys")
	flags.Float64Var(&p.zipf, "zipf", 0, "skew of the keys: 0 = all alike, 1 = the 10th comes a tenth as often as the first")
	flags.Uint64Var(&p.seed, "seed", 1, "decides the order of the keys")
	section(flags, "Generator", "generate", "rate", "size", "keys", "zipf", "seed")
	register(flags, &p.cfg, secConnection)
	p.secrets.register(flags)
	flags.BoolVar(&p.json, "json", false, "print the spread as one JSON object")
	section(flags, secOutput, "json")
	p.embedded.register(flags)
	words(cmd, "format", "lines", "json")
	words(cmd, "sasl-mechanism", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
	return cmd
}

func (p *producer) run(ctx context.Context, flags *pflag.FlagSet) error {
	if err := p.check(flags); err != nil {
		return err
	}
	if err := p.secrets.fill(&p.cfg, p.app); err != nil {
		return err
	}
	if err := p.embedded.start(p.app, &p.cfg, notes{p.err, false}); err != nil {
		return err
	}
	defer p.embedded.close()
	cl, err := connect(ctx, p.cfg,
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // hashes as the Java client does
		kgo.DefaultProduceTopic(p.topic),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.MetadataMinAge(250*time.Millisecond), // a topic that was just created is not known everywhere at once
		kgo.RecordDeliveryTimeout(time.Minute))
	if err != nil {
		return stoppedOr(ctx, p.refusal(err))
	}
	defer cl.Close()
	partitions, err := p.findTopic(ctx, kadm.NewClient(cl))
	if err != nil {
		return stoppedOr(ctx, err)
	}
	return p.produce(ctx, cl, partitions)
}

func (p *producer) check(flags *pflag.FlagSet) error {
	generating := flags.Changed("generate")
	switch {
	case p.topic == "" && !p.embedded.on:
		return usageError("--topic: empty; name the topic to write to")
	case p.format != "lines" && p.format != "json":
		return usageError("%s: %q is not one of lines, json", p.origins.Of("format"), p.format)
	case p.format == "json" && p.separator != "":
		return usageError("%s: is for --format lines; JSON lines name their keys", p.origins.Of("key-separator"))
	case generating && p.generate < 0:
		return usageError("%s: %d is negative", p.origins.Of("generate"), p.generate)
	case p.size < 1, p.keys < 0, p.keys > 10_000_000, p.partitions < 0, p.replication < 0, p.rate < 0, p.zipf < 0:
		return usageError("--size is at least 1, --keys at most 10 million, and --partitions, --replication, --rate and --zipf are not negative")
	}
	for _, name := range []string{"size", "keys", "zipf", "seed"} {
		if flags.Changed(name) && !generating {
			return usageError("%s: is for the generator; add --generate N", p.origins.Of(name))
		}
	}
	for _, name := range []string{"partitions", "replication"} {
		if flags.Changed(name) && !p.create && !p.embedded.on {
			return usageError("%s: is for a topic that is created; add --create", p.origins.Of(name))
		}
	}
	if p.topic == "" {
		p.topic = embeddedName
	}
	return nil
}

// newTopicWait is how long the brokers may take to know a topic that was created.
const newTopicWait = 10 * time.Second

// findTopic finds out how many partitions the topic has, and creates it where that is wanted.
func (p *producer) findTopic(ctx context.Context, adm *kadm.Client) (partitions int, err error) {
	if p.create || p.embedded.on {
		n, factor := p.partitions, p.replication
		if n == 0 {
			n = -1
			if p.embedded.on {
				n = embeddedPartitions
			}
		}
		if factor == 0 {
			factor = -1
		}
		_, err := adm.CreateTopic(ctx, n, factor, nil, p.topic)
		switch {
		case err == nil, !errors.Is(err, kerr.TopicAlreadyExists):
		case p.partitions > 0:
			_, _ = fmt.Fprintf(p.err, "topic %s exists already; it keeps its partitions\n", p.topic)
			err = nil
		default:
			err = nil
		}
		if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
			return 0, unreachable(fmt.Errorf("grant CREATE on topic %q to this user: %w", p.topic, err))
		}
		if err != nil {
			return 0, unreachable(fmt.Errorf("create topic %q: %w", p.topic, err))
		}
	}
	topics, err := adm.ListTopics(ctx, p.topic)
	for until := time.Now().Add(newTopicWait); err == nil && p.create && errors.Is(topics[p.topic].Err, kerr.UnknownTopicOrPartition) && time.Now().Before(until); {
		select { // a topic that was just created is not known everywhere at once
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		topics, err = adm.ListTopics(ctx, p.topic)
	}
	t := topics[p.topic]
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(t.Err, kerr.TopicAuthorizationFailed):
		return 0, p.forbidden(cmp.Or(err, t.Err))
	case err != nil:
		return 0, unreachable(err)
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		return 0, unreachable(fmt.Errorf("topic %q does not exist; create it, or add --create: %w", p.topic, t.Err))
	case t.Err != nil:
		return 0, unreachable(fmt.Errorf("topic %q: %w", p.topic, t.Err))
	}
	return len(t.Partitions), nil
}

// forbidden names the right that is missing.
func (p *producer) forbidden(err error) error {
	return unreachable(fmt.Errorf("grant WRITE and DESCRIBE on topic %q to this user: %w", p.topic, err))
}

// produce sends what the input gives, waits for the acknowledgements and reports.
func (p *producer) produce(ctx context.Context, cl *kgo.Client, partitions int) error {
	began := time.Now()
	var s spread
	fails := &failures{}
	pace := &pacer{rate: p.rate, began: began}
	send := func(r *kgo.Record) error {
		if err := pace.wait(ctx); err != nil {
			return err
		}
		// Not ctx: an interrupt ends the input, and what was read is still written.
		cl.Produce(context.WithoutCancel(ctx), r, func(r *kgo.Record, err error) {
			if err != nil {
				fails.add(err)
				return
			}
			s.add(r)
		})
		return fails.first()
	}
	err := stoppedOr(ctx, p.input(ctx, send))
	if flushErr := p.flush(ctx, cl); flushErr != nil {
		err = flushErr
	}
	rep := s.report(p.topic, partitions)
	rep.Failed, rep.Seconds = fails.count(), round(time.Since(began).Seconds())
	if reportErr := p.print(rep); err == nil {
		err = reportErr
	}
	if failed := fails.first(); errors.Is(failed, kerr.TopicAuthorizationFailed) || errors.Is(failed, kerr.ClusterAuthorizationFailed) {
		err = p.forbidden(failed)
	} else if failed != nil {
		err = fmt.Errorf("%s records were not written: %w", count(rep.Failed), failed)
	}
	return err
}

func (p *producer) input(ctx context.Context, send func(*kgo.Record) error) error {
	if p.generate < 0 {
		if isTerminalReader(p.in) {
			_, _ = fmt.Fprintln(p.err, "reading lines from the terminal; end with ctrl-D")
		}
		l := &lines{json: p.format == "json", separator: p.separator}
		return l.read(ctx, p.in, send)
	}
	gen := generator{size: p.size, keys: newKeys(p.keys, p.zipf, p.seed)}
	for n := 0; p.generate == 0 || n < p.generate; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := send(gen.record(n)); err != nil {
			return err
		}
	}
	return nil
}

// flush waits for the acknowledgements; a second interrupt gives that up.
func (p *producer) flush(ctx context.Context, cl *kgo.Client) error {
	waiting, cancel := context.WithCancel(context.Background())
	defer cancel()
	if hard := hardStop(ctx); hard != nil {
		go func() {
			select {
			case <-hard:
				cancel()
			case <-waiting.Done():
			}
		}()
	}
	if err := cl.Flush(waiting); err != nil {
		return &exitError{fmt.Errorf("interrupted while %d records were not acknowledged: they may or may not have been written", cl.BufferedProduceRecords()), exitInterrupted}
	}
	return nil
}

func (p *producer) print(rep spreadReport) error {
	if p.json {
		writeJSON(p.out, rep)
		return nil
	}
	_, _ = fmt.Fprintf(p.err, "produced %s records to %s in %.1f s\n", count(rep.Produced), rep.Topic, rep.Seconds)
	return rep.printTable(p.out)
}

// failures remembers the first of the errors.
type failures struct {
	mu  sync.Mutex
	n   int64
	err error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if f.err == nil {
		f.err = err
	}
}

func (f *failures) first() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *failures) count() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// pacer holds a rate by looking at the time that has passed since the start, so that a pause is caught up with.
type pacer struct {
	rate  float64
	began time.Time
	n     int64
}

func (p *pacer) wait(ctx context.Context) error {
	if p.rate <= 0 {
		return nil
	}
	due := p.began.Add(time.Duration(float64(p.n) / p.rate * float64(time.Second)))
	p.n++
	ahead := time.Until(due)
	if ahead < time.Millisecond { // timers are not finer
		return nil
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
