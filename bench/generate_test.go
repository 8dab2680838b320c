package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestCannedLog: the batch decodes to the records that were put into it, with every codec, at any offset, with the shares of keys and
// nulls that were asked for.
func TestCannedLog(t *testing.T) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		c := with(t, "compression", codec, "keys", "hot:1000:0.5", "nulls", "0.2", "record-bytes", "120")
		b, err := newCanned(c, nil)
		if err != nil {
			t.Fatal(codec, err)
		}
		if packed := len(b.raw) < batchBytes(c.Partitions)*3/4; packed != (codec != "none") {
			t.Errorf("%s: %d bytes of %d", codec, len(b.raw), batchBytes(c.Partitions))
		}
		d := newDecoder(b, nil)
		d.next(3)
		p := d.next(3)
		if p.Err != nil || int64(len(p.Records)) != b.records {
			t.Fatalf("%s: %d of %d records: %v", codec, len(p.Records), b.records, p.Err)
		}
		hot, nulls := 0, 0
		for i, r := range p.Records {
			if r.Offset != b.records+int64(i) || r.Partition != 3 {
				t.Fatalf("%s: record %d is at %d of partition %d", codec, i, r.Offset, r.Partition)
			}
			if bytes.Equal(r.Key, keyBytes(nil, 0)) {
				hot++
			}
			if r.Value == nil {
				nulls++
			} else if len(r.Value) != 120 {
				t.Fatalf("%s: a value of %d bytes", codec, len(r.Value))
			} else if err := decode(r.Value); err != nil {
				t.Fatalf("%s: %s: %v", codec, r.Value, err)
			}
		}
		n := float64(len(p.Records))
		if got := float64(hot) / n; math.Abs(got-0.5) > 0.05 || math.Abs(got-b.hottest) > 1e-9 {
			t.Errorf("%s: the hot key has a share of %.3f, counted as %.3f", codec, got, b.hottest)
		}
		if got := float64(nulls) / n; math.Abs(got-0.2) > 0.05 {
			t.Errorf("%s: a share of %.3f has no value", codec, got)
		}
	}
}

// TestSentAt: a value says when it should have been sent, to the nanosecond, and is JSON.
func TestSentAt(t *testing.T) {
	g := newGenerator(with(t, "record-bytes", "64", "keys", "none"), nil)
	sent := time.Unix(1_700_000_000, 123_456_789)
	key, value := g.next(sent)
	if at, ok := sentAt(value); !ok || at != sent.UnixNano() {
		t.Errorf("%s says %d", value, at)
	}
	if key != nil || len(value) != 64 || !json.Valid(value) {
		t.Errorf("key %q, value %s", key, value)
	}
	for _, v := range []string{"", "short", `{"sent":12345678901234567x9,"n":1}`, `{"tens":1234567890123456789,"n":1}`} {
		if _, ok := sentAt([]byte(v)); ok {
			t.Errorf("%q says when it was sent", v)
		}
	}
}

// TestHottest: the shares that are worked out are those that are drawn.
func TestHottest(t *testing.T) {
	for _, s := range []string{"uniform:4", "zipf:100:1.3", "hot:10:0.4", "hot:1:0.4"} {
		k, err := ParseKeys(s)
		if err != nil {
			t.Fatal(err)
		}
		g := newGenerator(Case{Keys: k, RecordBytes: 10}, nil)
		counts := map[int]int{}
		const n = 200_000
		for range n {
			counts[g.key()]++
		}
		most := 0
		for _, c := range counts {
			most = max(most, c)
		}
		if got := float64(most) / n; math.Abs(got-k.hottest()) > 0.01 {
			t.Errorf("%s: the most frequent has %.4f, worked out %.4f", s, got, k.hottest())
		}
	}
}

// TestHandlerTimes: handlers take the mean that they say, and a record the same time always.
func TestHandlerTimes(t *testing.T) {
	for _, s := range []string{"sleep:2ms", "exp:2ms", "pareto:2ms:2.5", "pareto:2ms:1.5", "bykey:2ms"} {
		h, err := ParseHandler(s)
		if err != nil {
			t.Fatal(err)
		}
		sum, most := time.Duration(0), time.Duration(0)
		const n = 400_000
		for i := range int64(n) {
			r := &kgo.Record{Partition: int32(i % 7), Offset: i, Key: keyBytes(nil, int(i))}
			took := h.lasts(r)
			sum, most = sum+took, max(most, took)
			if i%1000 == 0 && h.lasts(r) != took {
				t.Fatalf("%s: a record takes %v, and another time %v", s, took, h.lasts(r))
			}
		}
		if got, want := float64(sum)/n, float64(h.least()); math.Abs(got/want-1) > 0.05 {
			t.Errorf("%s: a mean of %v instead of %v", s, time.Duration(got), h.least())
		}
		if most > paretoCut*h.Mean {
			t.Errorf("%s: one takes %v", s, most)
		}
	}
}

// TestLatencyFromIntendedTime: a record that was sent late counts from when it was due, and one without a value by its timestamp.
func TestLatencyFromIntendedTime(t *testing.T) {
	m := newMeter(with(t, "rate", "10"), "")
	g := newGenerator(with(t), nil)
	ago := time.Now().Add(-time.Hour / 10)
	_, value := g.next(ago)
	m.pass(&kgo.Record{Value: value, Timestamp: time.Now()}) // the client stamped it when it was sent
	m.pass(&kgo.Record{Timestamp: ago})
	h := m.latencies()
	if h.TotalCount() != 2 || h.Min() < int64(time.Minute*5) {
		t.Errorf("%d records, the earliest after %v", h.TotalCount(), time.Duration(h.Min()))
	}
	m.forget()
	if n := m.latencies().TotalCount(); n != 0 {
		t.Errorf("%d latencies of the warm-up are left", n)
	}
}
