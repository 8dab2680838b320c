package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/gaplesshq/gapless/workers"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// Engine consumes a group's share of its topics. It is made by New, runs once, and is safe for use by several goroutines.
type Engine struct {
	cfg  Config
	log  zerolog.Logger
	pool *workers.Pool[*kgo.Record]

	records *recordpool.Pool // what the client decodes into
	lender  *recordpool.Pool // the same, or nil: see there

	cl   *kgo.Client  // the group consumer
	side *kgo.Client  // asks; neither consumes nor produces
	adm  *kadm.Client // on side
	outs writer       // of outputs
	dead writer       // of dead letters
	late latecomers   // partitions that begin when their logs are back

	clock sessionClock // hears the coordinator's answers (C3)

	mu       sync.Mutex
	epochs   map[tp]*epoch
	laneIDs  map[string]uint64 // by topic
	topics   map[string]topicState
	stopping bool
	sequence uint64
	seen     map[string]bool // warnings that were given
	zombies  map[*epoch]struct{}
	adrift   map[tp]time.Time // lost here, but not at the client, and when to do something about it
	anew     anew             // how often topics were asked for anew in vain

	scratch  []*workerState // by worker number; grows under growMu, read through an atomic snapshot
	scratchP atomic.Pointer[[]*workerState]
	growMu   sync.Mutex

	commitSem   chan struct{} // one commit request at a time (C4)
	committing  snapshotter   // of who holds commitSem
	metadataMax atomic.Int64  // bytes of a commit's metadata; 0 = none is sent
	kick        chan struct{} // asks the committer for a commit
	flowKick    chan struct{} // asks for a look at who may be resumed
	flows       flowState     // whom flow has to look at
	unowned     unowned
	topicKick   chan struct{}       // asks for a look at the topics
	asking      *semaphore.Weighted // everyAsk's is taken while the side client forgets what it knows of them

	sizes *crewSizes // how many handlers run at once

	marks    marks
	breakers breakers
	counts   counters
	lat      latencies

	connected chan struct{} // closed once cl is set; its callbacks may run before
	ready     chan struct{} // closed once the client consumes
	stopC     chan struct{} // closed by Stop and by a fatal error
	stopOnce  sync.Once
	hardC     chan struct{} // closed when a stop's deadline has come
	hardOnce  sync.Once
	done      chan struct{} // closed when Run has returned
	started   atomic.Bool
	failMu    sync.Mutex
	failure   error
	abandon   *AbandonedError
	unsaved   error       // ErrLastCommit, and why
	givenUp   []Abandoned // at a stop, while they waited for an acknowledgement; under mu
	health    health
	hider     *keyHider // where keys are not to be seen
	sessions  sessions
	failing   failingCommits
	starts    failedStarts
	abort     context.CancelFunc // ends the consumer's client at once
	eventMu   sync.Mutex
}

// New checks cfg and makes an Engine; nothing is connected before Run. The error is a *ConfigError that names the field.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.TLS.enabled() {
		if _, err := cfg.TLS.config(); err != nil {
			return nil, err
		}
	}
	cfg.SASL = cfg.SASL.seal()
	cfg.wrapHandlers()
	e := &Engine{
		cfg:       cfg,
		log:       cfg.Log.With().Str("group", cfg.Group).Logger(),
		epochs:    map[tp]*epoch{},
		laneIDs:   map[string]uint64{},
		topics:    map[string]topicState{},
		seen:      map[string]bool{},
		zombies:   map[*epoch]struct{}{},
		adrift:    map[tp]time.Time{},
		anew:      anew{},
		commitSem: make(chan struct{}, 1),
		kick:      make(chan struct{}, 1),
		flowKick:  make(chan struct{}, 1),
		topicKick: make(chan struct{}, 1),
		asking:    semaphore.NewWeighted(everyAsk),
		sizes:     newCrewSizes(&cfg),
		flows:     flowState{holding: map[*epoch]struct{}{}, brief: map[*epoch]struct{}{}},
		connected: make(chan struct{}),
		ready:     make(chan struct{}),
		stopC:     make(chan struct{}),
		hardC:     make(chan struct{}),
		done:      make(chan struct{}),
		records:   new(recordpool.Pool),
	}
	if cfg.HideKeys {
		e.hider = newKeyHider()
	}
	e.outs.linger = outputLinger
	e.metadataMax.Store(int64(max(cfg.Commit.MetadataBytes, 0)))
	e.clock.init(e)
	opts := workers.Options[*kgo.Record]{
		Total:   e.sizes.total,
		PerLane: e.sizes.per,
		Key:     func(rec **kgo.Record) []byte { return (*rec).Key },
		Same:    func(rec **kgo.Record, key []byte) bool { return bytes.Equal((*rec).Key, key) },
		Handle:  e.handle,
		// Called under the lane's lock.
		Completed: e.settleChunk,
		Release:   func(recs []*kgo.Record) { e.records.Release(recs) },
		Turn:      e.turn,
		Left:      e.left,
		Low:       func(*lane) { e.wakeFlow() },
	}
	if cfg.batching() {
		opts.BatchSize, opts.BatchLinger = cfg.BatchSize, cfg.BatchLinger
		if opts.BatchSize == 1 {
			opts.BatchLinger = 0
		}
	}
	e.pool = workers.New(opts)
	return e, nil
}

