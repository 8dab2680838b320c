package virtual

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/proof"
	"github.com/gaplesshq/gapless/integration/torture/outside"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

const topic, group = "t", "g"

// World is a schedule.World within a synctest bubble.
type World struct {
	*outside.Client // reads and writes; the brokers' faults are its own as well

	// Events, if set, hears of the engines' events.
	Events func(m schedule.Member, ev engine.Event)
	// Break, if set, changes each member's configuration.
	Break func(c *engine.Config)

	r       *schedule.Round
	net     *network
	cluster *kfake.Cluster
	journal journal
	crashed chan schedule.Crash
	all     sync.WaitGroup // goroutines of members
	life    context.Context
	end     context.CancelFunc

	mu      sync.Mutex
	runs    map[schedule.Member]*process
	disks   [schedule.Hosts + 1]disk
	marks   []proof.Mark
	faults  map[schedule.NetworkFault]schedule.NetworkFault // what is wrong, by whose network it is
	no      *kfake.FaultHandle                              // of dead letters
	crashes int
}

var _ schedule.World = (*World)(nil)

// NewWorld is a world without anything in it.
func NewWorld() *World {
	w := &World{crashed: make(chan schedule.Crash, 100), runs: map[schedule.Member]*process{}, faults: map[schedule.NetworkFault]schedule.NetworkFault{}}
	w.life, w.end = context.WithCancel(context.Background())
	for i := range w.disks {
		w.disks[i] = newDisk()
	}
	return w
}

// Supports implements schedule.World.
func (w *World) Supports(schedule.Action) bool { return true }

func (w *World) seeds() (addresses []string) {
	for i := range w.r.Brokers {
		addresses = append(addresses, "127.0.0.1:"+strconv.Itoa(firstPort+i))
	}
	return addresses
}

func (w *World) opts() []kgo.Opt { return []kgo.Opt{kgo.MetadataMinAge(50 * time.Millisecond)} }

// settled is a round as the cluster can play it. It gives the partitions of a static KIP-848 member to nobody, ever, where that stops for good,
// and where its session ends while all others, being static, are away for a moment, as an operator's reset has them. Kafka waits for its
// session's end. So members leave for good in such a round.
func settled(r *schedule.Round) *schedule.Round {
	if r.Protocol != engine.ProtocolConsumer {
		return r
	}
	for i, s := range r.Steps {
		comesBack := func(later schedule.Step) bool { return later.Action == schedule.Start && later.Member == s.Member }
		if s.Action == schedule.Reset || s.Action == schedule.Stop && !slices.ContainsFunc(r.Steps[i:], comesBack) {
			other := *r
			other.LeaveOnStop = true
			return &other
		}
	}
	return r
}

// Begin implements schedule.World.
func (w *World) Begin(ctx context.Context, r *schedule.Round) error {
	w.r, w.net = settled(r), newNetwork(r.Brokers)
	ports := make([]int, r.Brokers)
	for i := range ports {
		ports[i] = firstPort + i
	}
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	c, err := kfake.NewCluster(kfake.NumBrokers(r.Brokers), kfake.Ports(ports...), kfake.ListenFn(w.net.Listen), kfake.BrokerConfigs(map[string]string{
		"group.consumer.heartbeat.interval.ms": ms(r.Heartbeat), "group.consumer.session.timeout.ms": ms(r.Session),
	}))
	if err != nil {
		return err
	}
	w.cluster = c
	own := w.net.side()
	own.patient = true // the client does not try again to end a transaction where a connection is refused
	if w.Client, err = outside.New(topic, group, append(w.opts(), kgo.SeedBrokers(w.seeds()...), kgo.Dialer(own.dial))...); err != nil {
		return err
	}
	configs := map[string]string{}
	if r.Kind == schedule.Compacted {
		configs["cleanup.policy"] = "compact"
	}
	if err := w.Create(ctx, r.Partitions, 1, configs); err != nil {
		return err
	}
	w.all.Go(w.keepGroup)
	return nil
}

// run is a member's process.
func (w *World) run(m schedule.Member) (*process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.runs[m]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("there is no %s", m)
}

// readyFor is how long a start waits for the engine: the brokers may not be well.
const readyFor = 3 * time.Second

// Start implements schedule.World.
func (w *World) Start(ctx context.Context, m schedule.Member) error {
	w.mu.Lock()
	d := w.disks[m.Host]
	w.mu.Unlock()
	p, err := w.launch(m, d)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.runs[m] = p
	w.mu.Unlock()
	select {
	case <-p.e.Ready():
	case <-p.e.Done():
	case <-time.After(readyFor):
	case <-ctx.Done():
	}
	return nil
}

