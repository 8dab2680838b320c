package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// generator makes the records of a case. Values are JSON and begin with the time at which the record should have been sent, in
// nanoseconds since 1970; a third of the rest does not compress.
type generator struct {
	c     Case
	own   func(i int64) (key, value []byte)
	rng   *rand.Rand
	key   func() int
	pad   []byte
	count int64
}

func newGenerator(c Case, own func(i int64) (key, value []byte)) *generator {
	g := &generator{c: c, own: own, rng: rand.New(rand.NewPCG(1, 2))}
	g.key = c.Keys.drawer(g.rng)
	g.pad = bytes.Repeat([]byte("abcdefghij"), c.RecordBytes/10+1)
	return g
}

const (
	sentField  = `{"sent":`
	sentDigits = 19
)

// next is the next record; its key and value are its own.
func (g *generator) next(sent time.Time) (key, value []byte) {
	i := g.count
	g.count++
	if g.own != nil {
		return g.own(i)
	}
	if n := g.key(); n >= 0 {
		key = keyBytes(make([]byte, 0, 12), n)
	}
	if g.c.Nulls > 0 && g.rng.Float64() < g.c.Nulls {
		return key, nil
	}
	value = make([]byte, 0, g.c.RecordBytes+len(sentField)+sentDigits)
	value = append(value, sentField...)
	value = append(value, fmt.Sprintf("%019d", sent.UnixNano())...)
	value = append(value, `,"n":`...)
	value = strconv.AppendInt(value, i, 10)
	value = append(value, `,"pad":"`...)
	const end = `"}`
	if left := g.c.RecordBytes - len(value) - len(end); left > 0 {
		random := left / 3
		for range random {
			value = append(value, byte('A'+g.rng.IntN(26)))
		}
		value = append(value, g.pad[:left-random]...)
	}
	value = append(value, end...)
	if len(value) > g.c.RecordBytes { // too small to be JSON
		value = value[:g.c.RecordBytes]
	}
	return key, value
}

// sentAt reads when a record should have been sent; ok is false where its value does not say.
func sentAt(value []byte) (at int64, ok bool) {
	if len(value) < len(sentField)+sentDigits {
		return 0, false
	}
	if string(value[:len(sentField)]) != sentField {
		return 0, false
	}
	for _, d := range value[len(sentField) : len(sentField)+sentDigits] {
		if d < '0' || d > '9' {
			return 0, false
		}
		at = at*10 + int64(d-'0')
	}
	return at, true
}

// batchBytes is how large the canned batch of a partition is, before compression: what a fetch brings of it. A broker divides what a fetch
// may bring among many partitions; the embedded one sends a batch of each whatever that comes to, so the batches are small then.
func batchBytes(partitions int) int { return max(min(1<<20, 16<<20/partitions), 4<<10) }

// canned is a batch of the log in its wire format, which a broker can serve again and again under ever higher offsets.
type canned struct {
	raw     []byte
	records int64
	hottest float64 // share of the key that comes most often
	slowest float64 // largest product of a key's share and its time in nanoseconds, for HandlerByKey
}

// newCanned makes the batch of a case.
func newCanned(c Case, own func(i int64) (key, value []byte)) (*canned, error) {
	g := newGenerator(c, own)
	var records []byte
	n := int32(0)
	keys := map[string]int{}
	for n == 0 || len(records) < batchBytes(c.Partitions)-c.RecordBytes-100 && n < 1<<16 {
		r := kmsg.Record{OffsetDelta: n}
		r.Key, r.Value = g.next(time.UnixMilli(1e12))
		if r.Key != nil {
			keys[string(r.Key)]++
		}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // without the length itself, which takes one byte while it is 0
		records = r.AppendTo(records)
		n++
	}
	out := &canned{records: int64(n)}
	for key, times := range keys {
		part := float64(times) / float64(n)
		out.hottest = max(out.hottest, part)
		if c.Handler.Kind == HandlerByKey {
			out.slowest = max(out.slowest, part*float64(keyTime(c.Handler.Mean, []byte(key))))
		}
	}
	b := kmsg.RecordBatch{Magic: 2, LastOffsetDelta: n - 1, FirstTimestamp: 1e12, MaxTimestamp: 1e12,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: n, Records: records}
	compressor, err := kgo.DefaultCompressor(codec(c.Compression))
	if err != nil {
		return nil, err
	}
	if compressor != nil {
		var dst bytes.Buffer
		packed, used := compressor.Compress(&dst, records)
		if used == kgo.CodecError {
			return nil, fmt.Errorf("compress the log with %s: the codec failed", c.Compression)
		}
		b.Records, b.Attributes = packed, int16(used)
	}
	out.raw = b.AppendTo(nil)
	binary.BigEndian.PutUint32(out.raw[8:], uint32(len(out.raw)-12))                                          // its length
	binary.BigEndian.PutUint32(out.raw[17:], crc32.Checksum(out.raw[21:], crc32.MakeTable(crc32.Castagnoli))) // its checksum
	return out, nil
}