// Run consumes until ctx ends, Stop is called or something fatal happens, and then drains, commits and leaves the group. It
// returns nil after a clean stop, an *AbandonedError if handlers outlived the drain or outputs or dead letters could not be
// written by its end, ErrLastCommit, or what was fatal: wrong credentials, a missing topic, an error
// wrapped by End; several of them joined. Nothing of that is a loss: the records are delivered again. An Engine runs once.
func (e *Engine) Run(ctx context.Context) error {
	if !e.started.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer close(e.done)
	if err := e.connect(ctx); err != nil || e.cl == nil { // no client: stopped before it had begun
		return err
	}
	defer e.abort()
	defer e.side.Close()
	defer e.closeStore()
	defer e.outs.close()
	defer e.dead.close()

	life, end := context.WithCancel(context.WithoutCancel(ctx)) // outlives ctx: the drain needs it
	defer end()
	var g errgroup.Group
	fetching, stopFetching := context.WithCancel(life)
	defer stopFetching()
	fetchEnded := make(chan struct{})
	g.Go(func() error { defer close(fetchEnded); e.fetchLoop(fetching); return nil })
	for _, loop := range []func(context.Context){e.commitLoop, e.flowLoop, e.clock.loop, e.watchLoop, e.logEndLoop, e.tuneLoop} {
		g.Go(func() error { loop(life); return nil })
	}
	close(e.ready)

	select {
	case <-ctx.Done():
	case <-e.stopC:
	}
	stopFetching()
	<-fetchEnded
	e.shutdown(life)
	end()
	_ = g.Wait()
	return e.result()
}

// Stop starts the drain and waits for Run to return. It returns by ctx's deadline in every state: then handler contexts end,
// nothing more is waited for, and the error is an *AbandonedError that lists the records whose handlers had not returned.
func (e *Engine) Stop(ctx context.Context) error {
	if !e.started.Load() {
		return ErrNotRunning
	}
	e.beginStop()
	select {
	case <-e.done:
		return e.result()
	case <-ctx.Done():
	}
	left := e.abandoned()
	e.hardOnce.Do(func() { close(e.hardC) })
	for _, ep := range e.allEpochs() {
		ep.mu.Lock() // first: what fails because its context has ended would be tried again at once, until the drain begins
		if ep.lane != nil {
			ep.lane.Pause()
		}
		ep.mu.Unlock()
		ep.endCtx(fmt.Errorf("gapless: hard stop: %w", context.Cause(ctx)))
		if phase(ep.phase.Load()) >= phaseDraining { // else the drain, which is about to begin, does it
			e.giveUpParked(ep)
		}
	}
	if left != nil {
		return left
	}
	return fmt.Errorf("gapless: the stop did not end in time: %w", ctx.Err())
}

// Done is closed when Run has returned.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Ready is closed once Run has passed its checks at start and consumes.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

func (e *Engine) beginStop() { e.stopOnce.Do(func() { close(e.stopC) }) }

// fail ends the engine with err, once.
func (e *Engine) fail(err error) {
	e.failMu.Lock()
	if e.failure == nil {
		e.failure = err
	}
	e.failMu.Unlock()
	e.beginStop()
}

func (e *Engine) result() error {
	e.failMu.Lock()
	defer e.failMu.Unlock()
	var errs []error
	if e.failure != nil {
		errs = append(errs, e.failure)
	}
	if e.abandon != nil {
		errs = append(errs, e.abandon)
	}
	if e.unsaved != nil {
		errs = append(errs, e.unsaved)
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// noteLastCommit keeps the error of a stop's commit for Run's result.
func (e *Engine) noteLastCommit(err error) {
	e.failMu.Lock()
	defer e.failMu.Unlock()
	e.unsaved = fmt.Errorf("%w: %w", ErrLastCommit, err)
}

func (e *Engine) allEpochs() []*epoch {
	e.mu.Lock()
	defer e.mu.Unlock()
	eps := make([]*epoch, 0, len(e.epochs))
	for _, ep := range e.epochs {
		eps = append(eps, ep)
	}
	return eps
}

func (e *Engine) lookup(topic string, partition int32) *epoch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epochs[tp{topic, partition}]
}

// shutdown drains, commits for the last time, leaves the group and closes the client (design section 8). It comes after the
// fetch loop has ended, so that no poll holds a rebalance back.
func (e *Engine) shutdown(life context.Context) {
	e.emit(Event{Name: EventStopping, Partition: -1})
	e.mu.Lock()
	e.stopping = true
	e.mu.Unlock()
	e.cl.AllowRebalance()
	e.drain(life, e.allEpochs(), "stop")
	e.leave()
	e.cl.CloseAllowingRebalance()
	e.cl.AllowRebalance() // Close polls once more itself, and a leave that was given up at its deadline would wait for that for ever
	e.flush()
	left := e.abandoned()
	if left != nil {
		e.failMu.Lock()
		e.abandon = left
		e.failMu.Unlock()
	}
	if !left.running() {
		e.pool.Wait()
	}
	e.emit(Event{Name: EventStopped, Partition: -1})
}

// leave takes the member out of the group: a dynamic one at once, a static one keeps its place unless it was asked to leave.
func (e *Engine) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.CommitTimeout)
	defer cancel()
	member, _ := e.cl.GroupMetadata()
	left := e.cl.LeaveGroupContext(ctx)
	err := ctx.Err()
	if err != nil {
		e.abort() // the client would wait on for the answer to a join that is out, and only then leave
	} else if left != nil && !errors.Is(left, context.Canceled) {
		e.log.Debug().Err(left).Msg("leaving the group")
	}
	if e.cfg.InstanceID != "" && member != "" {
		err = e.leaveStatic(ctx, member)
	}
	if err != nil {
		e.emit(Event{Name: EventLeaveFailed, Partition: -1, Err: err, Hint: "the group keeps this member's partitions until its session ends"})
	}
}

func after(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
