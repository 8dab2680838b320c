package engine

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// rss is this process's resident memory in MB; 0 where the system does not say.
func rss() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	kb, _ := strconv.ParseFloat(string(bytes.Fields(rest)[0]), 64)
	return kb / 1024
}

func stuckRecords() int64 {
	if n, err := strconv.ParseInt(os.Getenv("GAPLESS_BENCH_STUCK"), 10, 64); err == nil {
		return n
	}
	return 1_000_000
}

// BenchmarkStuckHead holds the first record of a partition and handles millions behind it: everything behind is handled, and
// memory stays bounded (C7). (goal: 10 million behind it, under 200 MB; set GAPLESS_BENCH_STUCK=10000000)
func BenchmarkStuckHead(b *testing.B) {
	addr := startBenchBroker(b)
	for _, order := range []Order{OrderUnordered, OrderKey} {
		b.Run("order="+string(order), func(b *testing.B) {
			want := stuckRecords()
			var handled atomic.Int64
			gate, enough := make(chan struct{}), make(chan struct{})
			stuckKey := []byte(nil)
			c := Config{Brokers: []string{addr}, Group: benchGroup(), Topics: []string{"one"}, Order: order, Workers: 8, DeadLetter: DeadLetter{GiveUp: GiveUpSkip},
				Handler: HandlerFunc(func(_ context.Context, r *Record) error {
					if r.Offset == 0 {
						stuckKey = append(stuckKey, r.Key...)
						<-gate
						return nil
					}
					if handled.Add(1) == want {
						close(enough)
					}
					return nil
				})}
			e, err := New(c)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			begun := time.Now()
			go func() { done <- e.Run(ctx) }()
			peak := 0.0
			for waiting := true; waiting; {
				select {
				case <-enough:
					waiting = false
				case <-time.After(50 * time.Millisecond):
				}
				peak = max(peak, rss())
			}
			took := time.Since(begun)
			st := e.Status()
			if st.Partitions[0].Frontier != 0 {
				b.Fatalf("the frontier passed the stuck record: %d", st.Partitions[0].Frontier)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(peak, "peak-rss-MB")
			b.ReportMetric(float64(want)/took.Seconds(), "records/s")
			close(gate)
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchStatus compares CPU a record with and without somebody who looks at the engine ten times a second; see BenchmarkStatus.
func BenchStatus(b *testing.B, look func(*Engine)) {
	addr := startBenchBroker(b)
	var with, without []float64
	for range benchRounds() {
		without = append(without, engineArm(b, addr, OrderKey, nil).cpuPerRecord())
		with = append(with, watchedArm(b, addr, look).cpuPerRecord())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(with)-median(without), "status-ns/record")
	b.Logf("without %s, looked at 10 times a second %s ns a record", spread(without), spread(with))
}

func watchedArm(b *testing.B, addr string, look func(*Engine)) sample {
	b.Helper()
	var e atomic.Pointer[Engine]
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if e := e.Load(); e != nil {
					look(e)
				}
			}
		}
	}()
	s := engineArmOf(b, addr, OrderKey, nil, func(x *Engine) { e.Store(x) })
	close(stop)
	<-stopped
	return s
}

// BenchmarkRevoke measures what a stop takes beyond the slowest running handler: drain, commit and leave. (goal: <= 50 ms)
func BenchmarkRevoke(b *testing.B) {
	addr := startBenchBroker(b)
	const handler = 20 * time.Millisecond
	var beyond []float64
	for range benchRounds() {
		drained := make(chan time.Duration, benchPartitions)
		c := Config{Brokers: []string{addr}, Group: benchGroup(), Topics: []string{"t"}, Workers: 500, DeadLetter: DeadLetter{GiveUp: GiveUpSkip},
			Handler: HandlerFunc(func(context.Context, *Record) error { time.Sleep(handler); return nil }),
			OnEvent: func(ev Event) {
				if ev.Name == EventReleased {
					drained <- ev.Took
				}
			}}
		e, err := New(c)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		<-e.Ready()
		time.Sleep(benchTime())
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		slowest := time.Duration(0)
		for range benchPartitions {
			slowest = max(slowest, <-drained)
		}
		beyond = append(beyond, float64(slowest-handler)/1e6)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(beyond), "ms-beyond-handler")
	b.Logf("beyond the handler: %s ms", spread(beyond))
}

// BenchmarkAllocations counts the allocations of the whole process a record, the client's included. (goal: 0)
func BenchmarkAllocations(b *testing.B) {
	addr := startBenchBroker(b)
	for _, order := range []Order{OrderUnordered, OrderKey, OrderPartition} {
		b.Run("order="+string(order), func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s := engineArm(b, addr, order, nil)
			runtime.ReadMemStats(&after)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(s.records), "allocs/record")
		})
	}
}
