package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gaplesshq/gapless/integration/proof"
)

// Evidence implements schedule.World.
func (w *world) Evidence(ctx context.Context) (*proof.Evidence, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := w.copiesFailed(); err != nil {
		return nil, err
	}
	ev, err := w.Client.Evidence(ctx)
	if err != nil {
		return nil, err
	}
	if ev.Logged, err = w.CommitLog(ctx); err != nil {
		return nil, err
	}
	if err := agree(ev.Logged, ev.Ends); err != nil {
		return nil, err
	}
	if ev.Lines, err = w.lines(); err != nil {
		return nil, err
	}
	ev.Marks, err = w.marks(ev.Records)
	return ev, err
}

// agree says whether the log of commits ends with what a client is told: else it was not all read, or not understood.
func agree(logged []proof.Commit, ends []proof.End) error {
	last := map[int32]int64{}
	for _, c := range logged {
		last[c.Partition] = c.Offset
	}
	for _, e := range ends {
		if at, ok := last[e.Partition]; e.Committed >= 0 && (!ok || at != e.Committed) {
			return fmt.Errorf("the group has committed %d for partition %d, and the log of its commits ends with %d (any: %t)", e.Committed, e.Partition, at, ok)
		}
	}
	return nil
}

func (w *world) copiesFailed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copyError
}

// lines are those of the journals of all lives, by time. What a handler writes, and what others write because of it, is later, so that
// order keeps cause before effect.
func (w *world) lines() (all []proof.Line, err error) {
	paths, err := filepath.Glob(filepath.Join(w.dir, "journal-*"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		lines, err := proof.ReadJournal(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, lines...)
	}
	slices.SortStableFunc(all, func(a, b proof.Line) int { return cmp.Compare(a.Nanos, b.Nanos) })
	for i := range all {
		all[i].Number = i + 1
	}
	return all, nil
}

// marks asks the stores, as their processes left them, for all business keys.
func (w *world) marks(rs []proof.Record) (all []proof.Mark, err error) {
	var ids []string
	known := map[string]bool{}
	for _, r := range rs {
		if r.ID != "" && !known[r.ID] {
			known[r.ID] = true
			ids = append(ids, r.ID)
		}
	}
	for _, l := range w.copies {
		marks, err := l.marks(w.Group, w.Topic, ids)
		if err != nil {
			return nil, err
		}
		all = append(all, marks...)
	}
	return all, nil
}
