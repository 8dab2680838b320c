package main

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// work is what a record asks of its handler. The record's id and the seed decide it, so that every process knows it without being told.
type work struct {
	takes    time.Duration
	failures int // attempts that fail; more than there are = poisonous
}

// attempts is how often a record is tried before it becomes a dead letter.
const attempts = 3

// dice is a number that the seed, the id and a purpose decide (the mixer of SplitMix64).
func dice(seed, id, purpose uint64) uint64 {
	x := seed*0x9e3779b97f4a7c15 + id + purpose<<56
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// workOf makes most records quick, one in 500 slow, one in 200 fail once or twice, and one in 2,000 poisonous.
func workOf(seed, id uint64) work {
	w := work{takes: time.Duration(200+dice(seed, id, 1)%1800) * time.Microsecond}
	if dice(seed, id, 2)%500 == 0 {
		w.takes = 30 * time.Millisecond
	}
	switch d := dice(seed, id, 3) % 2000; {
	case d == 0:
		w.failures = math.MaxInt
	case d <= 10:
		w.failures = 1 + int(d%2)
	}
	return w
}

// keys is how many keys there are.
const keys = 5000

func keyOf(seed, id uint64) uint64 { return dice(seed, id, 4) % keys }

// partitionOf keeps a key in one partition, until there are more of them.
func partitionOf(seed, key uint64, partitions int) int32 {
	return int32(dice(seed, key, 5) % uint64(partitions))
}

// copied says whether the producer sends a record twice, as one does that did not hear the first acknowledgement.
func copied(seed, id uint64) bool { return dice(seed, id, 6)%200 == 0 }

const (
	idHeader   = "id"   // the business key, eight bytes
	copyHeader = "copy" // the record is the second of two
)

func idBytes(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

// identify reads what idBytes wrote.
func identify(headers []kgo.RecordHeader) (id uint64, isCopy bool) {
	for _, h := range headers {
		switch {
		case h.Key == idHeader && len(h.Value) == 8:
			id = binary.BigEndian.Uint64(h.Value)
		case h.Key == copyHeader:
			isCopy = true
		}
	}
	return id, isCopy
}

// valueSize is about that of a small JSON document.
const valueSize = 120

// valueOf is the same for both copies of a record, as the store compares them.
func valueOf(seed, id uint64) []byte {
	v := make([]byte, 0, valueSize)
	for i := uint64(0); len(v) < valueSize; i++ {
		v = binary.BigEndian.AppendUint64(v, dice(seed, id, 16+i))
	}
	return v
}
