package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

const group = "gapless-demo"

// member is one engine of the group, from its start to its stop.
type member struct {
	name string
	e    *engine.Engine
}

// join starts a member and waits until it consumes.
func (d *demo) join(ctx context.Context, name string) (*member, error) {
	e, err := engine.New(engine.Config{
		Brokers: d.brokers, ClientID: "gapless-demo-" + name, Group: group, Topics: []string{topic},
		Handler: d.handler(name), Order: engine.Order(d.o.order), Workers: d.o.workers,
		// Everything that people wait for in a demo is shorter than one would have it in production.
		Retry:             engine.Retry{Attempts: attempts, Base: 50 * time.Millisecond, Max: 200 * time.Millisecond},
		Commit:            engine.Commit{Interval: 200 * time.Millisecond},
		HeartbeatInterval: 250 * time.Millisecond,
		DrainTimeout:      5 * time.Second,
		Log:               d.log.With().Str("member", name).Logger(),
		OnEvent: func(ev engine.Event) {
			if ev.Name == engine.EventDeadLettered {
				d.deadLettered.Add(1)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	m := &member{name: name, e: e}
	go func() {
		err := e.Run(context.Background()) // it ends by Stop, also when the demo is interrupted
		if err != nil {
			d.fail(fmt.Errorf("member %s: %w", name, err))
		}
	}()
	d.mu.Lock()
	d.members = append(d.members, m)
	d.mu.Unlock()
	select {
	case <-e.Ready():
		return m, nil
	case <-e.Done():
		return nil, context.Cause(d.ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// leave stops a member cleanly: it finishes what runs, commits, and leaves the group.
func (d *demo) leave(m *member) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := m.e.Stop(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.members {
		if d.members[i] == m {
			d.members = append(d.members[:i:i], d.members[i+1:]...)
			break
		}
	}
	if err != nil {
		return fmt.Errorf("member %s did not stop cleanly: %w", m.name, err)
	}
	return nil
}

// leaveAll stops all members at once.
func (d *demo) leaveAll() (first error) {
	ms := d.present()
	errs := make(chan error, len(ms))
	for _, m := range ms {
		go func() { errs <- d.leave(m) }()
	}
	for range ms {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// present are the members of this moment.
func (d *demo) present() []*member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*member(nil), d.members...)
}

// partitions are the statuses of the partitions that m handles by now.
func (m *member) partitions() []engine.PartitionStatus {
	var active []engine.PartitionStatus
	for _, p := range m.e.Status().Partitions {
		if p.Phase == "active" {
			active = append(active, p)
		}
	}
	return active
}
