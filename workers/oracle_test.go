package workers

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// The oracle of TestRandomSchedules: it knows of every item what may happen to it next, and says so when something else
// does.

// simRec is what an item of the pool points to; simItem follows it through, whatever copies a hold makes.
type simRec struct {
	key  []byte
	item *simItem
}

type simItem struct {
	lane     *simLane
	number   uint64
	key      string
	noKey    bool
	n        int     // its place among the items of its key in its lane
	rec      *simRec // the one record that stands for it now
	running  bool
	held     bool // and not finished, nor running again
	resumed  bool // Resume was called
	wasHeld  bool
	done     bool // handled to the end, or finished
	marked   bool // by the handler that brought it to its end
	runs     int
	allowed  int // as many times may it run
	released int
}

// memo is what the pool remembers for the item.
func (it *simItem) memo() any {
	if it.wasHeld {
		return it
	}
	return nil
}

type simLane struct {
	*Lane[*simRec]
	number  uint64         // of the next item
	told    map[uint64]int // by number: how often Completed was told; guarded by toldMu
	part    *simPart
	pushed  map[string]int // items by key
	next    map[string]int // the one of the key whose turn it is
	items   []*simItem
	tasks   int // handlers that run
	paused  bool
	closed  bool
	resting bool // paused or closed, and everything has come to rest since
	fulls   int
	lows    int
}

type simPart struct {
	id    uint64
	order Order
	lane  *simLane            // nil while closed
	busy  map[string]*simItem // by key: what runs or is held
	tasks int
	held  map[*simItem]bool
}

type simTicket struct {
	Ticket
	item *simItem
}

type oracle struct {
	t     *testing.T
	rnd   *rand.Rand // of the driver
	pool  *Pool[*simRec]
	batch int
	parts []*simPart

	mu        sync.Mutex
	dice      *rand.Rand // of the handlers
	lanes     []*simLane
	gates     []chan struct{}
	tickets   []simTicket
	running   int
	total     int
	perLane   int
	mostTotal int // what the limits allow until everything has come to rest
	mostLane  int
	easy      bool // handlers return at once
	quick     bool // nearly all do, so that chunks are long and lie where they were pushed
	workers   map[int]bool
	bad       []string

	toldMu sync.Mutex // the last one to be taken
}

func newOracle(t *testing.T, seed uint64) *oracle {
	o := &oracle{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), dice: rand.New(rand.NewPCG(seed, 2)),
		workers: map[int]bool{}, batch: 1, quick: seed%3 == 0,
	}
	opts := Options[*simRec]{
		Total: 1 + o.rnd.IntN(12), PerLane: o.rnd.IntN(6),
		Key: o.key, Handle: o.handle, Release: o.release,
		Completed: o.completed,
		Low: func(l *Lane[*simRec]) {
			o.mu.Lock()
			l.Owner().(*simLane).lows++
			o.mu.Unlock()
		},
		Turn: func(_ int, l *Lane[*simRec], n int, _ time.Duration) {
			if n < 1 || l == nil {
				t.Error("a turn without items")
			}
		},
	}
	if o.rnd.IntN(3) == 0 {
		o.batch = 2 + o.rnd.IntN(20)
		opts.BatchSize, opts.BatchLinger = o.batch, time.Duration(o.rnd.IntN(3))*5*time.Millisecond
	}
	if seed%2 == 0 {
		opts.Same = func(r **simRec, key []byte) bool { return string(o.key(r)) == string(key) }
	}
	o.pool = New(opts)
	if o.rnd.IntN(4) == 0 {
		o.pool.hash = func(key []byte) uint64 { return uint64(len(key)) } // collisions all over
	}
	o.limit(opts.Total, opts.PerLane)
	for i := range 1 + o.rnd.IntN(4) {
		o.parts = append(o.parts, &simPart{
			id: uint64(i), order: Order(o.rnd.IntN(3)), busy: map[string]*simItem{}, held: map[*simItem]bool{},
		})
	}
	return o
}

func (o *oracle) limit(total, perLane int) {
	if perLane == 0 {
		perLane = total
	}
	o.total, o.perLane = total, perLane
	o.mostTotal, o.mostLane = max(o.mostTotal, total), max(o.mostLane, perLane)
}

