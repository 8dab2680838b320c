package kafkatest

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// awaitService returns when a broker that was launched serves requests, a producer's first one
// included.
func (n *node) awaitService(ctx context.Context) error {
	if err := n.awaitReady(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := n.warmProducerIDs(ctx); err != nil {
		return fmt.Errorf("kafkatest: warm up broker %d: %w\n%s", n.id, err, n.report())
	}
	return nil
}

// warmProducerIDs asks a broker for producer ids until it has some. A fresh broker has none: it
// turns down the first producer, only then fetches a block of ids from the controller, and has it
// within milliseconds. But the client backs off, then asks the next broker, which has none either:
// with three brokers a test's first record would take two seconds.
func (n *node) warmProducerIDs(ctx context.Context) error {
	// A client of its own, because others hold connections that died with the last process.
	client, err := kgo.NewClient(kgo.SeedBrokers(n.address(Plaintext)))
	if err != nil {
		return err
	}
	defer client.Close()
	broker := client.SeedBrokers()[0]
	for {
		response, err := broker.Request(ctx, kmsg.NewPtrInitProducerIDRequest())
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(response.(*kmsg.InitProducerIDResponse).ErrorCode)
		if err == nil || !kerr.IsRetriable(err) {
			return err
		}
	}
}
