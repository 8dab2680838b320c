package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kgo"
)

// id is a record as a log can tell it from others: a truncated log uses offsets again under a higher leader epoch.
type id struct {
	offset int64
	epoch  int32
}

// twoOwners is a log that one owner has worked on and another works on now. Between the two it may have been truncated.
type twoOwners struct {
	*testing.T
	rnd      *rand.Rand
	e        *Engine
	ep       *epoch
	from     int64 // where the second begins
	old, log []id  // in order of offsets

	mu      sync.Mutex
	luck    *rand.Rand
	settled map[id]bool // by either of them
}

var propertyTopic = [16]byte{1, 2, 3}

// someLog is n records with holes, in runs of leader epochs.
func someLog(rnd *rand.Rand, n int) (log []id) {
	at := id{offset: int64(rnd.IntN(50)), epoch: int32(rnd.IntN(3) - 1)}
	for range n {
		log = append(log, at)
		if at.offset++; rnd.IntN(12) == 0 {
			at.offset += int64(1 + rnd.IntN(40))
		}
		if rnd.IntN(30) == 0 {
			at.epoch += int32(1 + rnd.IntN(2))
		}
	}
	return log
}

// begin makes the window of an earlier owner, which goes through a commit, and the epoch of its successor.
func (o *twoOwners) begin() {
	o.old = someLog(o.rnd, 1+o.rnd.IntN(200))
	o.log = slices.Clone(o.old)
	if o.rnd.IntN(3) == 0 { // cut off and written again, with other offsets in it
		cut := o.rnd.IntN(len(o.log))
		o.log = o.log[:cut]
		at := id{o.old[cut].offset, o.old[len(o.old)-1].epoch + 1}
		for range o.rnd.IntN(200) {
			o.log = append(o.log, at)
			at.offset += int64(1 + o.rnd.IntN(2)*o.rnd.IntN(5))
		}
	}
	frontier := o.rnd.IntN(len(o.old))
	left := window.Window{TopicID: propertyTopic, Frontier: o.old[frontier].offset, Highest: o.old[frontier].offset - 1, Trying: -1}
	share, end := o.rnd.Float64(), frontier+o.rnd.IntN(len(o.old)-frontier)+1
	for i, r := range o.old[:end] {
		if i == 0 || r.epoch != o.old[i-1].epoch {
			left.Epochs = append(left.Epochs, window.Epoch{First: r.offset, LeaderEpoch: r.epoch})
		}
		switch {
		case i < frontier:
			o.settled[r] = true
		case i > frontier && o.rnd.Float64() < share:
			o.settled[r], left.Highest = true, r.offset
		default:
			left.Undone = append(left.Undone, r.offset)
		}
	}
	if left.Highest < left.Frontier {
		left.Undone = nil
	}
	for n := len(left.Undone); n > 0 && left.Undone[n-1] > left.Highest; n-- {
		left.Undone = left.Undone[:n-1]
	}
	for n := len(left.Epochs); n > 0 && left.Epochs[n-1].First > left.Highest; n-- {
		left.Epochs = left.Epochs[:n-1]
	}
	if o.rnd.IntN(4) == 0 && len(left.Epochs) > 1 { // runs may be missing from the bottom: what they covered is then not known
		left.Epochs = left.Epochs[1+o.rnd.IntN(len(left.Epochs)-1):]
		for _, r := range o.old {
			if r.offset >= left.Frontier && r.offset < left.Epochs[0].First {
				delete(o.settled, r)
			}
		}
	}
	before, err := window.Decode(string(left.Append(nil, 0)))
	if err != nil || before.Cut {
		o.Fatalf("%v: %v", left, err)
	}
	c := Config{Brokers: []string{"none:1"}, Group: "g", Topics: []string{"t"}, Workers: 2, Order: OrderUnordered}
	c.Handler, c.Retry = HandlerFunc(o.handle), Retry{Base: time.Hour, Max: time.Hour, Attempts: 9}
	if o.e, err = New(c); err != nil {
		o.Fatal(err)
	}
	o.ep = o.e.assign(tp{"t", 0}, Owner{MemberID: "m"})
	o.ep.topicID, o.ep.begun = propertyTopic, true
	if before.Highest > before.Frontier {
		o.ep.before.Store(&before)
	}
	o.from = before.Frontier
	o.e.activate(o.ep, before.Frontier, -1)
}

