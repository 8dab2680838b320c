package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// randomWorld takes random steps and knows what must hold at any time.
type randomWorld struct {
	*world
	rnd  *rand.Rand
	set  func(*Config)
	live []*member

	putOff atomic.Bool // joins are, see calm

	mu       sync.Mutex
	produced map[tp]int64
	settled_ map[tp]map[int64]bool // by some handler that returned nil
	running  map[string]int        // by topic, partition and key, over all members
	fail     *rand.Rand
	rewinds  int
	passed   int64 // records that were not handled again
}

func newRandomWorld(w *world, rnd *rand.Rand, set func(*Config)) *randomWorld {
	r := &randomWorld{
		world: w, rnd: rnd, set: set, produced: map[tp]int64{}, settled_: map[tp]map[int64]bool{}, running: map[string]int{},
		fail: rand.New(rand.NewPCG(rnd.Uint64(), 1)),
	}
	w.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		if !r.putOff.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp, nil, true
	})
	return r
}

func (r *randomWorld) handle(member int) HandlerFunc {
	return func(ctx context.Context, rec *Record) error {
		at := tp{rec.Topic, rec.Partition}
		key := fmt.Sprint(member, at, string(rec.Key))
		r.mu.Lock()
		r.running[key]++
		if n := r.running[key]; n > 1 && rec.Key != nil {
			r.Errorf("%d handlers of %s run at one member", n, key)
		}
		wait := time.Duration(r.fail.IntN(200)) * time.Millisecond
		bad := r.fail.IntN(10) == 0
		r.mu.Unlock()
		var err error
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			err = ctx.Err()
		}
		if bad && err == nil {
			err = errBoom
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running[key]--
		if err == nil {
			if r.settled_[at] == nil {
				r.settled_[at] = map[int64]bool{}
			}
			r.settled_[at][rec.Offset] = true
		}
		return err
	}
}

func (r *randomWorld) join() {
	c := brisk(r.config(r.handle(len(r.members))))
	c.Topics = []string{"t", "u"}
	c.Retry = Retry{Attempts: 1000, Base: 50 * time.Millisecond, Max: 500 * time.Millisecond}
	c.PartitionRecords, c.Workers = 20+r.rnd.IntN(100), 4+r.rnd.IntN(20)
	c.FetchMaxPartitionBytes, c.FetchMaxBytes = 2048, 8192
	if r.rnd.IntN(2) == 0 {
		c.HeartbeatInterval = 5 * time.Second // so that commits bring the news
	}
	r.set(&c)
	r.live = append(r.live, r.start(c))
}

func (r *randomWorld) step() {
	switch n := r.rnd.IntN(100); {
	case n < 40:
		at := tp{[]string{"t", "u"}[r.rnd.IntN(2)], int32(r.rnd.IntN(3))}
		var values []string
		for range 1 + r.rnd.IntN(30) {
			switch k := r.rnd.IntN(8); k {
			case 0:
				values = append(values, "no key")
			default:
				values = append(values, fmt.Sprintf("%d=", k))
			}
		}
		r.produceTo(at.topic, at.partition, values...)
		r.mu.Lock()
		r.produced[at] += int64(len(values))
		r.mu.Unlock()
	case n < 75:
		time.Sleep(time.Duration(r.rnd.IntN(500)) * time.Millisecond)
	case n < 80 && len(r.live) < 4:
		r.join()
	case n < 85 && len(r.live) > 1:
		i := r.rnd.IntN(len(r.live))
		m := r.live[i]
		m.cancel()
		if err := <-m.done; err != nil && !errors.Is(err, ErrLastCommit) { // it may have been thrown out just before
			r.Errorf("Run: %v", err)
		}
		r.live = append(r.live[:i], r.live[i+1:]...)
	case n < 90:
		if id := r.live[r.rnd.IntN(len(r.live))].id(); id != "" {
			r.expel(id)
		}
	case n < 91:
		r.rewind()
	case n < 95:
		_ = r.live[r.rnd.IntN(len(r.live))].e.Commit(context.Background())
	default:
		total := 1 + r.rnd.IntN(20)
		if err := r.live[r.rnd.IntN(len(r.live))].e.SetWorkers(total, r.rnd.IntN(total+1)); err != nil {
			r.Error(err)
		}
	}
	r.check()
}

