package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// How long a start waits for an engine: a good while where nothing stands in its way, else just for its process to be there.
const (
	readyWithin    = time.Minute
	readyMeanwhile = time.Second
)

func (w *world) journal(m schedule.Member) string { return filepath.Join(w.dir, "journal-"+m.String()) }
func (w *world) store(host int) string            { return filepath.Join(w.dir, fmt.Sprintf("store-m%d", host)) }

// Start implements schedule.World.
func (w *world) Start(ctx context.Context, who schedule.Member) error {
	p := plan{
		Member: who, Round: *w.round, Brokers: w.cluster.Brokers(), Group: w.Group, Topic: w.Topic,
		Store: w.store(who.Host), Journal: w.journal(who), Log: w.said.Name(),
	}
	p.Round.Steps = nil
	if w.networks != nil {
		p.Brokers = w.networks[who.Host-1].Addresses()
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return fmt.Errorf("start %s: the round is over", who)
	}
	m, err := spawn(p, w.said)
	if err == nil {
		w.members[who] = m
		w.watching.Go(func() { w.watch(m) })
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	wait := readyWithin
	if w.disturbed(who.Host) {
		wait = readyMeanwhile
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-m.ready:
	case <-m.gone: // whoever watches it says so
	case <-late.C:
		w.log.Printf("%s is not ready after %v", who, wait)
	case <-ctx.Done():
	}
	return nil
}

// watch waits for the end of a life. One that nobody wished for is reported.
func (w *world) watch(m *process) {
	<-m.gone
	if m.isParted() {
		return
	}
	w.forget(m)
	c := schedule.Crash{Member: m.who}
	if !m.crashed() {
		c.Err = errors.New(m.end())
	}
	w.crashes <- c
}

// forget notes that a life is over, and copies the store that it leaves.
func (w *world) forget(m *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.members[m.who] != m {
		return
	}
	delete(w.members, m.who)
	if !w.round.Dedupe {
		return
	}
	host := fmt.Sprintf("m%d", m.who.Host)
	l, err := copyStore(host, w.store(m.who.Host), filepath.Join(w.dir, "left-"+m.who.String()))
	if err != nil && w.copyError == nil {
		w.copyError = err
	}
	if l != nil {
		w.copies = append(w.copies, l)
	}
}

func (w *world) member(who schedule.Member) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members[who]
}

// Kill implements schedule.World. A life that has ended meanwhile by itself is as dead.
func (w *world) Kill(_ context.Context, who schedule.Member) error {
	m := w.member(who)
	if m == nil {
		return nil
	}
	if err := m.kill(); err != nil {
		return err
	}
	w.score.kills.Add(1)
	w.now.kills.Add(1)
	w.forget(m)
	return nil
}

// Stop implements schedule.World.
func (w *world) Stop(ctx context.Context, who schedule.Member) error {
	m := w.member(who)
	if m == nil {
		return nil
	}
	m.part()
	m.tell("stop")
	select {
	case <-m.gone:
		if m.err != nil {
			w.log.Printf("%s stopped with an error: %s", who, m.end())
		}
	case <-ctx.Done():
		if err := m.kill(); err != nil {
			return err
		}
		w.forget(m)
		return fmt.Errorf("%s did not stop: %w", who, context.Cause(ctx))
	}
	w.forget(m)
	return nil
}

// Pause implements schedule.World.
func (w *world) Pause(_ context.Context, who schedule.Member) error { return w.signal(who, suspend) }

// Resume implements schedule.World.
func (w *world) Resume(_ context.Context, who schedule.Member) error { return w.signal(who, resume) }

func (w *world) signal(who schedule.Member, send func(*os.Process) error) error {
	m := w.member(who)
	if m == nil {
		return nil
	}
	if err := send(m.cmd.Process); err != nil && !m.over() {
		return fmt.Errorf("signal %s: %w", who, err)
	}
	return nil
}

// SetWorkers implements schedule.World.
func (w *world) SetWorkers(_ context.Context, who schedule.Member, n int) error {
	if m := w.member(who); m != nil {
		m.tell("workers %d", n)
	}
	return nil
}

// LoseStore implements schedule.World.
func (w *world) LoseStore(_ context.Context, host int) error { return os.RemoveAll(w.store(host)) }

// Crashed implements schedule.World.
func (w *world) Crashed() <-chan schedule.Crash { return w.crashes }
