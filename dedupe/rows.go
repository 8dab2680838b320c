package dedupe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The keyspace. What lies in it was written by one synced batch a group, except the sealed rows, which are ingested.
//
//	a <bucket u32> <part u32> <seq u64>   the marks of one group, in the order of their coming
//	g <scope name>                        the generation of a scope that was forgotten before
//	m <name>                              schema, state, buckets
//	r <key>                               the caller's rows
//	s <bucket u32> <part u32> <row u32>   sorted marks of a sealed part
//
// The sealed rows come last so that no table that is flushed from memory, whatever it holds, ever spans them: a part goes to
// the lowest level when it is ingested and is never compacted.
const (
	arrivalPrefix    = 'a'
	generationPrefix = 'g'
	metaPrefix       = 'm'
	callerPrefix     = 'r'
	sealedPrefix     = 's'
)

const (
	formatVersion = 1

	schemaKey  = "mschema"
	stateKey   = "mstate"
	bucketsKey = "mbuckets"
)

// Rows of marks: version, flags, two unused bytes, CRC-32C, entries.
const (
	rowHeader  = 8
	rowEntries = 150 // in a sealed row; with its key it fills a block of 4 KB
	flagLast   = 1   // the last row of its part
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func arrivalKey(bucket, part uint32, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(partKey(arrivalPrefix, bucket, part), seq)
}

func partKey(prefix byte, bucket, part uint32) []byte {
	b := make([]byte, 0, 17)
	b = append(b, prefix)
	b = binary.BigEndian.AppendUint32(b, bucket)
	return binary.BigEndian.AppendUint32(b, part)
}

func putSealedKey(b *[13]byte, bucket, part, row uint32) []byte {
	b[0] = sealedPrefix
	binary.BigEndian.PutUint32(b[1:], bucket)
	binary.BigEndian.PutUint32(b[5:], part)
	binary.BigEndian.PutUint32(b[9:], row)
	return b[:]
}

func rowSize(entries int) int { return rowHeader + entries*entrySize }

// finishRow fills in the header of a row whose entries are in place.
func finishRow(key, row []byte, flags byte) {
	row[0], row[1], row[2], row[3] = formatVersion, flags, 0, 0
	binary.BigEndian.PutUint32(row[4:], rowSum(key, row))
}

func rowSum(key, row []byte) uint32 {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, row[:4])
	return crc32.Update(sum, castagnoli, row[rowHeader:])
}

// openRow returns the entries of a row after checking all that can be checked.
func openRow(key, row []byte) (entries []byte, last bool, err error) {
	switch {
	case len(row) < rowHeader || (len(row)-rowHeader)%entrySize != 0:
		return nil, false, fmt.Errorf("%w: row %x has %d bytes", ErrDamaged, key, len(row))
	case row[0] > formatVersion:
		return nil, false, fmt.Errorf("%w: row %x has version %d, known is %d", ErrNewer, key, row[0], formatVersion)
	case rowSum(key, row) != binary.BigEndian.Uint32(row[4:]):
		return nil, false, fmt.Errorf("%w: row %x has a wrong checksum", ErrDamaged, key)
	}
	return row[rowHeader:], row[1]&flagLast != 0, nil
}

func entryAt(entries []byte, i int) *entry { return (*entry)(entries[i*entrySize:]) }

// search finds a key in sorted entries.
func search(entries []byte, k *Key) *entry {
	lo, hi := 0, len(entries)/entrySize
	for lo < hi {
		mid := (lo + hi) / 2
		e := entryAt(entries, mid)
		switch bytes.Compare(e[:16], k[:]) {
		case 0:
			return e
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return nil
}

// wrap frames a small row: version, body, CRC-32C over key and all before it.
func wrap(key string, body []byte) []byte {
	b := append([]byte{formatVersion}, body...)
	return binary.BigEndian.AppendUint32(b, wrapSum(key, b))
}

func wrapSum(key string, b []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, b)
}

// unwrap returns the body of a small row. A version that is not known is told from damage by the sum alone being right.
func unwrap(key string, row []byte) ([]byte, error) {
	if len(row) < 5 {
		return nil, fmt.Errorf("%w: row %q has %d bytes", ErrDamaged, key, len(row))
	}
	b, sum := row[:len(row)-4], binary.BigEndian.Uint32(row[len(row)-4:])
	if wrapSum(key, b) != sum {
		return nil, fmt.Errorf("%w: row %q has a wrong checksum", ErrDamaged, key)
	}
	if b[0] != formatVersion {
		return nil, fmt.Errorf("%w: row %q has version %d, known is %d", ErrNewer, key, b[0], formatVersion)
	}
	return b[1:], nil
}

// schema says what the store is. It is written once.
type schema struct {
	id      [16]byte
	salt    [16]byte
	created int64 // ms
	hash    byte
}

const hashSHA256 = 1

func (c *schema) encode() []byte {
	b := []byte{hashSHA256}
	b = append(b, c.id[:]...)
	b = append(b, c.salt[:]...)
	return wrap(schemaKey, binary.BigEndian.AppendUint64(b, uint64(c.created)))
}

func (c *schema) decode(row []byte) error {
	b, err := unwrap(schemaKey, row)
	if err != nil {
		return err
	}
	if len(b) != 41 {
		return fmt.Errorf("%w: the schema row has %d bytes", ErrDamaged, len(b))
	}
	c.hash = b[0]
	copy(c.id[:], b[1:])
	copy(c.salt[:], b[17:])
	c.created = int64(binary.BigEndian.Uint64(b[33:]))
	if c.hash != hashSHA256 {
		return fmt.Errorf("%w: its keys are hashed by algorithm %d, known is %d", ErrNewer, c.hash, hashSHA256)
	}
	return nil
}

// state is written with each group.
type state struct {
	seq    uint64
	time   int64 // of the clock
	stream int64 // the latest stream time
}

func (c *state) encode() []byte {
	b := make([]byte, 0, 32)
	b = binary.BigEndian.AppendUint64(b, c.seq)
	b = binary.BigEndian.AppendUint64(b, uint64(c.time))
	b = binary.BigEndian.AppendUint64(b, uint64(c.stream))
	return wrap(stateKey, b)
}

func (c *state) decode(row []byte) error {
	b, err := unwrap(stateKey, row)
	if err != nil {
		return err
	}
	if len(b) != 24 {
		return fmt.Errorf("%w: the state row has %d bytes", ErrDamaged, len(b))
	}
	c.seq = binary.BigEndian.Uint64(b)
	c.time = int64(binary.BigEndian.Uint64(b[8:]))
	c.stream = int64(binary.BigEndian.Uint64(b[16:]))
	return nil
}
