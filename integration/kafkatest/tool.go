package kafkatest

import (
	"context"
	"fmt"
)

// Tool runs one of Kafka's own Java tools, for example
// org.apache.kafka.tools.consumer.group.ConsumerGroupCommand, and returns its standard output. The
// error of a tool that fails holds the end of what it wrote. Most tools want --bootstrap-server, see
// [Cluster.Bootstrap]. For brokers that were running already the tools come from the cache as well.
func (c *Cluster) Tool(ctx context.Context, class string, args ...string) (string, error) {
	dist := c.dist
	if dist == nil {
		var err error
		if dist, err = install(ctx, KafkaVersion); err != nil {
			return "", err
		}
	}
	stdout, err := output(dist.command(ctx, "tool", nil, class, args...))
	if err != nil {
		return stdout, fmt.Errorf("kafkatest: %s: %w", class, err)
	}
	return stdout, nil
}
