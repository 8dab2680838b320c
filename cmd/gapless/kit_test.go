package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

// binary is the path of the command, for what can't be tested within this process: signals. It is built once, and not before a test
// asks: each worker of a fuzz test is a process that comes through TestMain, and would build for longer than it is to fuzz.
func binary(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	buildDir string
	build    = sync.OnceValues(func() (path string, err error) {
		if buildDir, err = os.MkdirTemp("", "gapless"); err != nil {
			return "", err
		}
		path = filepath.Join(buildDir, "gapless.exe")
		if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
			return "", fmt.Errorf("build the command: %w\n%s", err, out)
		}
		return path, nil
	})
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// result is what a command left behind.
type result struct {
	code     int
	out, err string
}

// command runs a command line in this process. Every test has a deadline: a hang is a failure.
func command(t *testing.T, stdin string, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs lockedBuffer
	code := execute(ctx, streams{strings.NewReader(stdin), &out, &errs, env}, args)
	if ctx.Err() != nil {
		t.Errorf("%q did not end in time; stderr: %s", args, errs.String())
	}
	return result{code, out.String(), errs.String()}
}

// must runs a command that has to succeed, and gives its stdout.
func must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := command(t, stdin, nil, args...)
	if r.code != 0 {
		t.Fatalf("%q: exit code %d; stderr: %s", args, r.code, r.err)
	}
	return r.out
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// broker starts a broker with topics of three partitions, and gives the flag that points to it, and a client.
func broker(t *testing.T, topics ...string) (flag string, cl *kgo.Client) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topics...),
		kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "100"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return "--brokers=" + cluster.ListenAddrs()[0], client(t, cluster.ListenAddrs()[0])
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

// fill writes n records into each of the three partitions of a topic.
func fill(t *testing.T, cl *kgo.Client, topic string, n int) {
	t.Helper()
	var records []*kgo.Record
	for p := range int32(3) {
		for i := range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)})
		}
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// commit commits an offset for all three partitions of a topic.
func commit(t *testing.T, cl *kgo.Client, group, topic string, offset int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	for p := range int32(3) {
		offsets.AddOffset(topic, p, offset, -1)
	}
	if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
}

func committed(t *testing.T, cl *kgo.Client, group, topic string) [3]int64 {
	t.Helper()
	offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	var at [3]int64
	for p := range at {
		o, _ := offsets.Lookup(topic, int32(p))
		at[p] = o.At
	}
	return at
}

// printedLine is a line of "gapless run".
type printedLine struct {
	Topic     string
	Partition int32
	Offset    int64
	Key       *string
	Value     *string
}

func printedLines(t *testing.T, out string) []printedLine {
	t.Helper()
	var lines []printedLine
	for line := range strings.Lines(out) {
		var l printedLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, l)
	}
	return lines
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}
