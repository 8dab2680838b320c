package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// gates hold handlers at chosen values until the test opens them.
type gates struct {
	mu   sync.Mutex
	shut map[string]chan struct{}
	came map[string]int
	left map[string]int
}

// shut makes gates for these values. They are opened when the scenario ends, so that a failure is not hidden by a hang.
func (w *world) shut(values ...string) *gates {
	g := &gates{shut: map[string]chan struct{}{}, came: map[string]int{}, left: map[string]int{}}
	for _, v := range values {
		g.shut[v] = make(chan struct{})
	}
	w.gates = append(w.gates, g)
	return g
}

// pass waits at the record's gate, if it has one, or until ctx ends. Background makes a handler that ignores its context.
func (g *gates) pass(ctx context.Context, r *Record) error {
	v := string(r.Value)
	g.mu.Lock()
	g.came[v]++
	gate := g.shut[v]
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.left[v]++
		g.mu.Unlock()
	}()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (g *gates) open(values ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range values {
		if g.shut[v] != nil {
			close(g.shut[v])
			delete(g.shut, v)
		}
	}
}

func (g *gates) openAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, ch := range g.shut {
		close(ch)
	}
	clear(g.shut)
}

// calls is how often handlers have begun a value, and how many of them have returned.
func (g *gates) calls(v string) (came, left int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.came[v], g.left[v]
}

func (g *gates) isAt(v string) bool {
	came, left := g.calls(v)
	return came > left
}

// request is a group request as it reached the broker.
type request struct {
	key     kmsg.Key
	member  string
	epoch   int32 // generation or member epoch
	at      time.Time
	offsets map[tp]int64 // of a commit
}

type trace struct {
	mu  sync.Mutex
	all []request
}

// trace notes the commits, joins, leaves and KIP-848 heartbeats from now on, whether they are answered well or not.
func (w *world) trace() *trace {
	tr := &trace{}
	names := map[[16]byte]string{}
	for _, t := range []string{"t", "u"} {
		if info := w.cluster.TopicInfo(t); info != nil {
			names[info.TopicID] = t
		}
	}
	w.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		r := request{key: kmsg.Key(req.Key()), at: time.Now()}
		switch req := req.(type) {
		case *kmsg.OffsetCommitRequest:
			r.member, r.epoch, r.offsets = req.MemberID, req.Generation, map[tp]int64{}
			for _, t := range req.Topics {
				name := t.Topic
				if name == "" {
					name = names[t.TopicID]
				}
				for _, p := range t.Partitions {
					r.offsets[tp{name, p.Partition}] = p.Offset
				}
			}
		case *kmsg.JoinGroupRequest:
			r.member = req.MemberID
		case *kmsg.LeaveGroupRequest:
			for _, m := range req.Members {
				r.member = m.MemberID
			}
		case *kmsg.ConsumerGroupHeartbeatRequest:
			r.member, r.epoch = req.MemberID, req.MemberEpoch
		default:
			return nil, nil, false
		}
		tr.mu.Lock()
		tr.all = append(tr.all, r)
		tr.mu.Unlock()
		return nil, nil, false
	})
	return tr
}

// of are the requests of a kind so far; no member = of all members.
func (tr *trace) of(key kmsg.Key, member string) (rs []request) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, r := range tr.all {
		if r.key == key && (member == "" || r.member == member) {
			rs = append(rs, r)
		}
	}
	return rs
}

// commitsOf are the offsets that were sent for a partition, in order.
func (tr *trace) commitsOf(topic string, partition int32) (offsets []int64) {
	for _, r := range tr.of(kmsg.OffsetCommit, "") {
		if o, ok := r.offsets[tp{topic, partition}]; ok {
			offsets = append(offsets, o)
		}
	}
	return offsets
}

// kick makes the group throw a member out, as an operator's tool would. The member hears of it with its next request.
func (w *world) kick(member string) {
	w.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = testGroup
	lm := kmsg.NewLeaveGroupRequestMember()
	lm.MemberID = member
	req.Members = append(req.Members, lm)
	resp, err := req.RequestWith(context.Background(), w.cl)
	if err != nil || resp.ErrorCode != 0 {
		w.Fatalf("kick %s: %v %+v", member, err, resp)
	}
}

func (m *member) id() string { return m.e.Status().MemberID }

