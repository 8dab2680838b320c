// Package ground is what all arms stand on: one real Kafka, the topics they read, and what the broker says of their groups afterwards.
package ground

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// A Ground is a running Kafka. Its methods are for one goroutine.
type Ground struct {
	cluster *kafkatest.Cluster
	client  *kgo.Client
	admin   *kadm.Client
	topics  map[Topic]*Filled
	groups  []string
}

// brokerFlags are those of Kafka's own start script, in place of the ones that suit short tests.
var brokerFlags = []string{
	"-Xms1g", "-Xmx1g", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
	"-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:TieredStopAtLevel=4",
}

// brokerProperties are Kafka's defaults, in place of the timings that suit short tests.
var brokerProperties = map[string]string{
	"num.network.threads":               "3",
	"num.io.threads":                    "8",
	"background.threads":                "10",
	"broker.heartbeat.interval.ms":      "2000",
	"broker.session.timeout.ms":         "9000",
	"log.retention.check.interval.ms":   "300000",
	"log.cleaner.backoff.ms":            "15000",
	"group.share.heartbeat.interval.ms": "1000",
}

// Start starts a Kafka, or uses the one that kafkatest.BrokersEnv names.
func Start(ctx context.Context) (*Ground, error) {
	var opts []kafkatest.Option
	if os.Getenv(kafkatest.BrokersEnv) == "" {
		opts = append(opts, kafkatest.JVM(brokerFlags...))
		for key, value := range brokerProperties {
			opts = append(opts, kafkatest.Property(key, value))
		}
	}
	cluster, err := kafkatest.New(ctx, opts...)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Brokers()...), kgo.ClientID("peers"),
		kgo.MetadataMinAge(fillMetadata), kgo.ProducerLinger(fillLinger), kgo.MaxBufferedRecords(fillBuffered), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordDeliveryTimeout(fillTimeout))
	if err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	return &Ground{cluster: cluster, client: client, admin: kadm.NewClient(client), topics: make(map[Topic]*Filled)}, nil
}

// Bootstrap is the brokers' addresses, separated by commas.
func (g *Ground) Bootstrap() string { return strings.Join(g.cluster.Brokers(), ",") }

// tidyUp is how long a Kafka that is not ours has to delete what we made.
const tidyUp = 10 * time.Second

// Close ends the Kafka that Start started. From one that ran already it deletes its topics and groups.
func (g *Ground) Close() (err error) {
	if os.Getenv(kafkatest.BrokersEnv) != "" {
		ctx, cancel := context.WithTimeout(context.Background(), tidyUp)
		defer cancel()
		err = g.tidyUp(ctx)
	}
	g.client.Close()
	return errors.Join(err, g.cluster.Close())
}

func (g *Ground) tidyUp(ctx context.Context) error {
	var topics []string
	for _, f := range g.topics {
		topics = append(topics, f.Name)
	}
	deleted, err := g.admin.DeleteTopics(ctx, topics...)
	if err == nil {
		err = deleted.Error()
	}
	// Some were never made, or still have the member of a run that was cut off; they expire by themselves.
	_, _ = g.admin.DeleteGroups(ctx, g.groups...)
	if err != nil {
		return fmt.Errorf("delete our topics: %w", err)
	}
	return nil
}

// Group makes the name of a new group.
func (g *Ground) Group(arm string) string {
	name := fmt.Sprintf("peers-%08x-%d-%s", rand.Uint32(), len(g.groups)+1, arm)
	g.groups = append(g.groups, name)
	return name
}

// AllowShare makes a share group read a topic from its beginning: without this it would see only what comes later.
func (g *Ground) AllowShare(ctx context.Context, group string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	res.Configs = append(res.Configs, c)
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, g.client)
	if err != nil {
		return fmt.Errorf("configure share group %s: %w", group, err)
	}
	for _, r := range resp.Resources {
		if r.ErrorCode != 0 {
			return fmt.Errorf("configure share group %s: error code %d", group, r.ErrorCode)
		}
	}
	return nil
}
