package engine

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/gaplesshq/gapless/internal/recordpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// someBatch is a batch of a log as a broker sends it.
type someBatch struct {
	first   int64
	epoch   int32
	control bool
	records []kmsg.Record
}

func (b *someBatch) raw() []byte {
	batch := kmsg.RecordBatch{
		FirstOffset: b.first, PartitionLeaderEpoch: b.epoch, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(len(b.records)), LastOffsetDelta: b.records[len(b.records)-1].OffsetDelta,
	}
	if b.control {
		batch.Attributes = 1<<4 | 1<<5
	}
	for _, r := range b.records {
		r.Length = int32(len(r.AppendTo(nil)) - 1) // behind the length itself, which is one byte while it is 0
		batch.Records = r.AppendTo(batch.Records)
	}
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// someBatches is a log of batches with markers among them, holes within and between them, and leader epochs that grow.
func someBatches(rnd *rand.Rand) (batches []someBatch) {
	at, epoch := int64(rnd.IntN(100)), int32(rnd.IntN(3))
	for range 1 + rnd.IntN(12) {
		b := someBatch{first: at, epoch: epoch, control: rnd.IntN(5) == 0}
		n, delta := 1, int32(0)
		if !b.control {
			n = 1 + rnd.IntN(40)
		}
		hasHeaders := rnd.IntN(4) == 0
		for range n {
			r := kmsg.Record{OffsetDelta: delta, Key: make([]byte, rnd.IntN(20)), Value: make([]byte, rnd.IntN(200))}
			if rnd.IntN(8) == 0 {
				r.Key = nil
			}
			if rnd.IntN(8) == 0 {
				r.Value = nil
			}
			if hasHeaders {
				r.Headers = []kmsg.Header{{Key: "trace", Value: make([]byte, 16)}}
			}
			b.records = append(b.records, r)
			if delta++; rnd.IntN(30) == 0 {
				delta += int32(rnd.IntN(5))
			}
		}
		batches = append(batches, b)
		if at += int64(delta); rnd.IntN(8) == 0 {
			at += int64(rnd.IntN(20))
		}
		if rnd.IntN(5) == 0 {
			epoch++
		}
	}
	return batches
}

// decode is what the client makes of the batches.
func decode(t *testing.T, pool *recordpool.Pool, batches []someBatch) []*kgo.Record {
	var raw []byte
	for i := range batches {
		raw = append(raw, batches[i].raw()...)
	}
	p, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t", KeepControlRecords: true, Pools: []kgo.Pool{pool}},
		&kmsg.FetchResponseTopicPartition{RecordBatches: raw}, kgo.DefaultDecompressor(), nil)
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	return p.Records
}

// C1, C7: what the first and the last record of each batch tell is what all of them would have told: where a marker stands and another
// leader epoch begins, whether there are holes, and what they pin, but for what the format puts between two records.
func TestStretchesAreWhatEachRecordSays(t *testing.T) {
	rnd := seeded(t)
	var pool recordpool.Pool
	for range 300 {
		recs := decode(t, &pool, someBatches(rnd))
		for rest := recs; len(rest) > 0; {
			if rest[0].Attrs.IsControl() {
				rest = rest[1:]
				continue
			}
			n, dense, size, headers := 0, true, int64(0), 0
			for ; n < len(rest) && rest[n].LeaderEpoch == rest[0].LeaderEpoch && !rest[n].Attrs.IsControl(); n++ {
				dense = dense && rest[n].Offset == rest[0].Offset+int64(n)
				size += sizeOf(rest[n])
				headers += len(rest[n].Headers)
			}
			s := stretchOf(rest, nil)
			if len(s.recs) != n || s.dense != dense {
				t.Fatalf("a stretch from %d of %d records, dense: %v; it is of %d, %v", rest[0].Offset, len(s.recs), s.dense, n, dense)
			}
			// Between two records there are up to 12 bytes of lengths and deltas; the last one's header is not in it.
			if least, most := size-int64(40*headers), size+int64(12*n+45*headers+12); s.bytes < least || s.bytes > most {
				t.Fatalf("%d records pin %d bytes, and are said to pin %d", n, size, s.bytes)
			}
			rest = rest[n:]
		}
		new(recordpool.Pool).Release(recs)
	}
}

// C7: records that a hook of the embedder's has given other keys and values count as what they hold, wherever that is.
func TestMovedRecordsAreAddedUp(t *testing.T) {
	mem := make([]byte, 1<<20)
	for name, move := range map[string]func(i int, r *kgo.Record){
		"elsewhere": func(i int, r *kgo.Record) { r.Value = bytes.Repeat([]byte("opened"), 1+i*7%100) },
		"out of order": func(i int, r *kgo.Record) {
			if r.Key, r.Value = nil, mem[1000*i:][:100]; i == 50 {
				r.Value = mem[200_000:][:100]
			}
		},
		"far apart": func(i int, r *kgo.Record) { r.Key, r.Value = nil, mem[10_000*i:][:100] },
		"headers":   func(i int, r *kgo.Record) { r.Headers = make([]kgo.RecordHeader, min(i, 1)*20) },
		"value before": func(i int, r *kgo.Record) {
			if r.Key, r.Value = mem[1000+2*i:][:1], mem[i:][:50]; i == 99 {
				r.Value = mem[5000:][:50]
			}
		},
	} {
		var pool recordpool.Pool
		b := someBatch{}
		for i := range 100 {
			b.records = append(b.records, kmsg.Record{OffsetDelta: int32(i), Key: []byte("k"), Value: []byte("sealed")})
		}
		recs := decode(t, &pool, []someBatch{b})
		var want int64
		for i, r := range recs {
			move(i, r)
			want += sizeOf(r)
		}
		if s := stretchOf(recs, nil); s.bytes != want {
			t.Errorf("%s: they are said to pin %d bytes, and pin %d", name, s.bytes, want)
		}
	}
}
