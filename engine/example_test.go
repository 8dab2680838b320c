package engine_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// broker starts an embedded broker with some records in the topic "orders", so that the examples run anywhere.
func broker(values ...string) (addrs []string, stop func()) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "invoices"))
	if err != nil {
		panic(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		panic(err)
	}
	defer cl.Close()
	for _, v := range values {
		if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: "orders", Key: []byte("customer-1"), Value: []byte(v)}).FirstErr(); err != nil {
			panic(err)
		}
	}
	return c.ListenAddrs(), c.Close
}

// A consumer group in a few lines. Run returns when its context ends, after the drain and the last commit.
func Example() {
	brokers, stop := broker("one", "two", "three")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())

	e, err := engine.New(engine.Config{
		Brokers: brokers,
		Group:   "billing",
		Topics:  []string{"orders"},
		Handler: engine.HandlerFunc(func(_ context.Context, r *engine.Record) error {
			fmt.Printf("%s: %s\n", r.Key, r.Value)
			if r.Offset == 2 {
				cancel()
			}
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Run(ctx))
	// Output:
	// customer-1: one
	// customer-1: two
	// customer-1: three
	// <nil>
}

// A typed handler: what is not JSON goes straight to the dead-letter topic, other errors are tried again first.
func ExampleJSON() {
	brokers, stop := broker(`{"id": 1}`, `{"id": `, `{"id": 3}`)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())

	type order struct {
		ID int `json:"id"`
	}
	e, err := engine.New(engine.Config{
		Brokers: brokers,
		Group:   "billing",
		Topics:  []string{"orders"},
		Handler: engine.JSON(func(_ context.Context, o order, r *engine.Record) error {
			fmt.Println("order", o.ID)
			if o.ID == 3 {
				cancel()
			}
			return nil
		}),
		OnEvent: func(ev engine.Event) {
			if ev.Name == engine.EventDeadLettered {
				fmt.Println("dead letter of offset", ev.Offset)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Run(ctx))
	// Output:
	// order 1
	// dead letter of offset 1
	// order 3
	// <nil>
}

// Outputs: a record is settled only when what its handler emitted is acknowledged.
func ExampleRecord_Emit() {
	brokers, stop := broker("one")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	e, err := engine.New(engine.Config{
		Brokers: brokers,
		Group:   "billing",
		Topics:  []string{"orders"},
		Handler: engine.HandlerFunc(func(_ context.Context, r *engine.Record) error {
			r.Emit(&kgo.Record{Topic: "invoices", Value: append([]byte("invoice for "), r.Value...)})
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()

	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("invoices"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cl.Close()
	cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { fmt.Printf("%s\n", r.Value) })
	cancel()
	fmt.Println(<-done)
	// Output:
	// invoice for one
	// <nil>
}

// A batch handler with a result for each record.
func ExampleBatch_Fail() {
	brokers, stop := broker("one", "two", "three")
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())

	e, err := engine.New(engine.Config{
		Brokers: brokers,
		Group:   "billing",
		Topics:  []string{"orders"},
		Order:   engine.OrderPartition,
		Retry:   engine.Retry{Base: time.Millisecond},
		BatchHandler: engine.BatchHandlerFunc(func(_ context.Context, b *engine.Batch) error {
			for i, r := range b.Records {
				if string(r.Value) == "two" && r.Attempt == 1 {
					b.Fail(i, errors.New("not now")) // under partition order the rest comes again, behind it
					return nil
				}
				fmt.Printf("%s (attempt %d)\n", r.Value, r.Attempt)
				if r.Offset == 2 {
					cancel()
				}
			}
			return nil
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Run(ctx))
	// Output:
	// one (attempt 1)
	// two (attempt 2)
	// three (attempt 1)
	// <nil>
}

// Stop with a deadline returns by it in every state, and says what it left behind.
func ExampleEngine_Stop() {
	brokers, stop := broker("one")
	defer stop()

	started := make(chan struct{})
	e, err := engine.New(engine.Config{
		Brokers: brokers,
		Group:   "billing",
		Topics:  []string{"orders"},
		Handler: engine.HandlerFunc(func(ctx context.Context, _ *engine.Record) error {
			close(started)
			<-ctx.Done() // a well-behaved handler returns when its context ends
			return ctx.Err()
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- e.Run(context.Background()) }()
	<-started
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var abandoned *engine.AbandonedError
	if errors.As(e.Stop(ctx), &abandoned) {
		for _, r := range abandoned.Records {
			fmt.Printf("abandoned %s[%d]@%d: it will be delivered again\n", r.Topic, r.Partition, r.Offset)
		}
	}
	<-done
	// Output:
	// abandoned orders[0]@0: it will be delivered again
}
