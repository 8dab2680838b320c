package window

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
)

// version is that of the form that this build writes, and the newest one that it reads.
const version = 1

// prefix begins the text form. It can be told from what other programs write, and its version is readable without decoding.
const prefix = "gapless:1:"

// The flags say which fields follow. The common ones stand first, so that they all fit in one byte; and so do those that
// come and go as a window is shortened, so that this never changes the size of the rest.
const (
	hasTopicID = 1 << iota
	hasPartitions
	hasStore
	hasEpochs
	hasBeyond
	isCut
	hasUnclean
	hasTrying
	hasBypass

	knownFlags = 1<<iota - 1
)

const checksumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The base64 of URLs, without padding: it needs no escaping wherever people copy it to.
var armour = base64.RawURLEncoding.Strict()

// Append appends the text form, for the metadata of a Kafka commit, in at most max bytes; there is no limit if max is not
// above 0. A window that would not fit is shortened from the top: it then lists fewer undone offsets, Highest is the highest
// settled one below the first that is not listed, Cut is set, and runs of leader epochs beyond Highest are left out. So it
// claims less, and never what is not settled. Only if nothing beyond the frontier is left and it is still too long are runs
// left out, lowest first. The other fields are never left out: if they do not fit, dst is returned as it is.
//
// The window itself is not changed. One that contradicts itself (undone offsets out of order or out of range) is written
// without anything beyond its frontier and without runs, which claims nothing; one with a negative frontier is not written.
func (w *Window) Append(dst []byte, max int) []byte {
	limit := math.MaxInt
	if max > 0 {
		limit = armour.DecodedLen(max - len(prefix))
	}
	p, ok := w.fit(limit)
	if !ok {
		return dst
	}
	raw := w.write(make([]byte, 0, p.size), p)
	return armour.AppendEncode(append(dst, prefix...), raw)
}

// AppendBinary appends the binary form, for a row of a store: what the text form is the armour of, whole.
func (w *Window) AppendBinary(dst []byte) []byte {
	p, ok := w.fit(math.MaxInt)
	if !ok {
		return dst
	}
	return w.write(dst, p)
}

// part is how much of a window is written, and the size of that.
type part struct {
	highest int64
	undone  int // the first so many of Undone
	epochs  []Epoch
	cut     bool
	size    int
}

// fit finds the largest part that takes at most limit bytes. It is one pass: each undone offset adds to the size, and one
// more of them never takes less than one less.
func (w *Window) fit(limit int) (part, bool) {
	if w.Frontier < 0 {
		return part{}, false
	}
	base := w.baseSize()
	if base > limit {
		return part{}, false
	}
	none := part{highest: w.Frontier - 1, size: base, cut: w.Cut}
	if !w.consistent() {
		none.cut = true
		return none, true
	}

	best, found := none, false
	runs, runsSize := w.through(0, 0, none.highest)
	if size := base + listSize(runs, runsSize); size <= limit {
		best.epochs, best.size, found = w.Epochs[:runs], size, true
	}
	whole := w.Highest <= w.Frontier
	deltas := 0
	for i, u := range w.Undone {
		if whole {
			break // with nothing settled beyond the frontier there is nothing to except
		}
		if i > 0 {
			deltas += uvarintSize(uint64(u-w.Undone[i-1]) - 1)
		}
		highest := w.Highest
		if i+1 < len(w.Undone) {
			highest = w.Undone[i+1] - 1
		}
		if highest == u {
			continue // nothing is settled between this one and the next
		}
		runs, runsSize = w.through(runs, runsSize, highest)
		size := base + listSize(runs, runsSize) + uvarintSize(uint64(i+1)) + deltas + uvarintSize(uint64(highest-u)-1)
		if size > limit {
			break
		}
		whole, found = highest == w.Highest, true
		best = part{highest: highest, undone: i + 1, epochs: w.Epochs[:runs], cut: w.Cut, size: size}
	}
	if !found {
		runs, _ = w.through(0, 0, none.highest)
		best = w.fitRuns(none, w.Epochs[:runs], limit)
	}
	best.cut = best.cut || !whole || !found
	return best, true
}

// through extends the first n runs, which take so many bytes, by those that begin at highest or below.
func (w *Window) through(n, size int, highest int64) (runs, bytes int) {
	for ; n < len(w.Epochs) && w.Epochs[n].First <= highest; n++ {
		if n == 0 {
			size += firstRunSize(w.Epochs[0], w.Frontier)
		} else {
			size += nextRunSize(w.Epochs[n], w.Epochs[n-1])
		}
	}
	return n, size
}

// fitRuns adds to a part with nothing beyond the frontier as many runs as fit. They are left out from the bottom: what they
// covered is then covered by none, while from the top the run before would take their place.
func (w *Window) fitRuns(none part, runs []Epoch, limit int) part {
	best, rest := none, 0
	for i := len(runs) - 1; i >= 0; i-- {
		if size := none.size + listSize(len(runs)-i, firstRunSize(runs[i], w.Frontier)+rest); size <= limit {
			best.epochs, best.size = runs[i:], size
		}
		if i > 0 {
			rest += nextRunSize(runs[i], runs[i-1])
		}
	}
	return best
}

