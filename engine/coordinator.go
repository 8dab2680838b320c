package engine

import (
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// search tells what the hooks do not show: that a heartbeat was answered by a broker that is not the group's coordinator, or not one
// yet. The client keeps such an answer to itself: it looks for the coordinator and asks again in place, in KIP-848 for ever. The group
// hears nothing of the member meanwhile. So the search gives it away, where nothing but heartbeats was answered since the search
// before: whatever else was answered, or could not be reached, may be what the client looks for a coordinator for.
type search struct {
	heartbeat bool      // one was answered since the last search
	other     bool      // there may be another reason for the next one
	astray    bool      // the last heartbeat of which it is known was answered in vain
	before    time.Time // what the clock ran from, before the last heartbeat that was answered
}

// answered notes an answer to a group request, at whose time the clock ran from last, and says whether it may count. Of heartbeats that go
// astray only that may which follows another without a search between them: that one had reached its coordinator.
func (s *search) answered(key int16, last time.Time) (counts bool) {
	switch key {
	case keyHeartbeat, keyConsumerGroupHeartbeat:
		s.astray = s.astray && !s.heartbeat
		s.heartbeat, s.before = true, last
		return !s.astray
	case keyJoinGroup, keySyncGroup, int16(kmsg.OffsetCommit), int16(kmsg.OffsetFetch), int16(kmsg.LeaveGroup):
		s.other = true
	}
	return true
}

// begins says whether the last heartbeat is why the client looks for the coordinator now.
func (s *search) begins() bool {
	blamed := s.heartbeat && !s.other
	s.heartbeat, s.other = false, false
	s.astray = s.astray || blamed
	return blamed
}

// OnBrokerConnect implements kgo.HookBrokerConnect: the client looks for another coordinator where one can't be reached, too.
func (c *sessionClock) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		c.mu.Lock()
		c.search.other = true
		c.mu.Unlock()
	}
}

// searching takes back what the last heartbeat did for the clock, where it was in vain.
func (c *sessionClock) searching() {
	c.mu.Lock()
	blamed := c.search.begins()
	if blamed {
		c.last = c.search.before
		if !c.proven {
			c.heard = time.Time{}
		}
	}
	c.mu.Unlock()
	if blamed {
		c.wake() // the deadline is nearer than the one that the loop waits for
	}
}
