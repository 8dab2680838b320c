package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gaplesshq/gapless/integration/kafkatest"
	"github.com/gaplesshq/gapless/integration/torture/outside"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// world is where a round takes place: a topic and a group of its own on the ground's brokers, and members that are processes.
type world struct {
	*ground
	score *score
	now   *playing
	log   *schedule.Log
	dir   string // of the round's files
	said  *os.File

	*outside.Client // from Begin on
	round           *schedule.Round
	networks        []*kafkatest.Network // of the hosts; nil: they go to the brokers directly
	crashes         chan schedule.Crash

	mu        sync.Mutex
	members   map[schedule.Member]*process
	down      map[int]bool // brokers that are killed, stopped or paused
	faults    map[faulty]schedule.NetworkFault
	copies    []*left
	copyError error
	closed    bool
	watching  sync.WaitGroup
}

// faulty is what a network fault is about: a host or a broker.
type faulty struct{ host, broker int }

func newWorld(g *ground, s *score, now *playing, l *schedule.Log, dir string, networks []*kafkatest.Network) (*world, error) {
	said, err := os.OpenFile(filepath.Join(dir, "members.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &world{
		ground: g, score: s, now: now, log: l, dir: dir, said: said, networks: networks, crashes: make(chan schedule.Crash, 100),
		members: map[schedule.Member]*process{}, down: map[int]bool{}, faults: map[faulty]schedule.NetworkFault{},
	}, nil
}

// Supports implements schedule.World.
func (w *world) Supports(a schedule.Action) bool { return supports(a) }

// supports: a real world can do all, but on a system that can't pause a process.
func supports(a schedule.Action) bool {
	return runtime.GOOS != "windows" || a != schedule.Pause && a != schedule.PauseBroker
}

// Begin implements schedule.World.
func (w *world) Begin(ctx context.Context, r *schedule.Round) error {
	w.round = r
	topic := fmt.Sprintf("torture-%d-%d", r.Seed, time.Now().UnixMilli())
	var err error
	if w.Client, err = outside.New(topic, topic+"-group", kgo.SeedBrokers(w.cluster.Brokers()...), kgo.ClientID("torture"), kgo.RequestTimeoutOverhead(4*time.Second)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	configs := map[string]string{}
	if r.Kind == schedule.Compacted {
		configs = map[string]string{
			"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": never,
		}
	}
	if err := w.Create(ctx, r.Partitions, -1, configs); err != nil {
		return err
	}
	if _, err := w.cluster.Admin().CreateTopic(ctx, int32(r.Partitions), -1, nil, w.deadLetters()); err != nil {
		return fmt.Errorf("create topic %s: %w", w.deadLetters(), err)
	}
	for key, d := range map[string]time.Duration{"consumer.session.timeout.ms": r.Session, "consumer.heartbeat.interval.ms": r.Heartbeat} {
		if err := w.alter(ctx, groupConfig, w.Group, key, strconv.FormatInt(d.Milliseconds(), 10)); err != nil {
			return err
		}
	}
	return nil
}

// Produce implements schedule.World.
func (w *world) Produce(ctx context.Context, ms []schedule.Message) error {
	err := w.Client.Produce(ctx, ms)
	if err == nil {
		w.score.records.Add(int64(len(ms)))
	}
	return err
}

// Transact implements schedule.World.
func (w *world) Transact(ctx context.Context, ms []schedule.Message, open time.Duration, commit bool) error {
	err := w.Client.Transact(ctx, ms, open, commit)
	if err == nil {
		w.score.records.Add(int64(len(ms)))
	}
	return err
}

// groupConfig is the kind of the settings of a group.
const groupConfig = kmsg.ConfigResourceType(32)

func (w *world) deadLetters() string { return outside.DeadLetterTopic(w.Topic) }

// DeadLetters implements schedule.World. A topic that takes no timestamp from the past takes no dead letter.
func (w *world) DeadLetters(ctx context.Context, can bool) error {
	oldest := never
	if !can {
		oldest = "0"
	}
	return w.alter(ctx, kmsg.ConfigResourceTypeTopic, w.deadLetters(), "message.timestamp.before.max.ms", oldest)
}

// never is the brokers' longest time, in milliseconds.
const never = "9223372036854775807"

// Compact implements schedule.World. Brokers compact all the time what may be compacted; here nothing may but for a moment.
func (w *world) Compact(ctx context.Context) error {
	if err := w.alter(ctx, kmsg.ConfigResourceTypeTopic, w.Topic, "min.compaction.lag.ms", "0"); err != nil {
		return err
	}
	select {
	case <-time.After(compactFor):
	case <-ctx.Done():
	}
	return w.alter(ctx, kmsg.ConfigResourceTypeTopic, w.Topic, "min.compaction.lag.ms", never)
}

// compactFor is enough for a cleaner that looks ten times a second.
const compactFor = time.Second

// alter changes one setting that the brokers keep of a topic or a group. It is tried until it works, for a while: brokers are killed on
// purpose.
func (w *world) alter(ctx context.Context, kind kmsg.ConfigResourceType, name, key, value string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := w.set(ctx, kind, name, key, value)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

func (w *world) set(ctx context.Context, kind kmsg.ConfigResourceType, name, key, value string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value, c.Op = key, &value, kmsg.IncrementalAlterConfigOpSet
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, w.operator)
	if err == nil && len(resp.Resources) == 1 {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("set %s of %s: %w", key, name, err)
	}
	return nil
}

// patience bounds what an operator does. Brokers that are killed and restarted answer within it.
const patience = 2 * time.Minute

// KillBroker implements schedule.World.
func (w *world) KillBroker(_ context.Context, broker int) error {
	w.mark(broker, true)
	return w.cluster.Kill(broker)
}

// StopBroker implements schedule.World.
func (w *world) StopBroker(_ context.Context, broker int) error {
	w.mark(broker, true)
	return w.cluster.Stop(broker)
}

// StartBroker implements schedule.World.
func (w *world) StartBroker(ctx context.Context, broker int) error {
	defer w.mark(broker, false)
	return w.cluster.Restart(ctx, broker)
}

// PauseBroker implements schedule.World.
func (w *world) PauseBroker(_ context.Context, broker int) error {
	w.mark(broker, true)
	return w.cluster.Pause(broker)
}

// ResumeBroker implements schedule.World.
func (w *world) ResumeBroker(_ context.Context, broker int) error {
	w.mark(broker, false)
	return w.cluster.Continue(broker)
}

func (w *world) mark(broker int, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[broker] = down
}

// Network implements schedule.World.
func (w *world) Network(_ context.Context, f schedule.NetworkFault) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[faulty{f.Member.Host, f.Broker}] = f
	for i, n := range w.networks {
		host := i + 1
		if f.Member.Host != 0 && f.Member.Host != host {
			continue
		}
		for _, broker := range w.cluster.Nodes() {
			if f.Broker != 0 && f.Broker != broker {
				continue
			}
			if err := w.apply(n, host, broker); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply brings about what is wrong between a host and a broker: the host's fault, or else the broker's. The lock is held.
func (w *world) apply(n *kafkatest.Network, host, broker int) error {
	var f schedule.NetworkFault
	for _, at := range []faulty{{0, 0}, {0, broker}, {host, 0}, {host, broker}} {
		if x := w.faults[at]; x.Action != "" {
			f = x
		}
	}
	if err := n.Heal(broker); err != nil {
		return err
	}
	switch f.Action {
	case schedule.Delay:
		return n.Delay(f.Latency, f.Latency/4, broker)
	case schedule.Cut:
		return n.Cut(broker)
	case schedule.HalfOpen:
		return n.Blackhole(broker)
	}
	return nil
}

// disturbed says whether a host may find brokers that don't answer.
func (w *world) disturbed(host int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, f := range w.faults {
		if f.Action != "" && (at.host == 0 || at.host == host) {
			return true
		}
	}
	for _, down := range w.down {
		if down {
			return true
		}
	}
	return false
}

// Close implements schedule.World.
func (w *world) Close() error {
	w.mu.Lock()
	w.closed = true
	members := w.members
	w.members = map[schedule.Member]*process{}
	w.mu.Unlock()
	var errs []error
	for _, m := range members {
		errs = append(errs, m.kill())
	}
	w.watching.Wait()
	for _, n := range w.networks {
		errs = append(errs, n.Heal())
	}
	for broker, down := range w.down {
		if !down {
			continue
		}
		if err := w.cluster.Continue(broker); err != nil { // it does not run
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			errs = append(errs, w.cluster.Restart(ctx, broker))
			cancel()
		}
	}
	if w.Client != nil {
		w.Client.Close()
	}
	return errors.Join(append(errs, w.said.Close())...)
}