// part is the status of a partition of "t" here; nil = it is not assigned here.
func (m *member) part(partition int32) *PartitionStatus {
	for _, p := range m.e.Status().Partitions {
		if p.Topic == "t" && p.Partition == partition {
			return &p
		}
	}
	return nil
}

// owns are the partitions of "t" that are active here.
func (m *member) owns() (ps []int32) {
	for _, p := range m.e.Status().Partitions {
		if p.Topic == "t" && p.Phase == "active" {
			ps = append(ps, p.Partition)
		}
	}
	return ps
}

// stopWithin stops the member and says how long Stop took.
func (m *member) stopWithin(d time.Duration) (took time.Duration, err error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	err = m.e.Stop(ctx)
	return time.Since(begun), err
}

// all are the events of a name so far.
func (m *member) all(n EventName) (evs []Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ev := range m.events {
		if ev.Name == n {
			evs = append(evs, ev)
		}
	}
	return evs
}

// settled waits until nothing is in hand, and then checks that nothing is left behind: no gauge, no pause, no zombie, and no
// partition in the pool beyond those that are assigned.
func (w *world) settled(m *member) {
	w.Helper()
	w.eventually("nothing in hand", func() bool {
		for _, p := range m.e.Status().Partitions {
			if p.Phase != "active" || p.Waiting+p.InFlight+p.Parked > 0 || p.Bytes > 0 || len(p.Paused) > 0 {
				return false
			}
		}
		m.e.mu.Lock()
		defer m.e.mu.Unlock()
		return len(m.e.zombies) == 0
	})
	if paused := m.e.cl.PauseFetchPartitions(nil); len(paused) > 0 {
		w.Errorf("paused at the client: %v", paused)
	}
	if n, open := m.e.pool.Stats().Partitions, len(m.e.allEpochs()); n != open {
		w.Errorf("%d partitions in the pool, %d assigned", n, open)
	}
	for _, ep := range m.e.allEpochs() {
		if len(ep.held) > 0 || len(ep.slices) > 0 || ep.tr.Span() != 0 {
			w.Errorf("%v holds %d parked, %d slices, span %d", ep.tp, len(ep.held), len(ep.slices), ep.tr.Span())
		}
	}
}

// errCode is the error of a protocol code's name.
func errCode(name string) *kerr.Error {
	for code := int16(-1); code < 200; code++ {
		var e *kerr.Error
		if errors.As(kerr.ErrorForCode(code), &e) && e.Message == name {
			return e
		}
	}
	panic(name)
}

// stall makes the broker sit on requests of these kinds that match (nil = all), until release, which also answers those. It
// ends with the scenario: a cluster that is closed with a stalled request hangs.
func (w *world) stall(match func(kmsg.Request) bool, keys ...kmsg.Key) (release func()) {
	hold := make(chan struct{})
	release = sync.OnceFunc(func() { close(hold) })
	w.ends = append(w.ends, release)
	for _, key := range keys {
		w.cluster.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
			select {
			case <-hold:
				return nil, nil, false
			default:
			}
			if match == nil || match(req) {
				w.cluster.SleepControl(func() { <-hold })
			}
			return nil, nil, false
		})
	}
	return release
}

// ofMember matches the requests of a member.
func ofMember(member string) func(kmsg.Request) bool {
	return func(req kmsg.Request) bool { return memberOf(req) == member }
}

func memberOf(req kmsg.Request) string {
	switch req := req.(type) {
	case *kmsg.HeartbeatRequest:
		return req.MemberID
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return req.MemberID
	case *kmsg.OffsetCommitRequest:
		return req.MemberID
	}
	return ""
}

// expel throws a member out as kick does; where it is gone already, or of the other protocol, nothing happens.
func (w *world) expel(member string) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = testGroup
	lm := kmsg.NewLeaveGroupRequestMember()
	lm.MemberID = member
	req.Members = append(req.Members, lm)
	_, _ = req.RequestWith(context.Background(), w.cl)
}

// compact removes from "t" all records but the last of each key.
func (w *world) compact() {
	w.Helper()
	policy := "compact"
	resp, err := w.adm.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &policy}}, "t")
	if err == nil {
		err = resp[0].Err
	}
	if err != nil {
		w.Fatal(err)
	}
	w.cluster.Compact()
}
