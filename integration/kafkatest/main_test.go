package kafkatest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

func TestMain(m *testing.M) {
	kafkatest.Main(m, kafkatest.Listeners(kafkatest.AllListeners...))
}

// patience bounds every wait in these tests; nothing here should come near it.
const patience = 30 * time.Second

// impatient makes a client look for new leaders at once; by default it waits for seconds.
var impatient = kgo.MetadataMinAge(100 * time.Millisecond)

func patient(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	return ctx
}

func newClient(tb testing.TB, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	client, err := kgo.NewClient(opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.Close)
	return client
}

func produce(tb testing.TB, client *kgo.Client, topic string, values ...string) {
	tb.Helper()
	for _, value := range values {
		record := &kgo.Record{Topic: topic, Value: []byte(value)}
		if err := client.ProduceSync(patient(tb), record).FirstErr(); err != nil {
			tb.Fatalf("produce %q: %v", value, err)
		}
	}
}

// expect polls for exactly these values, in any order: a topic may have several partitions.
func expect(tb testing.TB, client *kgo.Client, values ...string) {
	tb.Helper()
	missing := make(map[string]bool)
	for _, value := range values {
		missing[value] = true
	}
	for len(missing) > 0 {
		fetches := client.PollFetches(patient(tb))
		if err := fetches.Err0(); err != nil {
			tb.Fatalf("still waiting for %v: %v", missing, err)
		}
		for record := range fetches.RecordsAll() {
			value := string(record.Value)
			if !missing[value] {
				tb.Fatalf("unexpected record %q", value)
			}
			delete(missing, value)
		}
	}
}

func numbered(prefix string, n int) []string {
	var values []string
	for i := range n {
		values = append(values, fmt.Sprintf("%s-%d", prefix, i))
	}
	return values
}
