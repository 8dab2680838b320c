package engine

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/engine/window"
	"github.com/gaplesshq/gapless/tracker"
	"github.com/gaplesshq/gapless/workers"
	"github.com/twmb/franz-go/pkg/kgo"
)

// tp names a partition.
type tp struct {
	topic     string
	partition int32
}

// A lane's items are the client's records, as it delivered them; their numbers are those of the tracker. The pool holds a
// record from Push to Release.
type (
	lane = workers.Lane[*kgo.Record]
	task = workers.Task[*kgo.Record]
	look = workers.Look[*kgo.Record]
)

// item is a record in a lane with what belongs to it.
type item struct {
	rec *kgo.Record
	seq tracker.Seq
	st  *retryState // nil until an attempt failed or has outputs: the success path allocates nothing
}

func itemOf(l look) item {
	it := item{rec: *l.Item, seq: tracker.Seq(l.Number)}
	if l.Memo != nil {
		it.st = l.Memo.(*retryState)
	}
	return it
}

// phase is where an epoch stands. It only ever grows, but for suspended, which a good heartbeat takes back.
type phase int32

const (
	phaseStarting phase = iota // assigned; its start offset is not known yet
	phaseActive                // its records are fetched and handled
	phaseDraining              // revoked or stopping: nothing starts any more, what runs may finish and be committed
	phaseClosed                // handed over, or lost: a completion changes nothing but a counter, and nothing is committed
)

// epoch is one assignment of one partition to this member (contract C3). Every record, completion and commit belongs to one.
type epoch struct {
	tp
	topicID [16]byte
	owner   Owner
	single  Handler       // with its middleware
	batch   BatchHandler  // one of the two is nil
	ended   chan struct{} // closed once it is handed over or lost

	phase atomic.Int32
	lane  *lane
	tr    *tracker.Tracker
	ctx   atomic.Pointer[handlerCtx]

	begun     bool // something was delivered; the fetch loop's own
	suspected bool // its records may have ended the process: they run one at a time. It does not change while the epoch is active
	crash     crashes
	drained   atomic.Bool // its drain is over: what is committed now is a clean end

	// Business keys: see dedupe.go.
	keyed    bool
	scope    dedupe.Scope
	unkeyed  atomic.Bool     // a record without one was seen
	starting context.Context // ends when nothing more is to start
	noStarts context.CancelFunc

	rowDirty atomic.Bool   // the store is to get its window
	rowSeq   atomic.Uint64 // of the group that the window first went with
	rowBuf   []byte

	// The resume window: see resume.go.
	before  atomic.Pointer[window.Window] // what an earlier owner left, while part of it has not been delivered
	joining sync.Mutex                    // held while records come that before may speak of, and by who takes a window; never across a wait
	hasRun  bool                          // the fetch loop's own
	lastRun int32

	mu sync.Mutex // guards what follows; never held across a wait

	// What the group had at the assignment.
	hasCommit   bool
	committedAt int64 // -1: none
	commitEpoch int32
	partitions  int32 // of the topic when it was first claimed, as its commits say; 0: not known
	metadata    string
	bypassBelow int64 // business marks do not count below this offset: an operator has rewound the group

	// Progress.
	acked       int64  // acknowledged by the broker in this epoch, or found at the assignment; -1: none
	claim       bool   // commit even though the frontier has not moved: the resolved start is to survive a restart
	said        string // the window that was acknowledged
	saidPlain   bool   // nothing was settled beyond the frontier then, nor was a record announced
	runs        []window.Epoch
	commitErr   error
	commitFails int

	// What is held in memory.
	slices []slice
	bytes  int64

	// Why the partition is paused at the client; 0 = it is not.
	stops    stopReason
	stopErr  error
	retryAt  time.Time // when a fetch error is tried again
	isPaused bool      // as the client was last told
	pause    pauseNote // since when, and what was said of it
	backoff  time.Duration

	held map[*retryState]struct{} // parked for a retry, for outputs or for a dead letter
	keys keyMemory

	outputs, deadLetters writeFailure // what can't be written now

	settled *breaker // counts its topic's successes

	counted int64  // of bytes, in flowState.total; this and round are under the engine's lock
	round   uint64 // of flow that saw it last

	// The log, as last heard of.
	logStart, hwm, lso atomic.Int64
	heard              atomic.Int64 // unix nanoseconds of the last record delivered
	asked              atomic.Int64 // unix nanoseconds of the last answer of the brokers to where its log ends
	handled            atomic.Int64 // records that handlers have settled, counted a chunk at a time
	failures           atomic.Int64 // attempts that failed
	lostRecords        atomic.Int64 // deleted by retention before they were read
	passed             atomic.Int64 // redelivered, and settled by an earlier owner
	emptied            progress     // when logEndLoop first found the log's start beyond the position, with nothing behind it
}

