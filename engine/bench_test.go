package engine

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokerEnv makes this test binary a broker: the benchmarks' own, so that its CPU is not counted as the engine's.
const brokerEnv = "GAPLESS_BENCH_BROKER"

const (
	benchPartitions = 12
	benchKeys       = 10_000
	benchValue      = 100
)

// serveBenchBroker serves an endless log of canned 100 byte records, or what is produced to an empty one, until its parent
// closes its standard input.
func serveBenchBroker() {
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(benchPartitions, "t"), kfake.SeedTopics(1, "one")}
	if os.Getenv(brokerEnv) != "empty" {
		opts = append(opts, kfake.SyntheticFetch(kfake.SyntheticBatch{Batch: keyedBatch()}))
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(brokerEnv) != "empty" {
		c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return endlessEpochs(req.(*kmsg.OffsetForLeaderEpochRequest)), nil, true
		})
	}
	fmt.Println(c.ListenAddrs()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
	c.Close()
}

// endlessEpochs is where the leader epochs of the endless log end. By itself the broker says where the log that it really has
// ends, which is empty, and who begins at a committed offset would take that for a truncation.
func endlessEpochs(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, p.LeaderEpoch, 1<<62
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// keyedBatch is one megabyte of records with 10,000 keys.
func keyedBatch() []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	var records []byte
	n := int32(0)
	for len(records) < 1<<20-200 {
		value := make([]byte, benchValue)
		copy(value, fmt.Sprintf("record %d", n))
		r := kmsg.Record{OffsetDelta: n, Key: fmt.Appendf(nil, "key-%05d", rng.IntN(benchKeys)), Value: value}
		body := r.AppendTo(nil)[1:] // after the length, which is one byte while it is 0
		r.Length = int32(len(body))
		records = r.AppendTo(records)
		n++
	}
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: 0, Magic: 2, LastOffsetDelta: n - 1, FirstTimestamp: 1e12, MaxTimestamp: 1e12,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: n, Records: records,
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))                                          // its length
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli))) // its checksum
	return raw
}

func startBenchBroker(b *testing.B) string {
	b.Helper()
	return startBroker(b, "endless")
}

func startBroker(b *testing.B, log string) string {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), brokerEnv+"="+log)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(addr)
}

// sample is what an arm did in a stretch of time.
type sample struct {
	records int64
	cpu     time.Duration
	wall    time.Duration
}

func (s sample) cpuPerRecord() float64 { return float64(s.cpu.Nanoseconds()) / float64(s.records) }
func (s sample) rate() float64         { return float64(s.records) / s.wall.Seconds() }

// measure looks at a running arm for a while.
func measure(b *testing.B, count func() int64) sample {
	b.Helper()
	time.Sleep(300 * time.Millisecond) // under way
	n0, c0, t0 := count(), cpuTime(), time.Now()
	time.Sleep(benchTime())
	return sample{records: count() - n0, cpu: cpuTime() - c0, wall: time.Since(t0)}
}

func benchTime() time.Duration {
	if s, err := strconv.ParseFloat(os.Getenv("GAPLESS_BENCH_SECONDS"), 64); err == nil {
		return time.Duration(s * float64(time.Second))
	}
	return 500 * time.Millisecond
}

func benchRounds() int {
	if n, err := strconv.Atoi(os.Getenv("GAPLESS_BENCH_ROUNDS")); err == nil {
		return n
	}
	return 3
}

var groupNumber atomic.Int64

func benchGroup() string { return "bench-" + strconv.FormatInt(groupNumber.Add(1), 10) }

