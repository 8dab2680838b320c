package dedupe

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// bucketsPerRetention is how many buckets a retention is cut into. An absent key is looked for in all that live, one more
// than this, and the space of a mark comes back when its whole bucket has ended, at 1.25 times the retention.
const bucketsPerRetention = 4

// span says what times the marks of a bucket have, in milliseconds of the clock.
type span struct {
	serial    uint32 // grows by one a bucket, whatever the clock does
	start     int64
	width     int64 // the last mark comes before start+width
	retention int64
}

func newSpan(serial uint32, now int64, retention time.Duration) span {
	r := retention.Milliseconds()
	return span{serial: serial, start: now, width: max(1, r/bucketsPerRetention), retention: r}
}

// unit is what the time of a mark counts in: three bytes must do, and the last number means forgotten.
func (c *span) unit() int64 { return (c.width + forgotten - 1) / forgotten }

func (c *span) encodeTime(now int64) uint32 {
	return uint32(min(max(0, (now-c.start)/c.unit()), forgotten-1))
}

func (c *span) time(at uint32) int64 { return c.start + int64(at)*c.unit() }

// expired says whether a mark counts no more. What rounding took from its time is given back.
func (c *span) expired(at uint32, now int64) bool { return now-c.time(at)-(c.unit()-1) >= c.retention }

// over says that no mark of the bucket counts any more.
func (c *span) over(now int64) bool { return now >= c.start+c.width+c.retention+c.unit() }

// takes says whether a mark of now belongs here.
func (c *span) takes(now int64, retention time.Duration) bool {
	return now < c.start+c.width && c.retention == retention.Milliseconds()
}

// bucket holds the marks of a span of time.
type bucket struct {
	span
	filter  *filter
	parts   atomic.Pointer[[]*part] // newest first
	dropped atomic.Bool             // it is over: its rows may be gone
	covers  atomic.Bool             // some entry says that an older mark is forgotten
	keys    atomic.Int64            // entries
}

// part is a run of marks of a bucket: in memory, with its arrival rows on disk, until it is sealed.
type part struct {
	no     uint32
	mem    *arena  // nil when sealed
	sealed *sealed // nil before
}

// sealed says where in its sorted rows a key of a sealed part would be.
type sealed struct {
	keys   int
	first  []uint64 // the first eight bytes of the first key of each row
	filter *bloom
}

// split tells the buckets that have ended from those that live, newest first both. One that covers forgotten marks outlives every
// older bucket: where the retention was longer before, a mark would come back otherwise.
func split(buckets []*bucket, now int64) (live, over []*bucket) {
	for _, b := range slices.Backward(buckets) {
		if b.over(now) && (len(live) == 0 || !b.covers.Load()) {
			over = append(over, b)
		} else {
			live = append(live, b)
		}
	}
	slices.Reverse(live)
	slices.Reverse(over)
	return live, over
}

func newBucket(c span, expected int) *bucket {
	b := &bucket{span: c, filter: newFilter(expected)}
	b.parts.Store(new([]*part))
	return b
}

// open returns the part that takes marks, or nil.
func (b *bucket) open() *part {
	if ps := *b.parts.Load(); len(ps) > 0 && ps[0].mem != nil {
		return ps[0]
	}
	return nil
}

// nextPart is the number of the next part.
func (b *bucket) nextPart() uint32 {
	if ps := *b.parts.Load(); len(ps) > 0 {
		return ps[0].no + 1
	}
	return 0
}

// push puts a part in front.
func (b *bucket) push(p *part) {
	for {
		old := b.parts.Load()
		parts := append([]*part{p}, *old...)
		if b.parts.CompareAndSwap(old, &parts) {
			return
		}
	}
}

// replace puts a sealed part in the place of the one with its number.
func (b *bucket) replace(p *part) {
	for {
		old := b.parts.Load()
		parts := slices.Clone(*old)
		for i := range parts {
			if parts[i].no == p.no {
				parts[i] = p
			}
		}
		if b.parts.CompareAndSwap(old, &parts) {
			return
		}
	}
}

// encodeSpans makes the row that says which buckets live. A row of a bucket that it does not name is a leftover.
func encodeSpans(next uint32, buckets []*bucket) []byte {
	b := binary.BigEndian.AppendUint32(nil, next)
	for _, c := range buckets {
		b = binary.BigEndian.AppendUint32(b, c.serial)
		b = binary.BigEndian.AppendUint64(b, uint64(c.start))
		b = binary.BigEndian.AppendUint64(b, uint64(c.width))
		b = binary.BigEndian.AppendUint64(b, uint64(c.retention))
	}
	return wrap(bucketsKey, b)
}

func decodeSpans(row []byte) (next uint32, spans []span, err error) {
	b, err := unwrap(bucketsKey, row)
	if err != nil {
		return 0, nil, err
	}
	if len(b) < 4 || (len(b)-4)%28 != 0 {
		return 0, nil, fmt.Errorf("%w: the row of buckets has %d bytes", ErrDamaged, len(b))
	}
	next = binary.BigEndian.Uint32(b)
	for b = b[4:]; len(b) > 0; b = b[28:] {
		c := span{
			serial:    binary.BigEndian.Uint32(b),
			start:     int64(binary.BigEndian.Uint64(b[4:])),
			width:     int64(binary.BigEndian.Uint64(b[12:])),
			retention: int64(binary.BigEndian.Uint64(b[20:])),
		}
		if c.width <= 0 || c.retention <= 0 || c.start < 0 || c.start > math.MaxInt64/4 || c.width > math.MaxInt64/4 ||
			c.retention > math.MaxInt64/4 || c.serial >= next || len(spans) > 0 && c.serial >= spans[len(spans)-1].serial {
			return 0, nil, fmt.Errorf("%w: the row of buckets makes no sense", ErrDamaged)
		}
		spans = append(spans, c)
	}
	return next, spans, nil
}
