package kafkatest_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

func TestBrokersOfTheEnvironment(t *testing.T) {
	ours := kafkatest.Shared(t)
	t.Setenv(kafkatest.BrokersEnv, ours.Bootstrap(kafkatest.Plaintext))

	cluster := kafkatest.Start(t)
	topic := kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 1, nil)
	client := newClient(t, kgo.SeedBrokers(cluster.Brokers()...), kgo.ConsumeTopics(topic))
	produce(t, client, topic, "hello")
	expect(t, client, "hello")

	if err := cluster.Kill(1); err == nil || !strings.Contains(err.Error(), kafkatest.BrokersEnv) {
		t.Errorf("someone else's broker was killed: %v", err)
	}
	_, err := kafkatest.New(t.Context(), kafkatest.Nodes(3), kafkatest.ACLs())
	if err == nil || !strings.Contains(err.Error(), "Nodes(3), ACLs()") {
		t.Errorf("someone else's brokers were promised to be three with ACLs: %v", err)
	}
}

func TestMissingCommandsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("JAVA_HOME", "")
	_, err := kafkatest.New(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no java command") || !strings.Contains(err.Error(), kafkatest.BrokersEnv) {
		t.Errorf("without java: %v", err)
	}
}