// bareLoop is the control arm: the leanest franz-go poll loop there is, with pooled records, the engine's fetch options and
// the engine's commits.
func bareLoop(b *testing.B, addr string) sample {
	b.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup(benchGroup()), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.KeepControlRecords(), kgo.WithPools(&recordpool.Pool{}), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(16<<20), kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxWait(250*time.Millisecond), kgo.DisableClientMetrics(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var n atomic.Int64
	go func() {
		defer close(done)
		next := map[string]map[int32]kgo.EpochOffset{"t": {}}
		committed := time.Now()
		for ctx.Err() == nil {
			fs := cl.PollFetches(ctx)
			fs.EachPartition(func(p kgo.FetchTopicPartition) {
				if len(p.Records) == 0 {
					return
				}
				last := p.Records[len(p.Records)-1]
				next["t"][p.Partition] = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
				for _, r := range p.Records {
					handleNothing(r)
					r.Recycle()
				}
				n.Add(int64(len(p.Records)))
			})
			cl.AllowRebalance()
			if time.Since(committed) > time.Second {
				committed = time.Now()
				cl.CommitOffsets(ctx, map[string]map[int32]kgo.EpochOffset{"t": copyOf(next["t"])}, nil)
			}
		}
	}()
	s := measure(b, n.Load)
	cancel()
	<-done
	cl.CloseAllowingRebalance()
	return s
}

func copyOf(m map[int32]kgo.EpochOffset) map[int32]kgo.EpochOffset {
	c := map[int32]kgo.EpochOffset{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

// handleNothing looks at its record, as any handler would at the least.
//
//go:noinline
func handleNothing(r *kgo.Record) int { return len(r.Value) }

func engineArm(b *testing.B, addr string, order Order, change func(*Config)) sample {
	b.Helper()
	return engineArmOf(b, addr, order, change, func(*Engine) {})
}

func engineArmOf(b *testing.B, addr string, order Order, change func(*Config), with func(*Engine)) sample {
	b.Helper()
	c := Config{Brokers: []string{addr}, Group: benchGroup(), Topics: []string{"t"}, Order: order, Workers: 8,
		Handler:    HandlerFunc(func(_ context.Context, r *Record) error { handleNothing(r.Record); return nil }),
		DeadLetter: DeadLetter{GiveUp: GiveUpSkip}}
	if change != nil {
		change(&c)
	}
	e, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	<-e.Ready()
	with(e)
	s := measure(b, func() int64 { return e.Counts().Handled })
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkOverhead runs the bare loop and the engine on the same endless log, in turn, and reports medians: CPU a record of
// the bare loop, and what the engine takes over it. The broker is a process of its own. (goals: +60 ns unordered, +150 by key)
func BenchmarkOverhead(b *testing.B) {
	addr := startBenchBroker(b)
	over := map[Order][]float64{}
	rate := map[Order][]float64{}
	var bare []float64
	for range benchRounds() {
		control := bareLoop(b, addr)
		bare = append(bare, control.cpuPerRecord())
		for _, o := range []Order{OrderUnordered, OrderKey, OrderPartition} {
			s := engineArm(b, addr, o, nil)
			over[o] = append(over[o], s.cpuPerRecord()-control.cpuPerRecord())
			rate[o] = append(rate[o], s.rate()/control.rate())
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(bare), "bare-cpu-ns/record")
	for o, xs := range over {
		b.ReportMetric(median(xs), string(o)+"-over-ns/record")
		b.ReportMetric(median(rate[o]), string(o)+"-rate-ratio")
		b.Logf("%-10s over the bare loop: %s ns a record, rate x %s", o, spread(xs), spread(rate[o]))
	}
	b.Logf("bare loop: %s ns a record", spread(bare))
}

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[len(s)/2]
}

func spread(xs []float64) string {
	s := slices.Sorted(slices.Values(xs))
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s[len(s)/2], s[0], s[len(s)-1])
}

// BenchmarkSlowHandler compares the engine on one partition with the same number of goroutines that run the same 2 ms handler
// with no engine at all, in the same run: timers and cores make that less than workers / 2 ms. (goal: >= 0.97) slots-full is the
// share of the workers' time that is spent in the handler, so it has the engine's loss alone; the rest of of-ideal is timers
// that fire later, or earlier, beside it.
func BenchmarkSlowHandler(b *testing.B) {
	addr := startBenchBroker(b)
	for _, workers := range []int{100, 1000} {
		for _, order := range []Order{OrderUnordered, OrderKey} {
			b.Run(fmt.Sprintf("workers=%d/order=%s", workers, order), func(b *testing.B) {
				var ratios, full, idealCPU, engineCPU []float64
				for range benchRounds() {
					ideal := sleepers(b, workers)
					var n naps
					s := engineArm(b, addr, order, func(c *Config) {
						c.Topics, c.Workers = []string{"one"}, workers
						c.Handler = HandlerFunc(func(context.Context, *Record) error { n.nap(); return nil })
					})
					ratios = append(ratios, s.rate()/ideal.rate())
					full = append(full, s.rate()*n.mean().Seconds()/float64(workers))
					idealCPU, engineCPU = append(idealCPU, ideal.cpuPerRecord()), append(engineCPU, s.cpuPerRecord())
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(median(ratios), "of-ideal")
				b.ReportMetric(median(full), "slots-full")
				b.Logf("%s of the engineless goroutines, slots full %s, CPU a record %s ns, without an engine %s ns",
					spread(ratios), spread(full), spread(engineCPU), spread(idealCPU))
			})
		}
	}
}

// naps is the slow handler, and how long it really took.
type naps struct{ n, nanos atomic.Int64 }

func (s *naps) nap() {
	began := time.Now()
	time.Sleep(2 * time.Millisecond)
	s.nanos.Add(int64(time.Since(began)))
	s.n.Add(1)
}

func (s *naps) mean() time.Duration { return time.Duration(s.nanos.Load() / max(s.n.Load(), 1)) }

func sleepers(b *testing.B, n int) sample {
	b.Helper()
	var all naps
	stop := make(chan struct{})
	done := make(chan struct{})
	for range n {
		go func() {
			for {
				select {
				case <-stop:
					done <- struct{}{}
					return
				default:
				}
				all.nap()
			}
		}()
	}
	s := measure(b, all.n.Load)
	close(stop)
	for range n {
		<-done
	}
	return s
}