// consistent reports whether the offsets and the runs are as their doc comments promise, so that differences of neighbours
// are positive and nothing undone is claimed.
func (w *Window) consistent() bool {
	if w.Highest > w.Frontier {
		n := len(w.Undone)
		if n == 0 || w.Undone[0] != w.Frontier || w.Undone[n-1] >= w.Highest || w.Highest == math.MaxInt64 {
			return false
		}
		for i := 1; i < n; i++ {
			if w.Undone[i] <= w.Undone[i-1] {
				return false
			}
		}
	}
	for i, e := range w.Epochs {
		if e.First < 0 || e.LeaderEpoch < -1 || i > 0 && e.First <= w.Epochs[i-1].First {
			return false
		}
	}
	return true
}

// flags are those of all fields but the ones that depend on how much is written.
func (w *Window) flags() (flags uint64) {
	set := func(flag uint64, is bool) {
		if is {
			flags |= flag
		}
	}
	set(hasTopicID, w.TopicID != [16]byte{})
	set(hasPartitions, w.Partitions > 0)
	set(hasStore, w.Store != [16]byte{})
	set(hasUnclean, w.Unclean > 0)
	set(hasTrying, w.Trying >= 0 && w.Tries > 0)
	set(hasBypass, w.BypassBelow > 0)
	return flags
}

// baseSize is the size with nothing beyond the frontier and no runs.
func (w *Window) baseSize() int {
	flags := w.flags()
	size := 1 + uvarintSize(flags) + uvarintSize(uint64(w.Frontier)) + checksumSize
	if flags&hasTopicID != 0 {
		size += len(w.TopicID)
	}
	if flags&hasPartitions != 0 {
		size += uvarintSize(uint64(w.Partitions))
	}
	if flags&hasStore != 0 {
		size += len(w.Store) + uvarintSize(w.StoreSeq)
	}
	if flags&hasUnclean != 0 {
		size += uvarintSize(uint64(w.Unclean))
	}
	if flags&hasTrying != 0 {
		size += uvarintSize(uint64(w.Trying)) + uvarintSize(uint64(w.Tries))
	}
	if flags&hasBypass != 0 {
		size += uvarintSize(uint64(w.BypassBelow))
	}
	return size
}

// write appends the binary form of a part.
func (w *Window) write(dst []byte, p part) []byte {
	flags := w.flags()
	if len(p.epochs) > 0 {
		flags |= hasEpochs
	}
	if p.undone > 0 {
		flags |= hasBeyond
	}
	if p.cut {
		flags |= isCut
	}
	start := len(dst)
	dst = append(dst, version)
	dst = binary.AppendUvarint(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(w.Frontier))
	if flags&hasTopicID != 0 {
		dst = append(dst, w.TopicID[:]...)
	}
	if flags&hasPartitions != 0 {
		dst = binary.AppendUvarint(dst, uint64(w.Partitions))
	}
	if flags&hasStore != 0 {
		dst = append(dst, w.Store[:]...)
		dst = binary.AppendUvarint(dst, w.StoreSeq)
	}
	if flags&hasBeyond != 0 {
		undone := w.Undone[:p.undone]
		last := undone[p.undone-1]
		dst = binary.AppendUvarint(dst, uint64(p.undone))
		dst = binary.AppendUvarint(dst, uint64(p.highest-last)-1)
		for i := 1; i < len(undone); i++ { // the first is the frontier
			dst = binary.AppendUvarint(dst, uint64(undone[i]-undone[i-1])-1)
		}
	}
	if flags&hasEpochs != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(p.epochs)))
		for i, e := range p.epochs {
			if i == 0 {
				dst = binary.AppendVarint(dst, e.First-w.Frontier)
				dst = binary.AppendVarint(dst, int64(e.LeaderEpoch))
				continue
			}
			before := p.epochs[i-1]
			dst = binary.AppendUvarint(dst, uint64(e.First-before.First)-1)
			dst = binary.AppendVarint(dst, int64(e.LeaderEpoch)-int64(before.LeaderEpoch))
		}
	}
	if flags&hasUnclean != 0 {
		dst = binary.AppendUvarint(dst, uint64(w.Unclean))
	}
	if flags&hasTrying != 0 {
		dst = binary.AppendUvarint(dst, uint64(w.Trying))
		dst = binary.AppendUvarint(dst, uint64(w.Tries))
	}
	if flags&hasBypass != 0 {
		dst = binary.AppendUvarint(dst, uint64(w.BypassBelow))
	}
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// listSize is the size of a list of runs with its length; a list of none is not written.
func listSize(n, size int) int {
	if n == 0 {
		return 0
	}
	return uvarintSize(uint64(n)) + size
}

func firstRunSize(e Epoch, frontier int64) int {
	return varintSize(e.First-frontier) + varintSize(int64(e.LeaderEpoch))
}

func nextRunSize(e, before Epoch) int {
	return uvarintSize(uint64(e.First-before.First)-1) + varintSize(int64(e.LeaderEpoch)-int64(before.LeaderEpoch))
}

func uvarintSize(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }

func varintSize(x int64) int { return uvarintSize(uint64(x)<<1 ^ uint64(x>>63)) }
