package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// demo is one run.
type demo struct {
	o       options
	plan    *plan
	journal *journal
	log     zerolog.Logger
	logFile *os.File

	ctx  context.Context // ends when the run is interrupted or something fails
	fail context.CancelCauseFunc

	brokers []string
	source  atomic.Pointer[feed] // once it is there
	witness atomic.Pointer[witness]

	mu      sync.Mutex
	members []*member
	story   []event

	deadLettered atomic.Int64 // for the live view; the verdict reads the topic
}

// event is a line of the story that the live view tells.
type event struct {
	at   time.Duration
	text string
}

func newDemo(o options) (*demo, error) {
	d := &demo{o: o, plan: newPlan(o), journal: newJournal(o.records, o.partitions), log: zerolog.Nop()}
	if o.log != "" {
		f, err := os.Create(o.log)
		if err != nil {
			return nil, fmt.Errorf("--log: %w", err)
		}
		d.logFile = f
		d.log = zerolog.New(f).With().Timestamp().Logger()
	}
	d.ctx, d.fail = context.WithCancelCause(context.Background())
	return d, nil
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
	if d.logFile != nil {
		defer func() { err = errors.Join(err, d.logFile.Close()) }()
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(d.o.partitions), topic))
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
	ev.order, ev.quiet = d.o.order, leave(d.o.leave) == leaveQuiet
	ev.planned, ev.poisonous, ev.retries = len(d.plan.records), d.plan.poisonous, d.plan.retries
	ev.handlings, ev.samples, ev.seconds = d.journal.all(), samples, seconds
	if stalled != nil {
		ev.troubles = append(ev.troubles, stalled.Error())
	}
	return judge(ev), nil
}
