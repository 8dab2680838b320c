package kafkatest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

func TestNetworksAreDamagedByThemselves(t *testing.T) {
	cluster := kafkatest.Start(t, kafkatest.Networks(2))
	topic := kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 3, nil)
	first, second := cluster.Network(1), cluster.Network(2)
	clients := make(map[*kafkatest.Network]*kgo.Client)
	for _, network := range []*kafkatest.Network{first, second} {
		clients[network] = newClient(t, kgo.SeedBrokers(network.Addresses()...), impatient)
		produce(t, clients[network], topic, numbered("before", 6)...)
		var advertised []string
		metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(patient(t), clients[network])
		if err != nil {
			t.Fatal(err)
		}
		for _, broker := range metadata.Brokers {
			advertised = append(advertised, fmt.Sprintf("%s:%d", broker.Host, broker.Port))
		}
		slices.Sort(advertised)
		if want := slices.Sorted(slices.Values(network.Addresses())); !slices.Equal(advertised, want) {
			t.Fatalf("the network at %v led to %v", want, advertised)
		}
	}

	if err := first.Cut(); err != nil {
		t.Fatal(err)
	}
	if err := clients[first].Ping(patient(t)); err == nil {
		t.Error("a network that is cut let a request through")
	}
	produce(t, clients[second], topic, "during")
	if err := first.Heal(); err != nil {
		t.Fatal(err)
	}
	produce(t, clients[first], topic, "after")
}

func TestHeldAnswersHideWhatWasDone(t *testing.T) {
	cluster := kafkatest.Start(t, kafkatest.Networks(1))
	topic := kafkatest.Name(t)
	cluster.CreateTopic(t, topic, 1, nil)
	network := cluster.Network(1)
	client := newClient(t, kgo.SeedBrokers(network.Addresses()...), impatient)
	produce(t, client, topic, "before")

	if err := network.HoldAnswers(); err != nil {
		t.Fatal(err)
	}
	acknowledged := make(chan error, 1)
	record := &kgo.Record{Topic: topic, Value: []byte("during")}
	client.Produce(t.Context(), record, func(_ *kgo.Record, err error) { acknowledged <- err })
	direct := newClient(t, kgo.SeedBrokers(cluster.Brokers()...), kgo.ConsumeTopics(topic))
	expect(t, direct, "before", "during")
	select {
	case err := <-acknowledged:
		t.Fatalf("an answer came through: %v", err)
	default:
	}
	if err := network.Heal(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-acknowledged:
		if err != nil {
			t.Error(err)
		}
	case <-patient(t).Done():
		t.Fatal("the answer was lost")
	}

	if err := network.Blackhole(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a black hole answered: %v", err)
	}
	if err := network.Heal(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(patient(t)); err != nil {
		t.Errorf("after healing: %v", err)
	}
}
