//go:build synctests

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bare is a member of the classic group that says what it is told to, over connections of its own: a broker answers a join late.
type bare struct {
	w          *world
	cl         *kgo.Client
	instance   *string
	id         string
	generation int32
	asked      []kmsg.JoinGroupRequestProtocol // in its last join
	joining    chan *kmsg.JoinGroupResponse
}

func (w *world) bare(instance string) *bare {
	b := &bare{w: w, cl: w.client(), joining: make(chan *kmsg.JoinGroupResponse, 1), generation: -1}
	if instance != "" {
		b.instance = &instance
	}
	w.ends = append(w.ends, b.cl.Close)
	return b
}

// join asks to be let in, with what it owns.
func (b *bare) join(owned ...int32) {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics, meta.Generation = 3, []string{"t"}, b.generation
	if len(owned) > 0 {
		meta.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "t", Partitions: owned}}
	}
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = testGroup, b.id, b.instance, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 45_000, 60_000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "cooperative-sticky", Metadata: meta.AppendTo(nil)}}
	b.asked = req.Protocols
	go func() {
		resp, err := req.RequestWith(context.Background(), b.cl)
		if err != nil {
			b.w.Error(err)
		}
		b.joining <- resp
	}()
}

// in waits until it is let in.
func (b *bare) in() *kmsg.JoinGroupResponse {
	resp := <-b.joining
	b.id, b.generation = resp.MemberID, resp.Generation
	return resp
}

// sync takes its assignment, and as the leader gives out all of them.
func (b *bare) sync(plan map[*bare][]int32) {
	b.w.Helper()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = testGroup, b.id, b.instance, b.generation
	for m, partitions := range plan {
		a := kmsg.NewConsumerMemberAssignment()
		a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "t", Partitions: partitions}}
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m.id, MemberAssignment: a.AppendTo(nil)})
	}
	resp, err := req.RequestWith(context.Background(), b.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		b.w.Fatal(err)
	}
}

// rebalancing says whether its heartbeat tells it to join again.
func (b *bare) rebalancing() bool {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = testGroup, b.id, b.instance, b.generation
	resp, err := req.RequestWith(context.Background(), b.cl)
	if err != nil {
		b.w.Fatal(err)
	}
	return resp.ErrorCode == kerr.RebalanceInProgress.Code
}

// C9: a partition that a static member was handing over when it died is nobody's, and the group is at rest: the process that comes back in
// its place has the group rebalance. It leaves the group alone where every partition has an owner.
func TestStaticMemberDiesAmidAHandOver(t *testing.T) {
	for name, plan := range map[string]struct {
		leader, dying []int32
		rebalances    bool
	}{
		"handing over":    {nil, []int32{0}, true},
		"handed over":     {[]int32{1}, []int32{0}, false},
		"gave up nothing": {nil, []int32{0, 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				leader, dying := w.bare("leads"), w.bare("dies")
				leader.join()
				leader.in()
				leader.sync(map[*bare][]int32{leader: nil})
				dying.join(0, 1)
				time.Sleep(time.Second) // it is in the broker's hands
				leader.join()
				leader.in()
				dying.in()
				leader.sync(map[*bare][]int32{leader: plan.leader, dying: plan.dying})
				dying.sync(nil)

				// A broker compares only the names of the protocols before it spares the group a rebalance; the embedded one compares all.
				w.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
					w.cluster.KeepControl()
					if j := req.(*kmsg.JoinGroupRequest); j.MemberID == "" && j.InstanceID != nil && *j.InstanceID == *dying.instance {
						j.Protocols = dying.asked
					}
					return nil, nil, false
				})
				c := w.config(func(context.Context, *Record) error { return nil })
				c.Protocol, c.InstanceID, c.SessionTimeout = ProtocolClassic, "dies", 45*time.Second
				m := w.start(c)
				rebalanced := false
				for range 15 {
					time.Sleep(2 * time.Second)
					if rebalanced = leader.rebalancing(); rebalanced {
						break
					}
				}
				if rebalanced != plan.rebalances {
					t.Errorf("the group rebalanced: %t", rebalanced)
				}
				if n := m.count(EventUnowned); n > 1 || (n == 1) != plan.rebalances {
					t.Errorf("%d events", n)
				}
				if !rebalanced {
					m.stop()
					return
				}
				leader.join(plan.leader...)
				if resp := leader.in(); len(resp.Members) != 2 {
					t.Errorf("%d members have joined", len(resp.Members))
				}
				m.stop()
			})
		})
	}
}
