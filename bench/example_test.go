package bench_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/bench"
	"github.com/gaplesshq/gapless/engine"
)

// How many workers should run a handler that waits for about 5 ms, and what does order by key cost it?
func ExampleRun() {
	cases, err := bench.Grid(bench.DefaultCase(), map[string]string{
		"handler": "exp:5ms",
		"workers": "16,64,256",
		"order":   "key,unordered",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := bench.Run(context.Background(), bench.Config{Cases: cases, Rounds: 5, Duration: 2 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = report.WriteTable(os.Stdout)
	for _, rec := range report.Recommend(0) {
		fmt.Println(rec)
	}
}

// charge stands for what your handler does.
func charge(ctx context.Context, key, value []byte) error { return nil }

// From a test of your own: your handler, on records like yours, at several worker counts. go test -v -run TestWorkers shows the table and a
// recommendation.
func ExampleSweep() {
	TestWorkers := func(t *testing.T) {
		cases, err := bench.Grid(bench.DefaultCase(), map[string]string{"workers": "8,32,128", "partitions": "6"})
		if err != nil {
			t.Fatal(err)
		}
		report := bench.Sweep(t, bench.Config{
			Cases: cases,
			Handler: engine.HandlerFunc(func(ctx context.Context, r *engine.Record) error {
				return charge(ctx, r.Key, r.Value)
			}),
			Record: func(i int64) (key, value []byte) {
				return fmt.Appendf(nil, "customer-%d", i%500), fmt.Appendf(nil, `{"order": %d}`, i)
			},
		})
		f, err := os.Create("workers.html")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := report.WriteHTML(f); err != nil {
			t.Fatal(err)
		}
	}
	_ = TestWorkers
}

// What a parameter may be is said where it is wrong.
func ExampleCase_Set() {
	c := bench.DefaultCase()
	fmt.Println(c.Set("keys", "zipf:1000:1.2"), c.Keys)
	fmt.Println(c.Set("order", "fifo"))
	// Output:
	// <nil> zipf:1000:1.2
	// order "fifo": write one of key, unordered, partition
}
