package engine

import (
	"fmt"
	"sync"
	"time"
)

// failingCommits remembers the partitions whose commits fail. It outlives epochs: a group that throws its member out again and again, for what
// it says to a commit, gives back a new epoch each time, and nothing is ever committed.
type failingCommits struct {
	mu sync.Mutex
	by map[tp]*failingCommit
}

type failingCommit struct {
	since, last time.Time
	err         error
}

func (f *failingCommits) failed(p tp, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.by == nil {
		f.by = map[tp]*failingCommit{}
	}
	if f.by[p] == nil {
		f.by[p] = &failingCommit{since: now}
	}
	f.by[p].last, f.by[p].err = now, err
}

func (f *failingCommits) passed(p tp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.by, p)
}

// longest is the failure that has come back for longest, of those that have for d; nil = there is none. What has nothing to commit here, and has
// not failed within the time that a member may need to be let in again, is forgotten.
func (f *failingCommits) longest(d, forget time.Duration, now time.Time, unsaved func(tp) bool) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var since time.Time
	for p, c := range f.by {
		switch {
		case now.Sub(c.last) > forget && !unsaved(p):
			delete(f.by, p)
		case c.last.Sub(c.since) > d && (err == nil || c.since.Before(since)):
			since = c.since
			err = fmt.Errorf("commits of %s[%d] fail since %s: %w", p.topic, p.partition, c.since.UTC().Format(time.RFC3339), c.err)
		}
	}
	return err
}

// lookForFailingCommits turns commits that keep failing into ill health.
func (w *watchdog) lookForFailingCommits(e *Engine, now time.Time) {
	d := e.cfg.StalledAfter
	failing := e.failing.longest(d, d+e.cfg.SessionTimeout+e.cfg.RebalanceTimeout, now, func(p tp) bool {
		ep := e.lookup(p.topic, p.partition)
		return ep != nil && ep.opened() != nil && ep.unsaved()
	})
	e.health.set("commit", failing)
}
