package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// unowned says when to look for partitions that no member of the group has.
//
// A cooperative group hands a partition over in two generations: in the first its owner gives it up, and joins again, so that the second
// gives it to another. A static member that dies in between comes back, by KIP-345, with what the first generation has for it, and without
// a rebalance. It has nothing to give up, so it does not join again, and the partition is nobody's until something else makes the group
// rebalance: perhaps for days, with every member healthy. So a static member that has been let in under a new member id looks once.
type unowned struct {
	mu     sync.Mutex
	member string // under which the group has let this process in last
	look   bool
}

// letIn notes the member id of an assignment.
func (u *unowned) letIn(member string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if member != u.member {
		u.member, u.look = member, true
	}
}

// due is the member id to look under; none where there is nothing to look for.
func (u *unowned) due() (member string, due bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.member, u.look
}

func (u *unowned) looked(member string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if member == u.member {
		u.look = false
	}
}

// mayLeaveUnowned says whether this member is one that can come back in the middle of a hand-over.
func (e *Engine) mayLeaveUnowned() bool {
	return e.cfg.InstanceID != "" && e.cfg.Balancer == BalancerCooperativeSticky && e.protocol() == ProtocolClassic
}

// lookForUnowned has the group rebalance where it is at rest and a partition has no owner. Once for each member id, so that it can't go on
// for ever where the group has its own reasons.
func (e *Engine) lookForUnowned(ctx context.Context) {
	member, due := e.unowned.due()
	if !due || !e.mayLeaveUnowned() {
		return
	}
	left, atRest, err := e.partitionsUnowned(ctx, member)
	if errors.Is(err, kerr.GroupAuthorizationFailed) { // DESCRIBE, which READ implies
		e.unowned.looked(member)
	}
	if err != nil || !atRest {
		return // the next look comes soon
	}
	e.unowned.looked(member)
	if left == 0 {
		return
	}
	if e.isStopping() { // a rebalance would cross the drain
		return
	}
	e.emit(Event{Name: EventUnowned, Partition: -1, Count: int64(left),
		Hint: "the process that had this InstanceID before ended while it handed partitions over, and no member has them; the group is made to rebalance"})
	e.cl.ForceRebalance()
}

// partitionsUnowned counts the partitions without an owner, of all topics that the group consumes, and says whether the group is at rest
// with this member in it.
func (e *Engine) partitionsUnowned(ctx context.Context, member string) (left int, atRest bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.CommitTimeout)
	defer cancel()
	groups, err := e.adm.DescribeGroups(ctx, e.cfg.Group)
	if err == nil {
		err = groups.Error()
	}
	if err != nil {
		return 0, false, fmt.Errorf("describe the group: %w", err)
	}
	group := groups[e.cfg.Group]
	if group.State != "Stable" || !slices.ContainsFunc(group.Members, func(m kadm.DescribedGroupMember) bool { return m.MemberID == member }) {
		return 0, false, nil
	}
	owned := group.AssignedPartitions()
	topics := e.watchedTopics()
	for topic := range owned {
		if !slices.Contains(topics, topic) {
			topics = append(topics, topic)
		}
	}
	details, err := e.listTopics(ctx, topics)
	if err != nil {
		return 0, false, err
	}
	for topic, d := range details {
		if d.Err != nil {
			continue
		}
		for p := range d.Partitions {
			if !owned.Lookup(topic, p) {
				left++
			}
		}
	}
	return left, true, nil
}
