package kafkatest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

func TestSharedBrokerServesAGroup(t *testing.T) {
	cluster := kafkatest.Shared(t)
	topic, group := kafkatest.Name(t), kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 3, map[string]string{"retention.ms": "600000"})

	client := newClient(t,
		kgo.SeedBrokers(cluster.Brokers()...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
	)
	values := numbered("v", 20)
	produce(t, client, topic, values...)
	expect(t, client, values...)
	if err := client.CommitUncommittedOffsets(patient(t)); err != nil {
		t.Fatal(err)
	}

	offsets, err := cluster.Admin().FetchOffsets(patient(t), group)
	if err != nil {
		t.Fatal(err)
	}
	committed := int64(0)
	for _, partition := range offsets.Sorted() {
		committed += partition.At
	}
	if committed != 20 {
		t.Errorf("committed %d records of 20", committed)
	}
}

func TestToolsAnswer(t *testing.T) {
	cluster := kafkatest.Shared(t)
	topic := kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 2, nil)

	const topicCommand = "org.apache.kafka.tools.TopicCommand"
	bootstrap := cluster.Bootstrap(kafkatest.Plaintext)
	answer, err := cluster.Tool(patient(t), topicCommand, "--bootstrap-server", bootstrap, "--describe", "--topic", topic)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(answer, "Topic: "+topic) || !strings.Contains(answer, "PartitionCount: 2") {
		t.Errorf("the answer is not a description of the topic alone:\n%s", answer)
	}

	_, err = cluster.Tool(patient(t), topicCommand, "--no-such-option")
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("a tool that failed does not say why: %v", err)
	}
}

func TestKilledBrokerComesBackWithItsRecords(t *testing.T) {
	cluster := kafkatest.Start(t, kafkatest.Property("message.max.bytes", "1000000"))
	topic := kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 1, nil)
	client := newClient(t, kgo.SeedBrokers(cluster.Brokers()...), kgo.ConsumeTopics(topic), impatient)
	produce(t, client, topic, "before")

	if err := cluster.Kill(1); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", cluster.Brokers()[0]); err == nil {
		conn.Close()
		t.Fatal("a killed broker takes connections")
	}
	if err := cluster.Restart(patient(t), 1); err != nil {
		t.Fatal(err)
	}
	produce(t, client, topic, "after")
	expect(t, client, "before", "after")
}

func TestPausedBrokerIsSilentUntilItContinues(t *testing.T) {
	cluster := kafkatest.Start(t)
	if err := cluster.Pause(1); err != nil {
		t.Fatal(err)
	}
	// A whole request and no answer to it within the deadline: the kernel took it, no one reads.
	conn, err := net.Dial("tcp", cluster.Brokers()[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	apiVersions := "\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
	if _, err := io.WriteString(conn, apiVersions); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var answer [4]byte
	var timeout net.Error
	if _, err := conn.Read(answer[:]); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("a paused broker answered: %v", err)
	}

	if err := cluster.Continue(1); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		t.Fatalf("no answer after Continue: %v", err)
	}
}

func TestStoppedBrokerSaysGoodbye(t *testing.T) {
	cluster := kafkatest.Start(t)
	// A paused broker can be stopped as well.
	if err := cluster.Pause(1); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Stop(1); err != nil {
		t.Fatal(err)
	}
	path, err := cluster.LogFile(1)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "shut down completed") {
		t.Error("the broker went without saying goodbye")
	}
	if err := cluster.Pause(1); err == nil {
		t.Error("a stopped broker was paused")
	}
}

func TestThreeBrokersSurviveTheLossOfOne(t *testing.T) {
	cluster := kafkatest.Start(t, kafkatest.Nodes(3))
	topic := kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 3, nil)
	details, err := cluster.Admin().ListTopics(patient(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, partition := range details[topic].Partitions {
		if len(partition.Replicas) != 3 {
			t.Fatalf("partition %d has replicas %v", partition.Partition, partition.Replicas)
		}
	}

	client := newClient(t,
		kgo.SeedBrokers(cluster.Brokers()...),
		kgo.ConsumeTopics(topic),
		impatient,
		// When the dead broker leaves the set of replicas in sync, records become visible that
		// no one produces just then, and a fetch that waits may not notice.
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	before, after := numbered("before", 9), numbered("after", 9)
	produce(t, client, topic, before...)
	if err := cluster.Kill(2); err != nil {
		t.Fatal(err)
	}
	produce(t, client, topic, after...)
	expect(t, client, append(before, after...)...)

	if err := cluster.Restart(patient(t), 2); err != nil {
		t.Fatal(err)
	}
	produce(t, client, topic, "restarted")
	expect(t, client, "restarted")
}

func TestStartThatFailsShowsTheLog(t *testing.T) {
	logsGoWithTheTest(t)
	_, err := kafkatest.New(t.Context(), kafkatest.Property("process.roles", "nonsense"))
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error does not show what the broker said: %v", err)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	logsGoWithTheTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := kafkatest.New(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a start without time to start gave %v", err)
	}
}

// logsGoWithTheTest is for starts that fail on purpose, whose logs would stay behind.
func logsGoWithTheTest(t *testing.T) { t.Setenv("TMPDIR", t.TempDir()) }