// Stop implements schedule.World.
func (w *World) Stop(ctx context.Context, m schedule.Member) error {
	p, err := w.run(m)
	if err != nil {
		return err
	}
	p.end()
	select {
	case err = <-p.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.die() { // handlers that it left behind end with it
		p.net.change(func(s *side) { s.down++ })
		w.note(p)
	}
	var left *engine.AbandonedError
	if err != nil && !errors.Is(err, engine.ErrLastCommit) && !errors.As(err, &left) {
		return fmt.Errorf("%s: %w", m, err)
	}
	return nil
}

// Kill implements schedule.World.
func (w *World) Kill(_ context.Context, m schedule.Member) error {
	p, err := w.run(m)
	if err == nil {
		p.kill()
	}
	return err
}

// inherit gives the host what a process has left on its disk.
func (w *World) inherit(p *process) {
	w.mu.Lock()
	w.crashes++
	left := p.disk.left([]int{0, 50, 100}[(int(w.r.Seed)+w.crashes)%3])
	w.disks[p.m.Host] = left
	w.mu.Unlock()
	p.disk = left
	w.note(p)
}

// note notes which marks are on the disk of a process that has ended.
func (w *World) note(p *process) {
	if !w.r.Dedupe {
		return
	}
	lines, err := w.lines()
	if err != nil {
		panic(err)
	}
	ids, host := map[string]bool{}, "m"+strconv.Itoa(p.m.Host)
	for i := range lines {
		if l := &lines[i]; l.Word == proof.Ended && l.ID != "" && proof.Host(l.Member) == host {
			ids[l.ID] = true
		}
	}
	marks, err := p.disk.marks(host, group+"\x00"+topic, ids)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.marks = append(w.marks, marks...)
}

func (w *World) lines() ([]proof.Line, error) {
	w.journal.mu.Lock()
	defer w.journal.mu.Unlock()
	return proof.ReadJournal(bytes.NewReader(w.journal.text.Bytes()))
}

// Pause implements schedule.World.
func (w *World) Pause(_ context.Context, m schedule.Member) error {
	p, err := w.run(m)
	if err == nil {
		p.pause()
	}
	return err
}

// Resume implements schedule.World.
func (w *World) Resume(_ context.Context, m schedule.Member) error {
	p, err := w.run(m)
	if err == nil {
		p.resume()
	}
	return err
}

// SetWorkers implements schedule.World.
func (w *World) SetWorkers(_ context.Context, m schedule.Member, n int) error {
	p, err := w.run(m)
	if err == nil {
		err = p.e.SetWorkers(n, 0)
	}
	return err
}

// LoseStore implements schedule.World.
func (w *World) LoseStore(_ context.Context, host int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disks[host] = newDisk()
	return nil
}

// Crashed implements schedule.World.
func (w *World) Crashed() <-chan schedule.Crash { return w.crashed }

// sides are those whose network a fault is of.
func (w *World) sides(f schedule.NetworkFault) ([]*side, error) {
	if f.Member != (schedule.Member{}) {
		p, err := w.run(f.Member)
		if err != nil {
			return nil, err
		}
		return []*side{p.net}, nil
	}
	if f.Broker == 0 {
		return w.net.brokers, nil
	}
	return w.net.brokers[f.Broker-1 : f.Broker], nil
}

// Network implements schedule.World.
func (w *World) Network(_ context.Context, f schedule.NetworkFault) error {
	sides, err := w.sides(f)
	if err != nil {
		return err
	}
	whose := schedule.NetworkFault{Member: f.Member, Broker: f.Broker}
	w.mu.Lock()
	before := w.faults[whose]
	w.faults[whose] = f
	w.mu.Unlock()
	for _, s := range sides {
		s.change(func(s *side) {
			s.fault(before, -1)
			s.fault(f, 1)
		})
	}
	return nil
}

// fault puts a fault on a side, or takes it away.
func (s *side) fault(f schedule.NetworkFault, n int) {
	switch f.Action {
	case schedule.Cut:
		s.down += n
	case schedule.HalfOpen:
		s.frozen += n
	case schedule.Delay:
		s.latency += time.Duration(n) * f.Latency
	}
}

func (w *World) broker(n int, f func(*side)) error {
	w.net.brokers[n-1].change(f)
	return nil
}

// KillBroker implements schedule.World. The cluster itself forgets nothing.
func (w *World) KillBroker(_ context.Context, n int) error {
	return w.broker(n, func(s *side) { s.down++ })
}

// StopBroker implements schedule.World.
func (w *World) StopBroker(ctx context.Context, n int) error { return w.KillBroker(ctx, n) }

// StartBroker implements schedule.World.
func (w *World) StartBroker(_ context.Context, n int) error {
	return w.broker(n, func(s *side) { s.down-- })
}

// PauseBroker implements schedule.World.
func (w *World) PauseBroker(_ context.Context, n int) error {
	return w.broker(n, func(s *side) { s.frozen++ })
}

// ResumeBroker implements schedule.World.
func (w *World) ResumeBroker(_ context.Context, n int) error {
	return w.broker(n, func(s *side) { s.frozen-- })
}

// DeadLetters implements schedule.World.
func (w *World) DeadLetters(_ context.Context, can bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if can {
		w.no.Remove()
		return nil
	}
	why := []*kerr.Error{kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed, kerr.KafkaStorageError}[w.r.Seed%3]
	w.no = w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: outside.DeadLetterTopic(topic), Err: why, Count: -1})
	return nil
}

// Compact implements schedule.World.
func (w *World) Compact(context.Context) error {
	w.cluster.Compact()
	return nil
}

// Evidence implements schedule.World.
func (w *World) Evidence(ctx context.Context) (*proof.Evidence, error) {
	ev, err := w.Client.Evidence(ctx)
	if err != nil {
		return nil, err
	}
	ev.Lines, err = w.lines()
	ev.Marks = w.marks
	return ev, err
}

// Close implements schedule.World.
func (w *World) Close() error {
	w.mu.Lock()
	runs := make([]*process, 0, len(w.runs))
	for _, p := range w.runs {
		runs = append(runs, p)
	}
	w.mu.Unlock()
	for _, p := range runs {
		p.kill()
	}
	w.end()
	w.all.Wait()
	time.Sleep(time.Minute) // for handlers that heed nothing: they outlive their engines
	if w.Client != nil {
		w.Client.Close()
	}
	if w.cluster != nil {
		w.cluster.Close()
	}
	return nil
}
