package window

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"testing"
)

// sum ends a body with its checksum.
func sum(body []byte) []byte {
	return binary.BigEndian.AppendUint32(body, crc32.Checksum(body, castagnoli))
}

// FuzzDecode: whatever a commit carries, the answer is one of the errors or a window that is written back as it was read.
// Seen at confluentinc/parallel-consumer#62.
func FuzzDecode(f *testing.F) {
	w := full()
	good := string(w.Append(nil, 0))
	for _, s := range []string{"", "gapless", "gapless:", "gapless:1:", "gapless:2:AAAA", "gapless:1 partitions=3", "some-host/7", good, good[:40], good + "\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, metadata string) {
		w, err := Decode(metadata)
		check(t, w, err)
		if err == nil {
			if again := w.Append(nil, len(metadata)); string(again) != metadata {
				t.Fatalf("%q was written back as %q", metadata, again)
			}
		}
	})
}

// FuzzDecodeBinary gives the body a good checksum, which chance would not find.
func FuzzDecodeBinary(f *testing.F) {
	for _, w := range []Window{
		full(), {}, {Frontier: 1 << 40, Highest: 1<<40 - 1, TopicID: topicA, Partitions: 3},
		{Frontier: 5, Highest: 9, Undone: []int64{5, 7}, Epochs: []Epoch{{1, -1}, {6, 0}}, Cut: true},
	} {
		raw := w.AppendBinary(nil)
		f.Add(raw[:len(raw)-checksumSize])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := sum(bytes.Clone(body))
		w, err := DecodeBinary(raw)
		check(t, w, err)
		if err == nil {
			if again := w.AppendBinary(nil); !bytes.Equal(again, raw) {
				t.Fatalf("%x was written back as %x", raw, again)
			}
		}
	})
}

// check is what holds of all that is decoded.
func check(t *testing.T, w Window, err error) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, ErrNone) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrDamaged) || !reflect.DeepEqual(w, nothing) {
			t.Fatalf("%+v, %v", w, err)
		}
		return
	}
	if w.Frontier < 0 || w.Highest < w.Frontier-1 || w.Highest == w.Frontier || !w.consistent() {
		t.Fatalf("inconsistent: %+v", w)
	}
	if w.Done(w.Frontier) || w.Done(w.Highest+1) || w.Settled(w.Frontier, 0) {
		t.Fatalf("the frontier or the next offset counts as settled: %+v", w)
	}
	for _, o := range w.Undone {
		if w.Done(o) {
			t.Fatalf("%d is undone and settled", o)
		}
	}
	if settled, undone := w.Counts(); settled < 0 || undone != int64(len(w.Undone)) || (settled > 0) != (w.Highest > w.Frontier) {
		t.Fatalf("%d settled, %d undone in %+v", settled, undone, w)
	}
	_ = w.String()
}

// FuzzRoundTrip writes windows of random models under random limits, and reads them back.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1), uint16(0))
	f.Add(uint64(2), uint16(80))
	f.Add(uint64(3), uint16(4096))
	f.Fuzz(func(t *testing.T, seed uint64, limit uint16) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := randomModel(r)
		w := m.window(r)
		got, err := DecodeBinary(w.AppendBinary(nil))
		if err != nil || !reflect.DeepEqual(got, w) {
			t.Fatalf("%v: got %+v, want %+v", err, got, w)
		}
		text := w.Append(nil, int(limit))
		if len(text) == 0 {
			return
		}
		got, err = Decode(string(text))
		check(t, got, err)
		if err != nil || limit > 0 && len(text) > int(limit) || got.Frontier != w.Frontier || got.Highest > w.Highest {
			t.Fatalf("%v: %+v for %+v, limit %d", err, got, w, limit)
		}
	})
}
