package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/integration/kafkatest"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// soak is one run.
type soak struct {
	o       options
	cluster *kafkatest.Cluster
	brokers []string
	cl      *kgo.Client // the independent client: it asks, and reads the dead letters
	adm     *kadm.Client
	work    string // stores and journal; gone in the end
	journal *journal
	ledger  *ledger
	feed    *feed
	began   time.Time
	out     *json.Encoder // samples.jsonl

	mu      sync.Mutex
	lives   int
	livesOf []int
	members []*member // by index; nil: away
	events  []event
	samples []sample
	cancel  context.CancelCauseFunc
}

// drainWithin is how long what is left may take after the last record was sent. It is far more than it should need.
const drainWithin = 5 * time.Minute

// run is the whole soak. Its error is nil where nothing is wrong.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	progress := stdout
	if o.json {
		progress = stderr
	}
	_, _ = fmt.Fprintf(progress, "soak: %s\nsoak: writes to %s\n", o.again(), o.out)
	s, err := newSoak(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	samplesFile, err := os.Create(filepath.Join(o.out, "samples.jsonl"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, samplesFile.Close()) }()
	s.out = json.NewEncoder(samplesFile)
	r, err := s.play(ctx, progress)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted: there is no result")
		}
		return err
	}
	if err := r.write(o.out); err != nil {
		return err
	}
	if err := r.print(stdout, o.json); err != nil {
		return err
	}
	if len(r.Problems) > 0 {
		return fmt.Errorf("%s", r.Problems[0])
	}
	return nil
}

func newSoak(ctx context.Context, o options) (s *soak, err error) {
	s = &soak{o: o, ledger: newLedger(o), livesOf: make([]int, o.members), members: make([]*member, o.members)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	// On the same disk as what is written for good: the temporary folder may be in memory.
	if s.work, err = os.MkdirTemp(o.out, "work-"); err != nil {
		return nil, err
	}
	if s.journal, err = newJournal(filepath.Join(s.work, "journal")); err != nil {
		return nil, err
	}
	if s.cluster, err = kafkatest.New(ctx); err != nil {
		return nil, err
	}
	s.brokers = s.cluster.Brokers()
	if s.cl, err = kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.ClientID("soak")); err != nil {
		return nil, err
	}
	s.adm = kadm.NewClient(s.cl)
	if _, err := s.adm.CreateTopic(ctx, int32(o.partitions), -1, nil, topic); err != nil {
		return nil, fmt.Errorf("create the topic %s: %w", topic, err)
	}
	s.feed, err = newFeed(s)
	return s, err
}

// close ends what still runs, and removes what was for the run only.
func (s *soak) close() error {
	var errs []error
	for _, m := range s.present() {
		errs = append(errs, s.kill(m))
	}
	if s.feed != nil {
		s.feed.cl.Close()
	}
	if s.cl != nil {
		s.cl.Close()
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close())
	}
	if s.journal != nil {
		errs = append(errs, s.journal.f.Close())
	}
	if s.work != "" {
		errs = append(errs, os.RemoveAll(s.work))
	}
	return errors.Join(errs...)
}

// fail ends the run with err, the first time.
func (s *soak) fail(err error) { s.cancel(err) }

// play runs the load and the churn beside each other, waits until all is handled, and looks at what came of it.
func (s *soak) play(ctx context.Context, progress io.Writer) (*result, error) {
	ctx, s.cancel = context.WithCancelCause(ctx)
	defer s.cancel(nil)
	var joining errgroup.Group
	for i := range s.o.members {
		joining.Go(func() error { return s.join(ctx, i) })
	}
	if err := joining.Wait(); err != nil {
		return nil, err
	}
	s.began = time.Now()
	s.ledger.start(s.began)

	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watch, load errgroup.Group
	watch.Go(func() error { return s.orFail(s.readJournal(watching)) })
	watch.Go(func() error { return s.orFail(s.takeSamples(watching, progress)) })
	load.Go(func() error { return s.orFail(s.feed.run(ctx)) })
	load.Go(func() error { return s.orFail(s.churn(ctx)) })
	if err := load.Wait(); err != nil {
		return nil, err
	}
	if err := s.awaitCalm(ctx); err != nil {
		return nil, err
	}
	stopWatching()
	if err := watch.Wait(); err != nil {
		return nil, err
	}
	s.sampleNow(ctx, progress)
	return s.finish(ctx)
}

// orFail ends the run where one of its parts fails.
func (s *soak) orFail(err error) error {
	if err != nil {
		s.fail(err)
	}
	return err
}

// readJournal reads along until ctx ends.
func (s *soak) readJournal(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.journal.rest(s.ledger.hear); err != nil {
			return err
		}
	}
}

// awaitCalm waits until the group has committed all there is, and every member is well.
func (s *soak) awaitCalm(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, drainWithin, fmt.Errorf("the group did not come to rest within %v", drainWithin))
	defer cancel()
	for {
		lag, err := s.lag(ctx)
		if err == nil && lag == 0 && s.healthy(ctx) {
			return nil
		}
		if stop := pause(ctx, 200*time.Millisecond); stop != nil {
			return errors.Join(fmt.Errorf("%w; its lag is %d", stop, lag), err)
		}
	}
}

func (s *soak) healthy(ctx context.Context) bool {
	for _, m := range s.present() {
		if a, err := m.tell(ctx, order{}); err != nil || len(a.Problems) > 0 {
			return false
		}
	}
	return true
}

// lag is what the logs have beyond the group's commits, as an independent client reads both.
func (s *soak) lag(ctx context.Context) (n int64, err error) {
	ends, err := s.adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return -1, err
	}
	commits, err := s.adm.FetchOffsets(ctx, group)
	if err != nil {
		return -1, err
	}
	ends.Each(func(end kadm.ListedOffset) {
		at := int64(0)
		if c, ok := commits.Lookup(topic, end.Partition); ok {
			at = max(c.At, 0)
		}
		n += end.Offset - at
	})
	return n, nil
}

// pause waits, or says why not.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
