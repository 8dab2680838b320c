package schedule

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gaplesshq/gapless/integration/proof"
)

// slow is a world whose group commits a record now and then.
type slow struct {
	World // what a round without steps does not need

	begun   time.Time
	each    time.Duration // from one commit to the next
	records int64
}

func (s *slow) committed() int64 { return min(int64(time.Since(s.begun)/s.each), s.records) }

func (s *slow) Begin(context.Context, *Round) error           { return nil }
func (s *slow) Start(context.Context, Member) error           { return nil }
func (s *slow) Stop(context.Context, Member) error            { return nil }
func (s *slow) SetWorkers(context.Context, Member, int) error { return nil }
func (s *slow) Crashed() <-chan Crash                         { return nil }
func (s *slow) Done(context.Context) (bool, error)            { return s.committed() == s.records, nil }

func (s *slow) Commits(context.Context) ([]proof.Commit, error) {
	return []proof.Commit{{Topic: "t", Offset: s.committed()}}, nil
}

func (s *slow) Evidence(context.Context) (*proof.Evidence, error) { return &proof.Evidence{}, nil }

// A round waits for a group that is slow, and not for one that stands still, nor for ever.
func TestPatience(t *testing.T) {
	for _, c := range []struct {
		name    string
		each    time.Duration
		records int64
		rest    time.Duration
		says    string
	}{
		{"slow", 2 * time.Minute, 5, 10 * time.Minute, "all is committed"},
		{"still", 4 * time.Minute, 5, 3 * time.Minute, "no commit has moved for 3m"},
		{"for ever", 2 * time.Minute, 1000, 30 * time.Minute, "not everything is done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, begun := NewLog(nil), time.Now()
				if _, err := Run(t.Context(), &Round{}, &slow{begun: begun, each: c.each, records: c.records}, log, Options{}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begun).Round(time.Minute); took != c.rest || !strings.Contains(log.String(), c.says) {
					t.Errorf("the round took %v, not %v:\n%v", took, c.rest, log)
				}
			})
		})
	}
}
