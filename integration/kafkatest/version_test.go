package kafkatest_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

func TestOlderKafkaServesTransactionsAndGroups(t *testing.T) {
	cluster := kafkatest.Start(t, kafkatest.Version(kafkatest.OlderKafkaVersion))
	versions, err := cluster.Admin().ApiVersions(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	broker := versions[1]
	if guess := broker.VersionGuess(); guess != "v3.9" {
		t.Errorf("Kafka %s answers as %s", kafkatest.OlderKafkaVersion, guess)
	}
	topic := kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 1, nil)
	producer := newClient(t, kgo.SeedBrokers(cluster.Brokers()...), kgo.TransactionalID(topic))
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(t, producer, topic, "hello")
	if err := producer.EndTransaction(patient(t), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	expect(t, newClient(t, kgo.SeedBrokers(cluster.Brokers()...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted())), "hello")

	answer, err := cluster.Tool(patient(t), "org.apache.kafka.tools.TopicCommand", "--version")
	if err != nil || !strings.HasPrefix(answer, kafkatest.OlderKafkaVersion) {
		t.Errorf("a tool of Kafka %s says %q: %v", kafkatest.OlderKafkaVersion, answer, err)
	}
	if _, err := kafkatest.New(t.Context(), kafkatest.Version("latest")); err == nil || !strings.Contains(err.Error(), `"latest" is no version`) {
		t.Errorf("a version that is none gave %v", err)
	}
}
