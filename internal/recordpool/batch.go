package recordpool

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Batch takes the records that are of the same batch of the log as the first: they lie side by side in a slab, and between the slabs
// that the client gets from a Pool there is always a gap. Records of the formats that had no leader epochs are in no slab, and neither
// is one without a context, by which it would find back: such a one stands alone.
func Batch(recs []*kgo.Record) []*kgo.Record {
	n := 1
	if recs[0].Context != nil && recs[0].LeaderEpoch >= 0 && slabsAreBatches() {
		for n < len(recs) && sideBySide(recs[n-1], recs[n]) {
			n++
		}
	}
	return recs[:n]
}

// slabsAreBatches says that the client decodes each batch into a slab of its own, as it does in the version that this was written for.
// With one that does otherwise every record is looked at.
var slabsAreBatches = sync.OnceValue(func() bool {
	const nothing = "\x0c\x00\x00\x00\x01\x01\x00" // a record without a key and a value
	var raw []byte
	for offset := range int64(3) {
		b := kmsg.RecordBatch{FirstOffset: offset, Magic: 2, NumRecords: 1, Records: []byte(nothing)}
		at := len(raw)
		raw = b.AppendTo(raw)
		binary.BigEndian.PutUint32(raw[at+8:], uint32(len(raw)-at-12)) // its length
	}
	p, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{DisableCRCValidation: true, Pools: []kgo.Pool{&Pool{}}},
		&kmsg.FetchResponseTopicPartition{RecordBatches: raw}, kgo.DefaultDecompressor(), nil)
	recs := p.Records
	for i := 1; i < len(recs); i++ {
		if sideBySide(recs[i-1], recs[i]) {
			return false
		}
	}
	return len(recs) == 3
})

// sideBySide says that b is the record behind a in a slab.
func sideBySide(a, b *kgo.Record) bool {
	return uintptr(unsafe.Pointer(b))-uintptr(unsafe.Pointer(a)) == unsafe.Sizeof(kgo.Record{})
}
