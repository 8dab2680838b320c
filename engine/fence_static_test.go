package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// holdCommits has the broker sit on a member's commits until release, and says when one has arrived.
func (w *world) holdCommits(member string) (arrived <-chan struct{}, release func()) {
	came := make(chan struct{}, 100)
	return came, w.stall(func(req kmsg.Request) bool {
		if memberOf(req) != member {
			return false
		}
		came <- struct{}{}
		return true
	}, kmsg.OffsetCommit)
}

// C3: a static member is thrown out and joins again while a commit of its last session is under way. The coordinator then refuses that commit
// as one of another member of that instance: which is this one, so nothing is wrong.
func TestLateAnswerIsNothingAgainstTheNextSession(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.Protocol, c.InstanceID = ProtocolClassic, "one"
		m := w.start(c)
		w.eventually("the start is committed", func() bool { return w.committed("t", 0) == 0 })
		first := m.id()
		arrived, release := w.holdCommits(first)
		w.produce(0, "x")
		<-arrived
		w.expel(first)
		w.eventually("it is back", func() bool { return m.id() != first && m.part(0) != nil })
		release()
		time.Sleep(time.Second) // the old commit is refused
		w.produce(0, "y")
		w.eventually("it goes on", func() bool { return w.committed("t", 0) == 2 })
		if n := m.count(EventLost); n != 1 {
			t.Errorf("the partition was lost %d times", n)
		}
		m.stop()
	})
}

// C3: it is thrown out while it joins for a rebalance. The client hears of it in the answer to its join, which it does not report as a loss, so
// that the assignment is still there when the commit is refused.
func TestLateAnswerAmidAJoin(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		c := brisk(w.config(func(context.Context, *Record) error { return nil }))
		c.Protocol, c.InstanceID = ProtocolClassic, "one"
		m := w.start(c)
		w.eventually("the start is committed", func() bool { return w.committed("t", 0) == 0 })
		first, joins, gate := m.id(), make(chan struct{}, 10), make(chan struct{})
		arrived, release := w.holdCommits(first)
		w.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			select {
			case <-gate:
				if strings.HasPrefix(req.(*kmsg.JoinGroupRequest).MemberID, "kgo-") { // the other takes three seconds to join, as one that drains does
					w.cluster.SleepControl(func() { time.Sleep(3 * time.Second) })
				}
			default:
				if req.(*kmsg.JoinGroupRequest).MemberID == first {
					joins <- struct{}{}
					w.cluster.SleepControl(func() { <-gate })
				}
			}
			return nil, nil, false
		})
		other := w.client(kgo.ConsumerGroup(testGroup), kgo.ConsumeTopics("t"), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.RebalanceTimeout(20*time.Second))
		defer other.Close()
		<-joins
		w.produce(0, "x")
		<-arrived
		w.expel(first)
		close(gate)
		time.Sleep(500 * time.Millisecond)
		release()
		select {
		case err := <-m.done:
			m.done <- err
			t.Errorf("the engine ended: %v", err)
			return
		case <-time.After(time.Minute):
		}
		m.stop()
	})
}