// rewind stops all members and sets the group back, or lets it go on from where it is without what else it knew: then everything
// from there on is to be handled again.
func (r *randomWorld) rewind() {
	for _, m := range r.live {
		m.cancel()
		if err := <-m.done; err != nil && !errors.Is(err, ErrLastCommit) {
			r.Errorf("Run: %v", err)
		}
	}
	r.live = nil
	at := tp{[]string{"t", "u"}[r.rnd.IntN(2)], int32(r.rnd.IntN(3))}
	if now := r.committed(at.topic, at.partition); now >= 0 {
		to := now - min(now, int64(r.rnd.IntN(30)))
		var os kadm.Offsets
		os.Add(kadm.Offset{Topic: at.topic, Partition: at.partition, At: to, LeaderEpoch: -1})
		r.eventually("the group is empty", func() bool { // one that did not know its member id could not say good-bye
			return r.adm.CommitAllOffsets(context.Background(), testGroup, os) == nil
		})
		r.mu.Lock()
		for o := range r.settled_[at] {
			if o >= to {
				delete(r.settled_[at], o)
			}
		}
		r.rewinds++
		r.mu.Unlock()
	}
	for range 1 + r.rnd.IntN(2) {
		r.join()
	}
}

// check is C1: what is committed is settled, and so is what a commit says of the records beyond it.
func (r *randomWorld) check() {
	resp, err := r.adm.FetchOffsets(context.Background(), testGroup)
	if err != nil {
		return // there is no group yet
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, n := range r.produced {
		o, ok := resp.Lookup(at.topic, at.partition)
		if !ok {
			continue
		}
		says, err := window.Decode(o.Metadata)
		if err != nil && !errors.Is(err, window.ErrNone) {
			r.Errorf("%v: %q: %v", at, o.Metadata, err)
		}
		for i := int64(0); i < n; i++ {
			if (i < o.At || says.Settled(i, 0)) && !r.settled_[at][i] {
				for n, m := range r.members {
					for _, ev := range m.names() {
						if strings.Contains(ev, fmt.Sprintf("%s[%d]@", at.topic, at.partition)) || !strings.Contains(ev, "[") {
							r.Logf("member %d: %s", n, ev)
						}
					}
				}
				r.Fatalf("%v: committed %d, %v, and %d was never settled", at, o.At, &says, i)
			}
		}
	}
}

// buryTheDead has the group forget members that have stopped. One that could not say good-bye while it waited in a join stays in the
// embedded broker's group for ever: the answer reaches nobody, and only an answer starts the clock of its session. The others then join
// again and again, and each join begins the group's wait anew. Kafka starts that wait once.
func (r *randomWorld) buryTheDead() {
	groups, err := r.adm.DescribeGroups(context.Background(), testGroup)
	if err != nil {
		r.Fatal(err)
	}
	living := map[string]bool{}
	for _, m := range r.live {
		living[m.id()] = true
	}
	for _, m := range groups[testGroup].Members {
		if !living[m.MemberID] {
			r.expel(m.MemberID)
		}
	}
}

// calm waits until the group has come through its rebalances. The embedded broker miscounts those that have joined where a member goes that
// was waiting for its assignment, and the wait for the others, which it begins anew with each join, may then never end. So joins are put off
// where it lasts for too long, until it is over.
func (r *randomWorld) calm() {
	waits := time.Now()
	for range 300 {
		synctest.Wait()
		groups, err := r.adm.DescribeGroups(context.Background(), testGroup)
		if err != nil {
			r.Fatal(err)
		}
		switch groups[testGroup].State {
		case "PreparingRebalance":
		case "CompletingRebalance":
			waits = time.Now()
		default:
			r.putOff.Store(false)
			return
		}
		r.putOff.Store(time.Since(waits) > 70*time.Second) // the rebalance timeout, and something
		time.Sleep(time.Second)
	}
	r.putOff.Store(false)
}

// rest waits until all is done, and looks for what was left behind.
func (r *randomWorld) rest() {
	for _, m := range r.live { // a single worker would take longer than anybody waits
		if err := m.e.SetWorkers(20, 0); err != nil {
			r.Error(err)
		}
	}
	r.buryTheDead()
	r.calm()
	r.eventually("all is committed", func() bool {
		for at, n := range r.produced {
			if r.committed(at.topic, at.partition) < n {
				return false
			}
		}
		return true
	})
	r.check()
	for _, m := range r.members {
		r.passed += m.e.Status().Counts.Redelivered
	}
	for _, m := range r.live {
		r.settled(m)
		r.eventually("it is well", func() bool { ok, _ := m.e.Healthy(); return ok })
		m.stop()
	}
}
