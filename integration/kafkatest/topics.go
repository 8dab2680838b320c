package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicTimeout bounds what is a matter of milliseconds in a healthy cluster.
const topicTimeout = 30 * time.Second

// Admin returns a client for administration, which may do anything even under [ACLs]. It belongs to
// the cluster: do not close it.
func (c *Cluster) Admin() *kadm.Client { return c.admin }

// CreateTopic creates a topic, replicated three times if the cluster has three brokers, and returns
// when every broker that answers knows a leader for each of its partitions.
func (c *Cluster) CreateTopic(tb testing.TB, topic string, partitions int, configs map[string]string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), topicTimeout)
	defer cancel()
	if err := c.createTopic(ctx, topic, partitions, configs); err != nil {
		tb.Fatal(err)
	}
}

func (c *Cluster) createTopic(ctx context.Context, topic string, partitions int, configs map[string]string) error {
	settings := make(map[string]*string)
	for key, value := range configs {
		settings[key] = &value
	}
	// -1 is the brokers' default.replication.factor.
	_, err := c.admin.CreateTopic(ctx, int32(partitions), -1, settings, topic)
	for errors.Is(err, kerr.InvalidReplicationFactor) && ctx.Err() == nil { // a broker that was starved of processors is fenced for a moment
		_, err = c.admin.CreateTopic(ctx, int32(partitions), -1, settings, topic)
	}
	if err != nil {
		return fmt.Errorf("kafkatest: create topic %s: %w", topic, err)
	}
	brokers, err := c.answeringBrokers(ctx)
	if err != nil {
		return fmt.Errorf("kafkatest: create topic %s: %w", topic, err)
	}
	for _, broker := range brokers {
		if err := c.awaitTopic(ctx, broker, topic, partitions); err != nil {
			return fmt.Errorf("kafkatest: topic %s on broker %d: %w", topic, broker, err)
		}
	}
	return nil
}

func (c *Cluster) answeringBrokers(ctx context.Context) ([]int32, error) {
	if c.external() {
		metadata, err := c.admin.BrokerMetadata(ctx)
		return metadata.Brokers.NodeIDs(), err
	}
	var ids []int32
	for _, n := range c.nodes {
		if n.answers() {
			ids = append(ids, int32(n.id))
		}
	}
	return ids, nil
}

// awaitTopic asks a broker for a topic until it knows all of it. The controller answers a creation
// before the brokers have heard of it, by a millisecond or two; a client that looks in between
// waits a whole backoff for its second look.
func (c *Cluster) awaitTopic(ctx context.Context, broker int32, topic string, partitions int) error {
	request := kmsg.NewPtrMetadataRequest()
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, wanted)
	for {
		response, err := c.client.Broker(int(broker)).RetriableRequest(ctx, request)
		if err != nil {
			return err
		}
		known, err := leaders(response.(*kmsg.MetadataResponse))
		if err != nil || known == partitions {
			return err
		}
	}
}

// leaders counts the partitions with a leader in a response about a single topic.
func leaders(response *kmsg.MetadataResponse) (int, error) {
	count := 0
	for _, topic := range response.Topics {
		err := kerr.ErrorForCode(topic.ErrorCode)
		if err != nil && !kerr.IsRetriable(err) {
			return 0, err
		}
		for _, partition := range topic.Partitions {
			if partition.ErrorCode == 0 && partition.Leader >= 0 {
				count++
			}
		}
	}
	return count, nil
}
