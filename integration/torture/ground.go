package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/integration/kafkatest"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// ground is what rounds have in common: the brokers, and the networks between them and the members.
type ground struct {
	cluster  *kafkatest.Cluster
	operator *kgo.Client
	dir      string // of all files

	free  chan []*kafkatest.Network // a set for each round at a time, one network for each host
	alone sync.RWMutex              // held for writing by a round that does something to brokers
}

// lay starts brokers, with networks for so many rounds at a time.
func lay(ctx context.Context, brokers, parallel int, dir string) (*ground, error) {
	c, err := kafkatest.New(ctx, kafkatest.Nodes(brokers), kafkatest.Networks(parallel*schedule.Hosts))
	if err != nil {
		return nil, err
	}
	if len(c.Nodes()) == 0 {
		return nil, errors.Join(fmt.Errorf("%s is set: the torture does things to brokers, so it starts its own; unset it", kafkatest.BrokersEnv), c.Close())
	}
	operator, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers()...), kgo.MetadataMinAge(100*time.Millisecond), kgo.ClientID("torture-operator"))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	g := &ground{cluster: c, operator: operator, dir: dir, free: make(chan []*kafkatest.Network, parallel)}
	for i := range parallel {
		var set []*kafkatest.Network
		for host := range schedule.Hosts {
			set = append(set, c.Network(1+i*schedule.Hosts+host))
		}
		g.free <- set
	}
	return g, nil
}

func (g *ground) close() error {
	g.operator.Close()
	return g.cluster.Close()
}

// keepLogs copies the brokers' logs, which go with their cluster.
func (g *ground) keepLogs(to string) error {
	var errs []error
	for _, n := range g.cluster.Nodes() {
		from, err := g.cluster.LogFile(n)
		if err == nil {
			err = copyFile(filepath.Join(to, fmt.Sprintf("broker-%d.log", n)), from)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// touchesBrokers says whether a round does something to the brokers that other rounds share with it.
func touchesBrokers(r *schedule.Round) bool {
	for _, s := range r.Steps {
		switch s.Action {
		case schedule.KillBroker, schedule.RollBrokers, schedule.PauseBroker:
			return true
		}
	}
	return false
}

// touchesNetwork says whether a round's members need networks of their own.
func touchesNetwork(r *schedule.Round) bool {
	for _, s := range r.Steps {
		switch s.Action {
		case schedule.Delay, schedule.Cut, schedule.HalfOpen:
			return true
		}
	}
	return false
}
