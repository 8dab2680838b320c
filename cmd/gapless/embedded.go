package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/window"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// embeddedName is the topic and the group that are used on the embedded broker where none is named.
const embeddedName = "gapless-embedded"

const (
	embeddedPartitions = 4
	secEmbedded        = "Embedded broker"
)

// embedded are the flags of the broker that runs inside the command, so that everything can be tried without a Kafka. It
// keeps its topics in memory: they are gone when the command ends.
type embedded struct {
	on      bool
	port    int
	cluster *kfake.Cluster
}

func (e *embedded) register(flags *pflag.FlagSet) {
	flags.BoolVar(&e.on, "embedded", false, "start a broker in this process, instead of --brokers; it lives as long as the command")
	flags.IntVar(&e.port, "embedded-port", 0, "its port, to reach it with other commands (--brokers 127.0.0.1:PORT); 0 = any that is free")
	section(flags, secEmbedded, "embedded", "embedded-port")
}

// start starts the broker, if it is wanted, and points cfg to it. What the environment or a file say about a real Kafka
// (brokers, TLS, SASL) is left aside; on the command line it contradicts --embedded.
func (e *embedded) start(a *app, cfg *engine.Config, say notes) error {
	if !e.on {
		return nil
	}
	for _, s := range settingTable {
		if s.section == secConnection && a.origins[s.flag] == "--"+s.flag && s.flag != "client-id" && s.flag != "start-timeout" {
			return usageError("--%s and --embedded exclude one another", s.flag)
		}
	}
	opts := []kfake.Opt{kfake.NumBrokers(1)}
	if e.port != 0 {
		opts = append(opts, kfake.Ports(e.port))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return unreachable(fmt.Errorf("start the embedded broker: %w", err))
	}
	e.cluster = cluster
	cfg.Brokers, cfg.TLS, cfg.SASL = cluster.ListenAddrs(), engine.TLS{}, engine.SASL{}
	say.say("embedded broker on %s; it ends with this command", cfg.Brokers[0])
	return nil
}

func (e *embedded) close() {
	if e.cluster != nil {
		e.cluster.Close()
	}
}

// seed makes topics with records of 100 keys, and returns a client for more.
func (e *embedded) seed(ctx context.Context, cfg *engine.Config, topics []string, records int, say notes) error {
	cl, err := connect(ctx, *cfg, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopics(ctx, embeddedPartitions, 1, nil, topics...); err != nil {
		return fmt.Errorf("seed the embedded broker: %w", err)
	}
	gen := generator{size: 60, keys: newKeys(100, 0, 1)}
	for _, t := range topics {
		for i := range records {
			r := gen.record(i)
			r.Topic = t
			cl.Produce(ctx, r, nil)
		}
		say.say("topic %s has %d generated records of 100 keys in %d partitions", t, records, embeddedPartitions)
	}
	return cl.Flush(ctx)
}

// commitShare commits a share of what is in topics for group, as if that had been handled.
func commitShare(ctx context.Context, cl *kgo.Client, group string, topics []string, share float64) error {
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	ends.Each(func(o kadm.ListedOffset) {
		offsets.AddOffset(o.Topic, o.Partition, int64(share*float64(o.Offset)), -1)
	})
	return adm.CommitAllOffsets(ctx, group, offsets)
}

// commitWindows commits half of what is in a topic for group, in the ways that commits come: the work of several owners, one of
// which was killed, and that of another program.
func commitWindows(ctx context.Context, cl *kgo.Client, group, topic string) error {
	adm := kadm.NewClient(cl)
	topics, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	offsets := kadm.Offsets{}
	ends.Each(func(o kadm.ListedOffset) {
		at := o.Offset / 2
		w := window.Window{TopicID: topics[topic].ID, Partitions: embeddedPartitions, Frontier: at, Highest: at - 1, Trying: -1}
		switch o.Partition {
		case 0:
			w.Highest, w.Undone = at+at/2+8, []int64{at, at + 3, at + 7}
			w.Epochs = []window.Epoch{{First: at, LeaderEpoch: o.LeaderEpoch}}
		case 1:
			w.Unclean, w.Trying, w.Tries = 2, at, 1
		}
		metadata := string(w.Append(nil, 0))
		if o.Partition == 3 {
			metadata = "committed by another program"
		}
		offsets.Add(kadm.Offset{Topic: topic, Partition: o.Partition, At: at, LeaderEpoch: -1, Metadata: metadata})
	})
	return adm.CommitAllOffsets(ctx, group, offsets)
}

// joinForShow puts a member into the group that handles nothing, so that there is something to look at.
func joinForShow(ctx context.Context, cfg *engine.Config, group, topic string) (*kgo.Client, error) {
	joined := make(chan struct{}, 1)
	opts, err := cfg.ConnectOpts()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			select {
			case joined <- struct{}{}:
			default:
			}
		}))...)
	if err != nil {
		return nil, err
	}
	select {
	case <-joined:
		return cl, nil
	case <-time.After(10 * time.Second):
		cl.Close()
		return nil, fmt.Errorf("the embedded broker's group did not come up")
	case <-ctx.Done():
		cl.Close()
		return nil, ctx.Err()
	}
}
