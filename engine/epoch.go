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

// epoch is one assignment of one partition to this member (contract C3). Every record, completion and commit belongs to one. Small fields
// stand together, as there may be ten thousand of it.
type epoch struct {
	tp
	topicID [16]byte
	owner   Owner
	single  Handler      // with its middleware
	batch   BatchHandler // one of the two is nil

	phase   atomic.Int32
	lastRun int32 // the fetch loop's own, see resume.go
	lane    *lane
	tr      *tracker.Tracker
	ctx     atomic.Pointer[handlerCtx] // nil until something is delivered

	begun     bool        // something was delivered; the fetch loop's own
	hasRun    bool        // so is this: there is a lastRun
	keyed     bool        // it has business keys
	suspected bool        // its records may have ended the process: they run one at a time. It does not change while the epoch is active
	drained   atomic.Bool // its drain is over: what is committed now is a clean end
	unkeyed   atomic.Bool // a record without a business key was seen
	rowDirty  atomic.Bool // the store is to get its window
	crash     crashes
	business  *business // nil without business keys

	rowSeq atomic.Uint64 // of the group that the window first went with

	// The resume window: see resume.go.
	before  atomic.Pointer[window.Window] // what an earlier owner left, while part of it has not been delivered
	joining sync.Mutex                    // held while records come that before may speak of, and by who takes a window; never across a wait

	mu sync.Mutex // guards what follows; never held across a wait

	ended     chan struct{} // see over
	closed    bool
	hasCommit bool       // at the assignment; what it was follows
	claim     bool       // commit even though the frontier has not moved: the resolved start is to survive a restart
	saidPlain bool       // nothing was settled beyond the frontier in what was said, nor was a record announced
	isPaused  bool       // as the client was last told
	stops     stopReason // why it is, or should be; 0 = for nothing
	troubles  *troubles

	// What the group had at the assignment.
	committedAt int64 // -1: none
	commitEpoch int32
	partitions  int32 // of the topic when it was first claimed, as its commits say; 0: not known
	metadata    string
	bypassBelow int64 // business marks do not count below this offset: an operator has rewound the group

	// Progress.
	acked int64      // acknowledged by the broker in this epoch, or found at the assignment; -1: none
	said  saidWindow // of the window that was acknowledged
	runs  []window.Epoch

	// What is held in memory.
	slices []slice
	bytes  int64

	held map[*retryState]struct{} // parked for a retry, for outputs or for a dead letter
	keys *keyMemory               // where DeadLetter.AfterKey needs one

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
	emptied            *progress    // when logEndLoop first found the log's start beyond the position, with nothing behind it; nil = it did not
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
	waits     tracker.Seq // one of what was copied
	leftover  bool        // most of it is done
	left      int         // not finished, at the last look
	looked    int         // and when the lane was last looked through for it
	at        time.Time   // delivered
	timestamp time.Time   // of its first record
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

func newHandlerCtx() *handlerCtx {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &handlerCtx{ctx, cancel}
}

// needCtx makes the context before the first record that needs it is there.
func (ep *epoch) needCtx() {
	if ep.ctx.Load() == nil {
		ep.ctx.CompareAndSwap(nil, newHandlerCtx())
	}
}

// endCtx ends the context, for records that are still to come as well.
func (ep *epoch) endCtx(cause error) {
	ep.needCtx()
	ep.ctx.Load().cancel(cause)
}

// over is closed once the epoch is handed over or lost.
func (ep *epoch) over() <-chan struct{} {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.ended == nil {
		ep.ended = make(chan struct{})
		if ep.closed {
			close(ep.ended)
		}
	}
	return ep.ended
}

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

// business is what an epoch with business keys has besides: see dedupe.go.
type business struct {
	scope    dedupe.Scope
	starting context.Context // ends when nothing more is to start
	noStarts context.CancelFunc
}

// noStarts ends what waits to start.
func (ep *epoch) noStarts() {
	if ep.business != nil {
		ep.business.noStarts()
	}
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
	topic, ok := e.laneIDs[p.topic]
	if !ok {
		topic = uint64(len(e.laneIDs)) + 1
		e.laneIDs[p.topic] = topic
	}
	return topic<<32 | uint64(uint32(p.partition))
}