func (o *oracle) violation(format string, args ...any) {
	if len(o.bad) < 10 {
		o.bad = append(o.bad, fmt.Sprintf(format, args...))
	}
}

func (o *oracle) key(r **simRec) []byte {
	k := (*r).key
	if strings.HasPrefix(string(k), "spoilt") {
		panic("the pool read an item that it had given away")
	}
	return k
}

// give makes a new record for the item, the only one that counts from now on.
func (o *oracle) give(it *simItem) *simRec {
	it.rec = &simRec{item: it}
	if !it.noKey {
		it.rec.key = []byte(it.key)
	}
	return it.rec
}

func (o *oracle) release(items []*simRec) {
	for i := range items {
		o.releaseOne(&items[i])
	}
}

func (o *oracle) releaseOne(r **simRec) {
	it := (*r).item
	(*r).key = []byte("spoilt by release")
	o.mu.Lock()
	defer o.mu.Unlock()
	it.released++
	switch {
	case it.released > 1:
		o.violation("released %d times", it.released)
	case *r != it.rec:
		o.violation("released a record that had been replaced")
	case it.running:
		o.violation("released while running")
	case !it.done && !it.lane.closed:
		o.violation("released without having been handled")
	case it.marked && o.timesTold(it) == 0:
		o.violation("released before Completed was told")
	}
}

// completed hears of items that were marked. It is called under the lane's lock.
func (o *oracle) completed(l *Lane[*simRec], done []Span) {
	o.toldMu.Lock()
	defer o.toldMu.Unlock()
	for _, s := range done {
		for n := range uint64(s.N) {
			l.Owner().(*simLane).told[s.First+n]++
		}
	}
}

// timesTold is how often Completed was told of the item.
func (o *oracle) timesTold(it *simItem) int {
	o.toldMu.Lock()
	defer o.toldMu.Unlock()
	return it.lane.told[it.number]
}

// handle is the handler. It may go on by itself to what its worker has claimed besides.
func (o *oracle) handle(t *Task[*simRec]) {
	o.mu.Lock()
	goesOn := o.dice.IntN(2) == 0
	o.mu.Unlock()
	for o.handleTask(t); goesOn && t.Next(); {
		o.handleTask(t)
	}
}

// once is true once in n times, or rarely.
func (o *oracle) once(n int) bool {
	if o.quick {
		n *= 6
	}
	return o.dice.IntN(n) == 0
}

// handleTask may wait for a gate, hold an item, or return some.
func (o *oracle) handleTask(t *Task[*simRec]) {
	o.mu.Lock()
	items := o.start(t)
	var gate chan struct{}
	if !o.easy && o.once(8) {
		gate = make(chan struct{})
		o.gates = append(o.gates, gate)
	}
	for i, it := range items {
		if it.marked = o.dice.IntN(5) > 0; it.marked {
			t.Mark(i)
		}
	}
	hold, back, say := -1, t.Len(), o.dice.IntN(4)
	switch {
	case o.easy:
	case o.once(10):
		hold = o.dice.IntN(t.Len())
		if items[0].lane.part.order == ByPartition || o.dice.IntN(2) == 0 {
			back = hold + 1
		}
	case o.once(20):
		back = o.dice.IntN(t.Len())
	}
	o.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if hold >= 0 {
		o.hold(t, items[hold], hold, say)
	}
	if back < t.Len() {
		t.Return(back)
	}
	o.mu.Lock()
	o.end(t, items, back)
	o.mu.Unlock()
}

func (o *oracle) hold(t *Task[*simRec], it *simItem, i, say int) {
	o.mu.Lock()
	it.held, it.resumed, it.wasHeld, it.marked = true, false, true, false
	it.lane.part.held[it] = true
	keep := o.give(it)
	o.mu.Unlock()
	old := *t.Item(i)
	ticket := simTicket{t.Hold(i, keep, it), it}
	old.key = []byte("spoilt by its owner")
	switch say {
	case 0, 1: // before the handler has returned
		o.decide(ticket, say == 0)
	default:
		o.mu.Lock()
		o.tickets = append(o.tickets, ticket)
		o.mu.Unlock()
	}
}

