// Package member is what a torture round's members run: the engine with the round's settings, and handlers that do what the records
// tell them to.
package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/proof"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// Options are what a member needs beside the round.
type Options struct {
	Journal *proof.Journal
	// Crash ends the process, or what stands for it. Where it returns the handler goes on, and fails.
	Crash func()
	// Gate, if set, is passed before each line of the journal: where a process is only imagined to be stopped, it holds handlers up.
	Gate func()
}

// ID is the business key of a record, for the journal.
func ID(r *engine.Record) string { return header(r, schedule.IDHeader) }

func header(r *engine.Record, name string) (value string) {
	for _, h := range r.Headers {
		if h.Key == name {
			value = string(h.Value)
		}
	}
	return value
}

// Config is a member's configuration. Brokers, Group, Topics, Dedupe.Dir (where the round has Dedupe), logging and the client's own options
// are left to the caller.
func Config(r *schedule.Round, m schedule.Member, o Options) engine.Config {
	if o.Gate == nil {
		o.Gate = func() {}
	}
	h := &handler{o}
	c := engine.Config{
		Protocol: r.Protocol, Balancer: r.Balancer,
		SessionTimeout: r.Session, HeartbeatInterval: r.Heartbeat, RebalanceTimeout: r.Rebalance, DrainTimeout: r.Drain,
		CommitTimeout: 2 * time.Second, StartTimeout: 5 * time.Minute,
		Order: r.Order, Workers: r.Workers, PartitionRecords: r.PartitionRecords, Commit: r.Commit, Retry: r.Retry,
		// The mix may have many records fail on purpose, and records go by retention on purpose.
		DeadLetter: engine.DeadLetter{BreakerRatio: 1}, OnDataLoss: engine.DataLossEarliest,
	}
	if r.Static {
		c.InstanceID, c.LeaveOnStop = fmt.Sprintf("host-%d", m.Host), r.LeaveOnStop
	}
	if r.Dedupe {
		c.Dedupe = engine.Dedupe{Key: engine.HeaderKey(schedule.IDHeader), MaxDelay: r.MaxDelay, MaxGroup: r.MaxGroup, MaxPending: r.MaxPending}
	}
	if r.Batch > 0 {
		c.BatchSize, c.BatchLinger = r.Batch, 20*time.Millisecond
		inner := o.Journal.WrapBatch(h.batch, m.String())
		c.BatchHandler = engine.BatchHandlerFunc(func(ctx context.Context, b *engine.Batch) error { o.Gate(); return inner.HandleBatch(ctx, b) })
	} else {
		inner := o.Journal.Wrap(engine.HandlerFunc(h.one), m.String())
		c.Handler = engine.HandlerFunc(func(ctx context.Context, r *engine.Record) error { o.Gate(); return inner.Handle(ctx, r) })
	}
	return c
}

type handler struct{ Options }

var (
	errAsked = errors.New("the record asks to fail")
	errCrash = errors.New("the record asks for a crash")
)

func (h *handler) one(ctx context.Context, r *engine.Record) error {
	defer h.Gate()
	return h.work(ctx, r)
}

// batch does the work of all, one after the other. Once its context has ended, the rest fails at once, but for those that do not care.
func (h *handler) batch(ctx context.Context, b *engine.Batch) []error {
	defer h.Gate()
	failed := make([]error, len(b.Records))
	for i, r := range b.Records {
		failed[i] = h.work(ctx, r)
	}
	return failed
}

func (h *handler) work(ctx context.Context, r *engine.Record) error {
	w, err := schedule.ParseWork(header(r, schedule.WorkHeader))
	if err != nil {
		return err
	}
	if w.Stuck > 0 {
		time.Sleep(w.Stuck)
	}
	t := time.NewTimer(w.Wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if w.Crash {
		h.Crash()
		return errCrash
	}
	if w.Fails < 0 || r.Attempt <= w.Fails {
		return errAsked
	}
	return nil
}
