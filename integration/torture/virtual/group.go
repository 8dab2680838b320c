package virtual

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gaplesshq/gapless/engine"
)

// keeper does for the classic group what Kafka does, and the cluster does not.
//
//   - The session of a member that waits for the others to join does not end. In the cluster it does.
//   - The cluster begins the session of a member that joins with its answer to it. Where that meets a connection that is closed, because the
//     process has ended or the client has joined once more, the group would wait for that member in every join to come: so it forgets members
//     that no process has been for as long as a session lasts.
//   - The cluster miscounts those that have joined where a member goes that was waiting for its assignment, and begins the group's wait for the
//     others anew with each join, so that it may wait for ever. Kafka begins that wait once: so joins are put off where it lasts for too long,
//     until it is over.
type keeper struct {
	w     *World
	since map[string]time.Time // when a member was first seen to be no process, by its id
	waits time.Time            // since when the group waits for joins

	mu     sync.Mutex
	joined map[string]*string // instance ids of members that wait for others, by member id
	putOff bool
}

const lookEvery = time.Second

// keepGroup has a keeper look after the group until the world's end.
func (w *World) keepGroup() {
	if w.r.Protocol == engine.ProtocolConsumer {
		return
	}
	k := &keeper{w: w, since: map[string]time.Time{}, waits: time.Now(), joined: map[string]*string{}}
	w.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		return k.join(req.(*kmsg.JoinGroupRequest))
	})
	for tick := time.NewTicker(lookEvery); ; {
		select {
		case <-tick.C:
			k.look()
		case <-w.life.Done():
			tick.Stop()
			return
		}
	}
}

func (k *keeper) join(req *kmsg.JoinGroupRequest) (kmsg.Response, error, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.putOff {
		k.joined[req.MemberID] = req.InstanceID
		return nil, nil, false
	}
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
	return resp, nil, true
}

func (k *keeper) look() {
	ctx, cancel := context.WithTimeout(k.w.life, lookEvery)
	defer cancel()
	k.mu.Lock()
	joined := maps.Clone(k.joined)
	k.mu.Unlock()
	group, err := k.w.Describe(ctx)
	if err != nil {
		return // a broker may be down, and there is a next time
	}
	processes := k.processes()
	k.forget(ctx, group.Members, processes)
	waiting := group.State == "PreparingRebalance"
	if waiting {
		k.keepAlive(ctx, joined, processes)
	} else {
		k.waits = time.Now()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.putOff = time.Since(k.waits) > k.w.r.Session+k.w.r.Rebalance
	if !waiting {
		maps.DeleteFunc(k.joined, func(id string, _ *string) bool { _, before := joined[id]; return before })
	}
}

// processes are those that live, by their member ids; those that do not know theirs yet, which a static one learns with the answer to its
// first join, by their client ids.
func (k *keeper) processes() map[string]*process {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	living := map[string]*process{}
	for _, p := range k.w.runs {
		if p.isGone() {
			continue
		}
		id := p.e.Status().MemberID
		if id == "" {
			id = p.m.String()
		}
		living[id] = p
	}
	return living
}

func (k *keeper) forget(ctx context.Context, members []kadm.DescribedGroupMember, living map[string]*process) {
	since, overdue := map[string]time.Time{}, []string(nil)
	for _, m := range members {
		if living[m.MemberID] != nil || living[m.ClientID] != nil {
			continue
		}
		id := m.MemberID
		at, seen := k.since[id]
		if !seen {
			at = time.Now()
		}
		if since[id] = at; time.Since(at) > k.w.r.Session {
			overdue = append(overdue, id)
		}
	}
	k.since = since
	_ = k.w.Expel(ctx, overdue) // else the next time
}

func (k *keeper) keepAlive(ctx context.Context, joined map[string]*string, living map[string]*process) {
	for id, instance := range joined {
		if p := living[id]; p != nil {
			_ = k.w.Heartbeat(ctx, id, instance, p.e.Status().Generation)
		}
	}
}