// handle settles a record, or leaves it for much later.
func (o *twoOwners) handle(_ context.Context, r *Record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := id{r.Offset, r.LeaderEpoch}
	if o.settled[at] {
		o.Errorf("%v was settled, and is handled again", at)
	}
	if o.luck.IntN(4) == 0 {
		return errBoom
	}
	o.settled[at] = true
	return nil
}

// deliver gives the fetch loop a slice of the log.
func (o *twoOwners) deliver(d *delivery, recs []id) {
	p := kgo.FetchPartition{HighWatermark: 1 << 20, LogStartOffset: 0}
	for _, r := range recs {
		p.Records = append(p.Records, &kgo.Record{Topic: "t", Offset: r.offset, LeaderEpoch: r.epoch})
	}
	d.topicID = propertyTopic
	o.e.deliver(d, "t", &p)
}

// look takes a window as the committer does, through its written form, and checks it: whatever goes on meanwhile, it claims
// nothing that neither owner has settled. What was claimed before is still claimed.
func (o *twoOwners) look(s *snapshotter, claimed map[id]bool) window.Window {
	taken := s.window(o.ep, listMax)
	w, err := window.Decode(string(taken.Append(nil, 0)))
	if err != nil || w.Cut {
		o.Errorf("%+v is read back as %v, %v", *taken, &w, err)
		return w
	}
	tight, err := window.Decode(string(taken.Append(nil, 60+o.rnd.IntN(40))))
	if err != nil {
		o.Errorf("shortened: %v", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for n, log := range [][]id{o.log, o.old} {
		for _, r := range log {
			if (w.Settled(r.offset, r.epoch) || tight.Settled(r.offset, r.epoch)) && !o.settled[r] {
				o.Errorf("%v is not settled, and %v says so", r, &w)
			}
			if says := r.offset < w.Frontier || w.Settled(r.offset, r.epoch); says {
				claimed[r] = true
			} else if n == 0 && claimed[r] && r.offset != w.Frontier { // what the truncation took is gone
				o.Errorf("%v was settled in an earlier window, and is not in %v", r, &w)
			}
		}
	}
	return w
}

// C1, C5: the window of a second owner is that of the first joined with its own. While records are delivered, passed over and
// finished it never claims what neither has settled, takes back nothing and is never left out for contradicting itself; at rest it
// says all of it. The one exception is the record at the commit itself, which never counts as settled.
// Seen at confluentinc/parallel-consumer#894.
func TestJoinedWindow(t *testing.T) {
	rnd := seeded(t)
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			source := func() *rand.Rand { return rand.New(rand.NewPCG(rnd.Uint64(), 1)) }
			o := &twoOwners{T: t, rnd: source(), luck: source(), settled: map[id]bool{}}
			o.begin()
			defer o.e.end(o.ep, errLost)
			todo := o.log
			for len(todo) > 0 && todo[0].offset < o.from {
				todo = todo[1:]
			}
			claimed := map[id]bool{}
			var s snapshotter
			o.look(&s, claimed) // the claim: nothing is delivered yet
			done, looked := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(looked)
				for !isClosed(done) {
					o.look(&s, claimed)
				}
			}()
			var d delivery
			for steps := source(); len(todo) > 0 && steps.IntN(20) > 0; {
				n := 1 + steps.IntN(len(todo))
				if steps.IntN(2) == 0 {
					n = min(n, 5)
				}
				o.deliver(&d, todo[:n])
				todo = todo[n:]
			}
			close(done)
			<-looked
			synctest.Wait()
			rest := o.look(&s, claimed)
			for _, r := range o.log {
				if r.offset > rest.Frontier && rest.Settled(r.offset, r.epoch) != o.settled[r] {
					t.Errorf("%v: settled is %v, and at rest the window is %v", r, o.settled[r], &rest)
				}
				if r.offset < rest.Frontier && r.offset >= o.from && !o.settled[r] {
					t.Errorf("%v is not settled, and %v", r, &rest)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}
