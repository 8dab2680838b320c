package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

func TestProduceLines(t *testing.T) {
	b, cl := broker(t, "t")
	must(t, "one\ntwo\r\n\nlast", "produce", b, "--topic=t")
	must(t, "ann:1\nbob:2:3\n", "produce", b, "--topic=t", "--key-separator=:")
	got := map[string]int{}
	for _, r := range consumeAll(t, cl, "t", 6) {
		key := "nil"
		if r.Key != nil {
			key = string(r.Key)
		}
		got[key+"="+string(r.Value)]++
	}
	for _, want := range []string{"nil=one", "nil=two", "nil=", "nil=last", "ann=1", "bob=2:3"} {
		if got[want] != 1 {
			t.Errorf("%q came %d times; got %v", want, got[want], got)
		}
	}
	for _, c := range []struct{ in, want string }{{"nokey\n", "line 1: has no key"}, {"a:1\nb\n", "line 2"}} {
		if r := command(t, c.in, nil, "produce", b, "--topic=t", "--key-separator=:"); r.code != 1 || !strings.Contains(r.err, c.want) {
			t.Errorf("%q: exit code %d, %s", c.in, r.code, r.err)
		}
	}
	if r := command(t, `{"value":"ok"}`+"\n\n"+`{"vaule":"x"}`, nil, "produce", b, "--topic=t", "--format=json"); r.code != 1 || !strings.Contains(r.err, "stdin, line 3") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
}

// The sums add up, and every key has one partition: the one that the Java client would choose.
func TestSpread(t *testing.T) {
	b, cl := broker(t)
	rep := decode[spreadReport](t, must(t, "", "produce", b, "--topic=new", "--create", "--partitions=5", "--generate=3000", "--keys=40", "--zipf=1", "--size=64", "--json"))
	var records, bytes int64
	keys := 0
	for i, p := range rep.Partitions {
		if p.Partition != int32(i) {
			t.Errorf("row %d is partition %d", i, p.Partition)
		}
		records, bytes, keys = records+p.Records, bytes+p.Bytes, keys+p.Keys
	}
	if len(rep.Partitions) != 5 || rep.Produced != 3000 || records != 3000 || keys != rep.Keys || keys > 40 {
		t.Errorf("the spread does not add up: %+v", rep)
	}
	partitionOf := map[string]int32{}
	for _, r := range consumeAll(t, cl, "new", 3000) {
		if p, known := partitionOf[string(r.Key)]; known && p != r.Partition {
			t.Fatalf("key %s is in partitions %d and %d", r.Key, p, r.Partition)
		}
		partitionOf[string(r.Key)] = r.Partition
		if len(r.Value) != 64 || !json.Valid(r.Value) {
			t.Fatalf("value %q is not 64 bytes of JSON", r.Value)
		}
	}
	table := must(t, "", "produce", b, "--topic=new", "--generate=10", "--keys=0")
	if !strings.Contains(table, "PARTITION") || strings.Count(table, "\n") != 6 {
		t.Errorf("not a table of 5 partitions:\n%s", table)
	}

	// From the tests of Kafka's own Utils.murmur2.
	for key, hash := range map[string]int32{"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536} {
		must(t, key+"\tx\n", "produce", b, "--topic=java-"+key, "--create", "--partitions=7", "--key-separator=\t")
		if got, want := consumeAll(t, cl, "java-"+key, 1)[0].Partition, (hash&0x7fffffff)%7; got != want {
			t.Errorf("key %q went to partition %d, the Java client's is %d", key, got, want)
		}
	}
}

func TestProduceCreate(t *testing.T) {
	b, cl := broker(t, "t")
	must(t, "x\n", "produce", b, "--topic=t", "--create")
	r := command(t, "x\n", nil, "produce", b, "--topic=t", "--create", "--partitions=9")
	if r.code != 0 || !strings.Contains(r.err, "exists already; it keeps its partitions") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	must(t, "x\n", "produce", b, "--topic=u", "--create", "--partitions=9")
	topics, err := kadm.NewClient(cl).ListTopics(t.Context(), "t", "u")
	if err != nil || len(topics["t"].Partitions) != 3 || len(topics["u"].Partitions) != 9 {
		t.Errorf("partitions: %d and %d, %v", len(topics["t"].Partitions), len(topics["u"].Partitions), err)
	}
}

// An interrupt ends the input; what was read until then is written.
func TestProduceInterrupted(t *testing.T) {
	b, cl := broker(t, "t")
	ctx, interrupt := context.WithCancel(t.Context())
	in, feed := io.Pipe()
	defer func() { _ = feed.Close() }()
	go func() {
		for i := range 50 {
			_, _ = fmt.Fprintln(feed, i)
		}
		for end := kadm.NewClient(cl); ctx.Err() == nil; { // until all are on the broker: stdin stays open
			ends, _ := end.ListEndOffsets(ctx, "t")
			var n int64
			ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
			if n == 50 {
				interrupt()
			}
		}
	}()
	var out, errs lockedBuffer
	code := execute(ctx, streams{in, &out, &errs, nil}, []string{"produce", b, "--topic=t", "--json"})
	if rep := decode[spreadReport](t, out.String()); code != 0 || rep.Produced != 50 {
		t.Errorf("exit code %d, %+v, %s", code, rep, errs.String())
	}
}

func TestZipf(t *testing.T) {
	counts := map[string]float64{}
	k := newKeys(100, 1, 7)
	const n = 200_000
	for range n {
		counts[string(k.next())]++
	}
	for rank, want := range map[int]float64{1: 2, 9: 10} {
		if got := counts["key-0"] / counts[fmt.Sprintf("key-%d", rank)]; math.Abs(got-want) > want/10 {
			t.Errorf("key-0 came %.1f times as often as key-%d, want %.0f", got, rank, want)
		}
	}
	if newKeys(0, 1, 1).next() != nil {
		t.Error("no keys gave a key")
	}
	if a, b := newKeys(50, 0, 3), newKeys(50, 0, 3); string(a.next()) != string(b.next()) {
		t.Error("one seed gave two orders")
	}
}

func TestGeneratedSizes(t *testing.T) {
	for size := 1; size < 200; size++ {
		g := generator{size: size, keys: newKeys(1, 0, 1)}
		v := g.value(123)
		if !json.Valid(v) || len(v) != max(size, len(`{"n":123}`)) && size > 20 {
			t.Errorf("size %d gave %d bytes: %s", size, len(v), v)
		}
	}
}
