package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What a topic costs of which every record is dead-lettered: one hot key, whose records wait for one another's acknowledgement,
// and as many keys as records.
func BenchmarkDeadLetters(b *testing.B) {
	const records = 2000
	for _, hot := range []bool{true, false} {
		name := "many keys"
		if hot {
			name = "one key"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				took := deadLetterAll(b, records, hot)
				b.ReportMetric(records/took.Seconds(), "records/s")
			}
		})
	}
}

func deadLetterAll(b *testing.B, records int, hot bool) time.Duration {
	b.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		b.Fatal(err)
	}
	defer cl.Close()
	var rs []*kgo.Record
	for i := range records {
		r := &kgo.Record{Topic: "t", Key: []byte("hot"), Value: []byte("v")}
		if !hot {
			r.Key = fmt.Appendf(nil, "k%d", i)
		}
		rs = append(rs, r)
	}
	if err := cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		b.Fatal(err)
	}
	started := make(chan struct{}, 1)
	done := make(chan struct{})
	dead := 0
	e, err := New(Config{
		Brokers: c.ListenAddrs(), Group: benchGroup(), Topics: []string{"t"},
		Handler: HandlerFunc(func(context.Context, *Record) error {
			select {
			case started <- struct{}{}:
			default:
			}
			return Permanent(errBoom)
		}),
		DeadLetter: DeadLetter{BreakerRatio: 1},
		OnEvent: func(ev Event) {
			if ev.Name == EventDeadLettered {
				if dead++; dead == records {
					close(done)
				}
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- e.Run(ctx) }()
	<-started
	begun := time.Now()
	<-done
	took := time.Since(begun)
	cancel()
	if err := <-result; err != nil {
		b.Fatal(err)
	}
	return took
}
