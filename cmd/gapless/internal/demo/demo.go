package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// demo is one run.
type demo struct {
	o       options
	plan    *plan
	dir     string // where the journal and the stores are while it runs
	journal *journal

	ctx  context.Context // ends when the run is interrupted or something fails
	fail context.CancelCauseFunc

	brokers []string
	source  atomic.Pointer[feed] // once it is there
	witness atomic.Pointer[witness]

	mu      sync.Mutex
	members []*member
	lives   map[string]int // by member: how often it was started
	kills   []*kill
	story   []event
}

// event is a line of the story that the live view tells.
type event struct {
	at   time.Duration
	text string
}

func newDemo(o options) (*demo, error) {
	d := &demo{o: o, plan: newPlan(o), lives: map[string]int{}}
	if o.log != "" { // the members append to it
		if err := os.WriteFile(o.log, nil, 0o644); err != nil {
			return nil, fmt.Errorf("--log: %w", err)
		}
	}
	var err error
	if d.dir, err = os.MkdirTemp("", "gapless-demo-"); err != nil {
		return nil, err
	}
	holds := func(order int32) bool { return d.plan.records[order].Kind == kindStuck }
	if d.journal, err = newJournal(filepath.Join(d.dir, "journal"), o.records, o.partitions, holds); err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.dir))
	}
	d.ctx, d.fail = context.WithCancelCause(context.Background())
	return d, nil
}

// close removes what the demo has written, but for what was asked for.
func (d *demo) close() error {
	d.journal.close()
	return os.RemoveAll(d.dir)
}

func (d *demo) tell(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.story = append(d.story, event{time.Since(d.journal.begun), fmt.Sprintf(format, args...)})
}

// run plays the demo and judges it.
func (d *demo) run(ctx context.Context) (f findings, err error) {
	defer d.fail(nil)
	defer context.AfterFunc(ctx, func() { d.fail(context.Cause(ctx)) })()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(d.o.partitions), topic),
		kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		return f, fmt.Errorf("start the embedded broker: %w", err)
	}
	defer cluster.Close()
	d.brokers = cluster.ListenAddrs()

	producer, err := kgo.NewClient(kgo.SeedBrokers(d.brokers...), kgo.ClientID("gapless-demo-producer"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond), kgo.DisableClientMetrics())
	if err != nil {
		return f, err
	}
	defer producer.Close()
	witness, err := newWitness(d.brokers)
	if err != nil {
		return f, err
	}
	defer witness.close()

	d.witness.Store(witness)

	fd := newFeed(d.plan, d.o.rate, producer, d.fail)
	d.source.Store(fd)
	stop := witness.watchCommits(d.ctx, d.journal)
	err = d.play(fd)
	if stopErr := d.leaveAll(); err == nil {
		err = stopErr
	}
	samples := stop()
	seconds := time.Since(d.journal.begun).Seconds()
	if _, jerr := d.journal.catchUp(); err == nil {
		err = jerr
	}
	var stalled *stallError
	if err != nil && (!errors.As(err, &stalled) || d.ctx.Err() != nil) {
		return f, err
	}
	if d.o.journal != "" {
		if err := d.journal.write(d.o.journal); err != nil {
			return f, fmt.Errorf("--journal: %w", err)
		}
	}
	ev, err := witness.testimony(d.ctx)
	if err != nil {
		return f, err
	}
	for _, k := range d.kills {
		if err := k.ask(len(d.plan.records)); err != nil {
			return f, err
		}
	}
	ev.order, ev.workers, ev.kills = d.o.order, d.o.workers, d.kills
	ev.planned, ev.copies, ev.poisonous, ev.retries = len(d.plan.records), d.plan.copies, d.plan.poisonous, d.plan.retries
	ev.handlings, ev.samples, ev.seconds = d.journal.all(), samples, seconds
	if stalled != nil {
		ev.troubles = append(ev.troubles, stalled.Error())
	}
	return judge(ev), nil
}
