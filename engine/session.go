package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// heldTooLong says that the instance id has been another member's for longer than a crashed one is remembered.
func (e *Engine) heldTooLong() bool {
	since, limit := e.clock.unreleased()
	return since > limit+limit/4
}

// sessionError is an error that ended the group session; the client rejoins by itself.
func (e *Engine) sessionError(err error) {
	switch {
	case errors.Is(err, kerr.UnreleasedInstanceID) && !e.heldTooLong():
		e.emit(Event{Name: EventSessionEnded, Partition: -1, Err: err,
			Hint: "the group still counts a member with this InstanceID: this one before a crash, which is let in when that session ends, or another that runs"})
	case errors.Is(err, kerr.FencedInstanceID), errors.Is(err, kerr.UnreleasedInstanceID):
		e.fail(fmt.Errorf("gapless: instance id %q is used by another live member of group %q; give every member its own InstanceID (or, where no other runs: the group's coordinator moved or was frozen while this one joined; start it again): %w", e.cfg.InstanceID, e.cfg.Group, err))
	case errors.Is(err, kerr.GroupAuthorizationFailed) && !e.sessions.wasLetIn():
		e.fail(e.groupForbidden(err))
	case errors.Is(err, kerr.GroupAuthorizationFailed): // it was taken away while running, so it may come back
		e.sessionRefused(e.groupForbidden(err))
	case errors.Is(err, kerr.TopicAuthorizationFailed): // of KIP-848
		e.sessionRefused(fmt.Errorf("gapless: grant READ and DESCRIBE on every topic of Topics to this user: %w", err))
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		e.fail(fmt.Errorf("gapless: group %q uses another balancer or protocol than %q/%q; use the same in every member: %w", e.cfg.Group, e.cfg.Protocol, e.cfg.Balancer, err))
	case errors.Is(err, kerr.InvalidSessionTimeout):
		e.fail(fmt.Errorf("gapless: the broker refuses SessionTimeout %v (see its group.min/max.session.timeout.ms): %w", e.cfg.SessionTimeout, err))
	default:
		e.emit(Event{Name: EventSessionEnded, Partition: -1, Err: err, Hint: "the client rejoins the group"})
		if e.sessions.end() >= 3 { // it rejoins for ever without being let in, or to be thrown out again
			e.health.set("group session", err)
		}
	}
}

func (e *Engine) groupForbidden(err error) error {
	return fmt.Errorf("gapless: grant READ on group %q to this user: %w", e.cfg.Group, err)
}

// sessionRefused says that the member is not let in until a right is given, which the client tries again and again.
func (e *Engine) sessionRefused(err error) {
	if n := e.sessions.end(); n == 1 || n%60 == 0 {
		e.emit(Event{Name: EventSessionEnded, Partition: -1, Count: int64(n), Err: err, Hint: "the client tries to rejoin the group, and goes on once the right is there"})
	}
	e.health.set("group session", err)
}

// sessions counts the group sessions that ended in an error. An assignment alone proves nothing: the client may be given partitions again
// and again, and lose them each time because it can't learn where they begin.
type sessions struct {
	mu    sync.Mutex
	ended int       // since one was well
	began time.Time // when the present one did; zero = there is none
	letIn bool      // the group has let this member in once
	begun int       // sessions so far
	pacer pacer
}

// sessionWellAfter is how long a session lasts that is well, where it has nothing to begin.
const sessionWellAfter = 10 * time.Second

func (s *sessions) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letIn = true
	s.begun++
	if s.began.IsZero() {
		s.began = time.Now()
	}
}

func (s *sessions) wasLetIn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.letIn
}

// lost ends the session without blame: the client joins again, and may not be let in.
func (s *sessions) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = time.Time{}
}

func (s *sessions) soFar() (begun, paused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun, s.pacer.paused
}

func (s *sessions) end() (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = time.Time{}
	s.ended++
	return s.ended
}

// sessionWell forgets the sessions that ended: the present one is well.
func (e *Engine) sessionWell() {
	e.sessions.mu.Lock()
	e.sessions.ended = 0
	e.sessions.mu.Unlock()
	e.health.set("group session", nil)
}

// errNotLetIn: nothing else would tell it, as the client tries again by itself and reports an error only now and then.
var errNotLetIn = errors.New("the group has not let this member in for a session and a rebalance timeout: look at the group's coordinator and at the network")

// lookForOutside finds that the member has been without a session for longer than any rebalance may take.
func (w *watchdog) lookForOutside(e *Engine, now time.Time) {
	e.sessions.mu.Lock()
	inside := !e.sessions.began.IsZero()
	if inside {
		w.outside = time.Time{}
	} else if w.outside.IsZero() {
		w.outside = now
	}
	told := !inside && now.Sub(w.outside) >= e.cfg.SessionTimeout+e.cfg.RebalanceTimeout && e.health.set("group session", errNotLetIn)
	if told {
		e.sessions.ended++ // the next one that is well takes it back
	}
	e.sessions.mu.Unlock()
	if told {
		e.emit(Event{Name: EventSessionEnded, Partition: -1, Err: errNotLetIn, Took: now.Sub(w.outside), Hint: "the client goes on trying to join"})
	}
}

// lookAtSession finds one that is well although nothing has begun in it.
func (e *Engine) lookAtSession(eps []*epoch, now time.Time) {
	e.sessions.mu.Lock()
	lasts := e.sessions.ended > 0 && !e.sessions.began.IsZero() && now.Sub(e.sessions.began) >= sessionWellAfter
	e.sessions.mu.Unlock()
	if lasts && !slices.ContainsFunc(eps, func(ep *epoch) bool { return ep.is(phaseStarting) }) {
		e.sessionWell()
	}
}

// restlessWithin is how long sessions are counted for.
const restlessWithin = 30 * time.Second

// restlessFrom is how many sessions begin in that time only where the broker ends each as it begins. However members come and go, the others
// hear of it by heartbeats.
func (c *Config) restlessFrom() int { return 100 + 5*int(restlessWithin/c.HeartbeatInterval) }

// restlessPauses is how many sessions in that time are so many that each waited for its pause: it is less than the longest pause allows.
const restlessPauses = 20

var errRestless = errors.New("the group begins one session after the other, and none lasts: look at the group's coordinator")

// lookForRestless finds sessions that end as they begin, which the client takes for rebalances.
func (w *watchdog) lookForRestless(e *Engine, now time.Time) {
	if now.Sub(w.counted) < restlessWithin {
		return
	}
	begun, paused := e.sessions.soFar()
	restless := !w.counted.IsZero() && (begun-w.begun >= e.cfg.restlessFrom() || paused-w.paused >= restlessPauses)
	w.counted, w.begun, w.paused = now, begun, paused
	if !restless {
		e.health.set("rebalances", nil)
	} else if e.health.set("rebalances", errRestless) {
		e.emit(Event{Name: EventSessionEnded, Partition: -1, Err: errRestless, Took: restlessWithin, Hint: "the client goes on trying"})
	}
}