// handlerCtx is a context with its end; the pair is replaced when a suspended epoch resumes.
type handlerCtx struct {
	context.Context
	cancel context.CancelCauseFunc
}

// slice is a run of records of one fetch: what it pins counts whole until each of its records is finished or copied.
type slice struct {
	first     tracker.Seq
	n         int
	bytes     int64 // of the fetch; 0 once everything that is left is copied
	copies    int64 // of the copies that were made of leftovers
	copied    bool
	leftover  bool      // most of it is done
	looked    int       // how much was left when the lane was last looked through for it
	at        time.Time // delivered
	timestamp time.Time // of its first record
}

// stopReason is why a partition's fetching is paused: a set of bits.
type stopReason uint16

const (
	stopRecords     stopReason = 1 << iota // PartitionRecords are held
	stopBytes                              // PartitionBytes are pinned
	stopTotal                              // MaxBytes are pinned in all
	stopSpan                               // too many deliveries behind a stuck head
	stopFetchError                         // a fetch error that does not heal by itself; tried again later
	stopDataLoss                           // retention overtook the group, and OnDataLoss is stop
	stopHold                               // a handler said Hold, or GiveUpHold
	stopBreaker                            // the breaker of the topic is open
	stopKeys                               // AfterKeyMax keys are remembered
	stopDeadLetter                         // a dead letter can't be written
	stopOutputs                            // outputs can't be written
	stopTopicGone                          // the topic was deleted
	stopNotAssigned                        // the brokers can't name the ends of its log
	stopStore                              // the dedupe store can't write
)

var stopNames = []struct {
	bit  stopReason
	name string
}{
	{stopRecords, "records"}, {stopBytes, "bytes"}, {stopTotal, "total_bytes"}, {stopSpan, "span"}, {stopFetchError, "fetch_error"},
	{stopDataLoss, "data_loss"}, {stopHold, "hold"}, {stopBreaker, "breaker"}, {stopKeys, "dead_letter_keys"},
	{stopDeadLetter, "dead_letter_topic"}, {stopOutputs, "output_topic"}, {stopTopicGone, "topic_deleted"}, {stopNotAssigned, "not_assigned"},
	{stopStore, "dedupe_store"},
}

// stopsWork are the reasons for which also no waiting record starts.
const stopsWork = stopHold | stopBreaker | stopKeys | stopDataLoss | stopTopicGone | stopStore

// stopsBriefly are the reasons that go away by themselves, so that it is worth looking again soon.
const stopsBriefly = stopRecords | stopBytes | stopTotal | stopSpan | stopFetchError

func (s stopReason) strings() (names []string) {
	for _, n := range stopNames {
		if s&n.bit != 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// byName orders epochs by topic and partition, for logs that can be compared.
func byName(a, b *epoch) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
}

func (ep *epoch) is(p phase) bool { return phase(ep.phase.Load()) == p }

// advance moves the phase on; false if it is there or further already.
func (ep *epoch) advance(to phase) bool {
	for {
		now := ep.phase.Load()
		if phase(now) >= to {
			return false
		}
		if ep.phase.CompareAndSwap(now, int32(to)) {
			return true
		}
	}
}

func (ep *epoch) newCtx() {
	ctx, cancel := context.WithCancelCause(context.Background())
	ep.ctx.Store(&handlerCtx{ctx, cancel})
}

func (ep *epoch) endCtx(cause error) { ep.ctx.Load().cancel(cause) }

// opened is the lane; nil while the start is not known. The tracker comes and goes with it.
func (ep *epoch) opened() *lane {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.lane
}

// frontier is the offset to commit.
func (ep *epoch) frontier() int64 {
	if ep.opened() == nil {
		return -1
	}
	offset, _ := ep.tr.Frontier()
	return offset
}

// running says whether handlers or outputs of this epoch are still under way.
func (ep *epoch) running() bool {
	lane := ep.opened()
	if lane == nil {
		return false
	}
	_, running, held := lane.Len()
	return running+held > 0
}

// hold registers st so that a drain can give it up. False: the epoch is draining, and st must not be parked.
func (ep *epoch) hold(st *retryState) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if phase(ep.phase.Load()) >= phaseDraining && !st.acking() {
		return false
	}
	if ep.held == nil {
		ep.held = map[*retryState]struct{}{}
	}
	ep.held[st] = struct{}{}
	return true
}

// unhold says whether fetching may go on because of it.
func (ep *epoch) unhold(st *retryState) bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	delete(ep.held, st)
	return ep.written(st)
}

// laneID is the identity of a partition in this process: a lane that is reopened under it waits for the keys that an earlier
// epoch's handlers still hold (C6).
func (e *Engine) laneID(p tp) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, ok := e.laneIDs[p]
	if !ok {
		id = uint64(len(e.laneIDs)) + 1
		e.laneIDs[p] = id
	}
	return id
}
