package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// C1, C7, C9: a small batch that expands to very much is not expanded: its partition stops at it and says so, for good, what came before
// it is committed, and other partitions go on.
func TestCompressedBombStopsItsPartition(t *testing.T) {
	for name, codec := range map[string]kgo.CompressionCodec{"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression()} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				bomber := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(32<<20), kgo.MaxBufferedBytes(64<<20))
				defer bomber.Close()
				w.produce(0, "a", "b")
				bomb := &kgo.Record{Topic: "t", Partition: 0, Value: make([]byte, 8<<20)}
				if err := bomber.ProduceSync(context.Background(), bomb).FirstErr(); err != nil {
					t.Fatal(err)
				}
				w.produce(0, "c")
				w.produce(1, "d")
				var log callLog
				c := w.config(func(_ context.Context, r *Record) error { log.add(r); return nil })
				c.FetchMaxBatchBytes = 4 << 20
				m := w.start(c)
				ev := m.awaitName(EventFetchFailed)
				if !errors.Is(ev.Err, kgo.ErrMaxDecompress) || !strings.Contains(ev.Err.Error(), "offset 2 expands") || !strings.Contains(ev.Hint, "commit offset 3") {
					t.Errorf("event %v, %s", ev.Err, ev.Hint)
				}
				w.eventually("committed", func() bool { return w.committed("t", 0) == 2 && w.committed("t", 1) == 1 })
				time.Sleep(10 * time.Minute)
				ok, problems := m.e.Healthy()
				if ok || !strings.Contains(fmt.Sprint(problems), "expands to more than FetchMaxBatchBytes") {
					t.Errorf("healthy %v: %v", ok, problems)
				}
				if n := m.count(EventFetchFailed); n != 1 || log.len() != 3 || w.committed("t", 0) != 2 {
					t.Errorf("told %d times, %d records handled, committed %d", n, log.len(), w.committed("t", 0))
				}
				m.stop()

				c.FetchMaxBatchBytes = 16 << 20 // as the hint says
				m = w.start(c)
				w.eventually("committed", func() bool { return w.committed("t", 0) == 4 })
				m.stop()
			})
		})
	}
}

// The same with zstd, in real time: the decoder's finalizer closes a channel, which it must not out of another test's bubble.
func TestZstdBombStopsItsPartition(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(32<<20), kgo.MaxBufferedBytes(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: make([]byte, 8<<20)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	told := make(chan Event, 1000)
	e, err := New(Config{Brokers: cluster.ListenAddrs(), Group: testGroup, Topics: []string{"t"}, FetchMaxBatchBytes: 4 << 20, OnEvent: func(ev Event) { told <- ev },
		Handler: HandlerFunc(func(context.Context, *Record) error { t.Error("it was expanded"); return nil })})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	for ev := range told {
		if ev.Name == EventFetchFailed {
			if !errors.Is(ev.Err, kgo.ErrMaxDecompress) {
				t.Errorf("failed with %v", ev.Err)
			}
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// C1: records of every strange form go through the engine and into their dead letters byte for byte, and what is shown of them is text.
func TestStrangeRecords(t *testing.T) {
	many := make([]kgo.RecordHeader, 10_000)
	for i := range many {
		many[i] = kgo.RecordHeader{Key: "h", Value: []byte{byte(i)}}
	}
	strange := []*kgo.Record{
		{},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("\xff\xfe"), Value: []byte("\x00\xff\xed\xa0\x80"), Headers: []kgo.RecordHeader{{Key: "\xff", Value: []byte("\xff")}, {Key: "", Value: nil}, {Key: "h", Value: []byte{}}}},
		{Key: []byte("\x1b[2J\r\n"), Value: []byte("\x1b]0;title\a"), Headers: []kgo.RecordHeader{{Key: "error_message", Value: []byte("mine")}}},
		{Key: bytes.Repeat([]byte("k"), 100_000), Value: []byte("long key")},
		{Key: []byte("many"), Headers: many},
		{Value: bytes.Repeat([]byte{0xff}, 900_000)},
		{Key: []byte("before our time"), Timestamp: time.UnixMilli(0)},
		{Key: []byte("far"), Timestamp: time.UnixMilli(1 << 52)},
	}
	for _, format := range []DeadLetterFormat{DeadLetterHeaders, DeadLetterEnvelope} {
		t.Run(string(format), func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				for _, r := range strange {
					c := *r
					c.Topic = "t"
					if err := w.cl.ProduceSync(context.Background(), &c).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				var log lockedText
				c := w.config(func(_ context.Context, r *Record) error { return Permanent(fmt.Errorf("quoting \xff %.100s", r.Value)) })
				c.DeadLetter.Format, c.DeadLetter.BreakerRatio = format, 1
				c.Log = zerolog.New(&log).Level(zerolog.TraceLevel)
				m := w.start(c)
				w.eventually("committed", func() bool { return w.committed("t", 0) == int64(len(strange)) })
				status := m.e.Status().String()
				m.stop()
				for line := range strings.Lines(log.String()) {
					if !json.Valid([]byte(line)) || strings.ContainsAny(line, "\x1b\x00") {
						t.Errorf("a line of the log: %q", line)
					}
				}
				if !json.Valid([]byte(status)) {
					t.Errorf("status %q", status)
				}
				dead := map[string]*kgo.Record{}
				for _, r := range w.dead("t.dlq", len(strange)) {
					dead[offsetOf(t, format, r)] = r
				}
				for i, want := range strange {
					got := dead[fmt.Sprint(i)]
					if got == nil {
						t.Errorf("record %d has no dead letter", i)
						continue
					}
					if format == DeadLetterHeaders && (!same(got.Value, want.Value) || !reflect.DeepEqual(got.Headers[:len(want.Headers)], headersAsRead(want.Headers))) {
						t.Errorf("record %d is changed: %.200q", i, got.Value)
					}
					if !same(got.Key, want.Key) {
						t.Errorf("the key of record %d is %.100q", i, got.Key)
					}
				}
			})
		})
	}
}

func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func headersAsRead(hs []kgo.RecordHeader) []kgo.RecordHeader {
	return append([]kgo.RecordHeader{}, hs...)
}

func offsetOf(t *testing.T, format DeadLetterFormat, r *kgo.Record) string {
	t.Helper()
	if format == DeadLetterHeaders {
		return headerText(r, HeaderOffset)
	}
	var env Envelope
	if err := json.Unmarshal(r.Value, &env); err != nil {
		t.Fatalf("%v: %.200q", err, r.Value)
	}
	return fmt.Sprint(env.Offset)
}