// start checks that these items may run now.
func (o *oracle) start(t *Task[*simRec]) (items []*simItem) {
	l := t.Lane().Owner().(*simLane)
	p := l.part
	o.running++
	l.tasks++
	p.tasks++
	if o.running > o.mostTotal {
		o.violation("%d handlers run, the limit is %d", o.running, o.mostTotal)
	}
	if l.tasks > o.mostLane {
		o.violation("%d handlers of a lane run, the limit is %d", l.tasks, o.mostLane)
	}
	if l.resting {
		o.violation("a start in a lane at rest: paused %v, closed %v", l.paused, l.closed)
	}
	if o.workers[t.Worker()] || t.Worker() >= 12+8 {
		o.violation("worker number %d is taken or not dense", t.Worker())
	}
	o.workers[t.Worker()] = true
	if t.Len() < 1 || t.Len() > o.batch {
		o.violation("a task of %d items", t.Len())
	}
	for i := range t.Len() {
		it := (*t.Item(i)).item
		items = append(items, it)
		o.startItem(l, it, i)
		if it.lane != l || *t.Item(i) != it.rec || t.Look(i).Number != it.number || t.Look(i).Memo != it.memo() {
			o.violation("not the item that was pushed, or not its number or memo")
		}
		if t.Resumed(i) != it.wasHeld {
			o.violation("Resumed is %v", t.Resumed(i))
		}
	}
	if p.order == ByPartition {
		if p.tasks > 1 {
			o.violation("two tasks of a lane ByPartition")
		}
		for h := range p.held {
			if !h.finishedByClose() {
				o.violation("a lane ByPartition starts while an item is held")
			}
		}
	}
	return items
}

// finishedByClose: Resume came, the lane was closed, so the pool finished the item.
func (it *simItem) finishedByClose() bool { return it.resumed && it.lane.closed && !it.running }

func (o *oracle) startItem(l *simLane, it *simItem, i int) {
	p := l.part
	it.runs++
	if it.done || it.released > 0 || it.running || it.runs > it.allowed {
		o.violation("a run too many: done %v, released %d, running %v, runs %d of %d",
			it.done, it.released, it.running, it.runs, it.allowed)
	}
	if it.held && !it.resumed {
		o.violation("a held item runs without Resume")
	}
	again := it.held
	it.running, it.held, it.resumed = true, false, false
	delete(p.held, it)
	if p.order == Unordered || it.noKey {
		return
	}
	if p.order == ByKey {
		if b := p.busy[it.key]; b != nil && b != it && !b.finishedByClose() {
			o.violation("key %q overlaps: item %d starts; item %d runs: %v, is held: %v, is of the same lane: %v",
				it.key, it.n, b.n, b.running, b.held, b.lane == it.lane)
		}
		p.busy[it.key] = it
	}
	if again {
		if p.order == ByPartition && i > 0 {
			o.violation("a resumed item is not the first")
		}
		return
	}
	if want := l.next[it.key]; it.n != want {
		o.violation("key %q: item %d starts, it is the turn of %d", it.key, it.n, want)
	}
	l.next[it.key] = it.n + 1
}

// end notes what became of the items; those from back on are to run again.
func (o *oracle) end(t *Task[*simRec], items []*simItem, back int) {
	l := items[0].lane
	p := l.part
	o.running--
	l.tasks--
	p.tasks--
	delete(o.workers, t.Worker())
	for i := len(items) - 1; i >= 0; i-- {
		it := items[i]
		it.running = false
		it.marked = it.marked && i < back
		switch {
		case it.held:
			continue
		case i >= back:
			it.allowed++
			l.next[it.key] = it.n
		default:
			it.done = true
		}
		if p.busy[it.key] == it {
			delete(p.busy, it.key)
		}
	}
}

// decide calls Finish or Resume for a held item.
func (o *oracle) decide(t simTicket, finish bool) {
	o.mu.Lock()
	it := t.item
	p := it.lane.part
	if finish {
		it.held, it.done = false, true
		delete(p.held, it)
		if !it.running && p.busy[it.key] == it {
			delete(p.busy, it.key)
		}
	} else {
		it.resumed = true
		it.allowed++
	}
	o.mu.Unlock()
	say := o.pool.Resume
	if finish {
		say = o.pool.Finish
	}
	if !say(t.Ticket) {
		o.t.Error("a fresh ticket is stale")
	}
	if o.pool.Finish(t.Ticket) || o.pool.Resume(t.Ticket) {
		o.t.Error("a ticket was good twice")
	}
}
