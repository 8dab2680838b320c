package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// engineArm is Gapless: one engine, or several in one group.
type engineArm struct {
	c       Case
	engines []*engine.Engine
	started chan struct{}
}

func newEngineArm(j *job, m *meter) (*engineArm, error) {
	a := &engineArm{c: j.Case, started: make(chan struct{})}
	for i := range j.Case.Members {
		e, err := engine.New(j.config(m, i))
		if err != nil {
			return nil, err
		}
		a.engines = append(a.engines, e)
	}
	return a, nil
}

// config is the engine's configuration for a case.
func (j *job) config(m *meter, member int) engine.Config {
	c := j.Case
	e := engine.Config{
		Brokers: j.Brokers, TLS: j.TLS, SASL: engine.SASL{Mechanism: j.Mechanism, User: j.User, Password: j.Password},
		Group: j.Group, ClientID: fmt.Sprintf("gapless-bench-%d", member), Topics: []string{j.Topic},
		Order: c.Order, Workers: c.Workers,
		Retry:        engine.Retry{Base: 100 * time.Millisecond, Jitter: -1},
		DeadLetter:   engine.DeadLetter{GiveUp: engine.GiveUpSkip},
		Commit:       engine.Commit{Interval: c.Commit.Every, Records: c.Commit.Records, Each: c.Commit.Each},
		DrainTimeout: 5 * time.Second,
		StuckAfter:   time.Hour, StalledAfter: time.Hour, // a run is short, and watched by who started it
	}
	if c.Batch > 0 {
		e.BatchHandler, e.BatchSize, e.BatchLinger = m.batchHandler(), c.Batch, 5*time.Millisecond
	} else {
		e.Handler = m.handler()
	}
	switch c.Dedupe {
	case DedupeNone:
		e.Commit.MetadataBytes = -1
	case DedupeStore:
		e.Dedupe = engine.Dedupe{Dir: j.storeDir(member)}
	case DedupeKeys:
		e.Dedupe = engine.Dedupe{Dir: j.storeDir(member), Key: newKey}
	case DedupeDuplicates:
		e.Dedupe = engine.Dedupe{Dir: j.storeDir(member), Key: repeatedKey}
	}
	return e
}

func (j *job) storeDir(member int) string { return filepath.Join(j.Dir, fmt.Sprint("store-", member)) }

// newKey is a business key that no other record has.
func newKey(dst []byte, r *kgo.Record) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Partition))
	return binary.BigEndian.AppendUint64(dst, uint64(r.Offset))
}

// repeatedKey gives every second record the key of one that came a while before.
func repeatedKey(dst []byte, r *kgo.Record) []byte {
	const behind = 200_001
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Partition))
	if r.Offset%2 == 1 && r.Offset > behind {
		return binary.BigEndian.AppendUint64(dst, uint64(r.Offset-behind))
	}
	return binary.BigEndian.AppendUint64(dst, uint64(r.Offset))
}

func (a *engineArm) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range a.engines {
		g.Go(func() error { return e.Run(ctx) })
	}
	g.Go(func() error {
		a.assemble(ctx)
		return nil
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// assemble waits until the group has all its members, each with partitions.
func (a *engineArm) assemble(ctx context.Context) {
	for _, e := range a.engines {
		select {
		case <-e.Ready():
		case <-ctx.Done():
			return
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(a.engines) > 1 && !a.spread() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	close(a.started)
}

// spread says that every partition is assigned and every member has some, as far as there are enough.
func (a *engineArm) spread() bool {
	sum := 0
	for _, e := range a.engines {
		n := len(e.Status().Partitions)
		if n == 0 && a.c.Partitions >= len(a.engines) {
			return false
		}
		sum += n
	}
	return sum == a.c.Partitions
}

func (a *engineArm) ready() <-chan struct{} { return a.started }

// done counts what is settled. A duplicate is, though its handler did not run.
func (a *engineArm) done() (n int64) {
	for _, e := range a.engines {
		c := e.Counts() // not Status: with a thousand partitions looking would show in the figures
		n += c.Handled + c.Skipped
		if a.c.Dedupe != DedupeKeys && a.c.Dedupe != DedupeDuplicates {
			continue
		}
		if s := e.Status(); s.Dedupe != nil {
			n += s.Dedupe.Hits
		}
	}
	return n
}

func (a *engineArm) committed() bool {
	n := 0
	for _, e := range a.engines {
		for _, p := range e.Status().Partitions {
			if p.Phase != "active" || p.Committed < 0 || p.Committed < p.LogEnd {
				return false
			}
			n++
		}
	}
	return n == a.c.Partitions
}

func (a *engineArm) peak() (n int) {
	for _, e := range a.engines {
		n += e.Status().Workers.Peak
	}
	return n
}

func (a *engineArm) busy() (nanos int64) {
	for _, e := range a.engines {
		_, sum := e.Latency()
		nanos += int64(sum)
	}
	return nanos
}
