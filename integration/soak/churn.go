package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// churn takes the steps of the plan, one after the other. On a machine that is too slow for all of them it leaves some out, but none
// that is the first of its kind.
func (s *soak) churn(ctx context.Context) error {
	taken := map[kind]bool{}
	for _, p := range plan(s.o) {
		if taken[p.kind] && time.Since(s.began) > s.o.duration {
			continue
		}
		taken[p.kind] = true
		if err := pause(ctx, time.Until(s.began.Add(p.at))); err != nil {
			return err
		}
		if p.kind == kindBroker && len(s.cluster.Nodes()) == 0 {
			continue // brokers that ran before are not ours to restart
		}
		e := event{Kind: p.kind, Begin: time.Since(s.began).Seconds()}
		if err := s.take(ctx, p, &e); err != nil {
			return fmt.Errorf("%s: %w", p.kind, err)
		}
		e.End = time.Since(s.began).Seconds()
		e.Settled = max(e.End, e.Settled)
		s.mu.Lock()
		s.events = append(s.events, e)
		err := s.out.Encode(struct {
			Type string `json:"type"`
			event
		}{"event", e})
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *soak) take(ctx context.Context, p step, e *event) error {
	switch p.kind {
	case kindPartitions:
		e.Count = s.o.partitions + max(1, s.o.partitions/3)
		return s.addPartitions(ctx, e.Count)
	case kindBroker:
		return s.cluster.Restart(ctx, 1)
	}
	s.mu.Lock()
	m := s.members[p.member]
	s.mu.Unlock()
	e.Member = memberName(p.member)
	switch p.kind {
	case kindWorkers:
		e.Count = p.workers
		if _, err := m.tell(ctx, order{Workers: p.workers}); err != nil {
			return err
		}
		if err := pause(ctx, p.away); err != nil {
			return err
		}
		_, err := m.tell(ctx, order{Workers: baseWorkers})
		return err
	case kindLeave:
		if err := s.leave(m); err != nil {
			return err
		}
	case kindKill:
		if err := s.kill(m); err != nil {
			return err
		}
		e.Settled = e.Begin + s.o.session().Seconds()
	}
	if err := pause(ctx, p.away); err != nil {
		return err
	}
	return s.join(ctx, p.member)
}

// addPartitions returns when the producer uses them.
func (s *soak) addPartitions(ctx context.Context, n int) error {
	for {
		answer, err := s.adm.UpdatePartitions(ctx, n, topic)
		if err == nil {
			err = answer.Error()
		}
		switch {
		case err == nil || errors.Is(err, kerr.InvalidPartitions): // the second: an attempt before that timed out was carried out
			return s.feed.widen(ctx, n)
		case !kerr.IsRetriable(err):
			return err
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// settling is how long after an event the group may still be at work on what it left: what had waited is handled, partitions move back.
func settling(every time.Duration) time.Duration { return max(15*time.Second, every) }

// covers says whether an interval touches the event or what it left.
func (e *event) covers(from, to time.Duration, every time.Duration) bool {
	return to.Seconds() > e.Begin && from.Seconds() < e.Settled+settling(every).Seconds()
}
