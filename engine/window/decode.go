package window

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
)

// What Decode and DecodeBinary return, wrapped with the detail. For a reader all three mean that there is no window and that
// all from the committed offset on has to be handled; they differ in what to tell the operator.
var (
	// ErrNone: there is nothing, or another program wrote it.
	ErrNone = errors.New("no resume window")
	// ErrVersion: a newer version of this program wrote it, in a form that this one does not know.
	ErrVersion = errors.New("the resume window is of a newer version")
	// ErrDamaged: it is cut off, fails its checksum or contradicts itself.
	ErrDamaged = errors.New("the resume window is damaged")
)

// nothing is what is returned with an error: it claims nothing, also for a caller that does not look at the error.
var nothing = Window{Highest: -1, Trying: -1}

// Decode reads the text form. With an error, which is one of ErrNone, ErrVersion and ErrDamaged, the window claims nothing.
// It allocates in proportion to the length of the metadata, whatever that says.
func Decode(metadata string) (Window, error) {
	name, _, _ := strings.Cut(prefix, ":")
	rest, ours := strings.CutPrefix(metadata, name+":")
	if !ours {
		return nothing, ErrNone
	}
	number, text, ok := strings.Cut(rest, ":")
	if !ok {
		return nothing, fmt.Errorf("%w: no version", ErrDamaged)
	}
	if v, err := strconv.ParseUint(number, 10, 32); err != nil || v < version || number[0] == '0' || number[0] == '+' {
		return nothing, fmt.Errorf("%w: version %.20q", ErrDamaged, number)
	} else if v > version {
		return nothing, fmt.Errorf("%w: %d", ErrVersion, v)
	}
	if strings.ContainsAny(text, "\r\n") { // which the decoder would pass over
		return nothing, fmt.Errorf("%w: line break", ErrDamaged)
	}
	raw, err := armour.DecodeString(text)
	if err != nil {
		return nothing, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	w, err := DecodeBinary(raw)
	switch {
	case errors.Is(err, ErrNone):
		return nothing, fmt.Errorf("%w: nothing after the version", ErrDamaged)
	case errors.Is(err, ErrVersion) && raw[0] != version:
		return nothing, fmt.Errorf("%w: version %d in the armour of %d", ErrDamaged, raw[0], version)
	}
	return w, err
}

// DecodeBinary reads the binary form, as Decode does the text form.
func DecodeBinary(raw []byte) (Window, error) {
	if len(raw) == 0 {
		return nothing, ErrNone
	}
	// The checksum ends the form in every version, so that a damaged version is not taken for a newer one.
	n := len(raw) - checksumSize
	if n < 1 || crc32.Checksum(raw[:n], castagnoli) != binary.BigEndian.Uint32(raw[n:]) {
		return nothing, fmt.Errorf("%w: checksum", ErrDamaged)
	}
	switch v := raw[0]; {
	case v > version:
		return nothing, fmt.Errorf("%w: %d", ErrVersion, v)
	case v < version:
		return nothing, fmt.Errorf("%w: version %d", ErrDamaged, v)
	}
	r := reader{rest: raw[1:n]}
	flags := r.uvarint(math.MaxUint64)
	if r.failed == "" && flags&^knownFlags != 0 {
		return nothing, fmt.Errorf("%w: flags %#x", ErrVersion, flags)
	}
	w := r.window(flags)
	if r.failed == "" && len(r.rest) > 0 {
		r.fail("bytes left over")
	}
	if r.failed != "" {
		return nothing, fmt.Errorf("%w: %s", ErrDamaged, r.failed)
	}
	return w, nil
}

// reader takes fields off the front of rest. What does not fit its field fails, and after a failure all fields are 0.
type reader struct {
	rest   []byte
	failed string
}

func (r *reader) fail(why string) {
	if r.failed == "" {
		r.rest, r.failed = nil, why
	}
}

// window reads the fields that the flags name. A form can be written in one way only: a field that is there is not zero, a
// number is as short as it can be. So what is read and written again is the same bytes.
func (r *reader) window(flags uint64) Window {
	w := Window{Trying: -1, Cut: flags&isCut != 0}
	w.Frontier = r.offset()
	w.Highest = w.Frontier - 1
	if flags&hasTopicID != 0 {
		w.TopicID = r.id()
	}
	if flags&hasPartitions != 0 {
		w.Partitions = int32(r.positive(math.MaxInt32))
	}
	if flags&hasStore != 0 {
		w.Store = r.id()
		w.StoreSeq = r.uvarint(math.MaxUint64)
	}
	if flags&hasBeyond != 0 {
		r.beyond(&w)
	}
	if flags&hasEpochs != 0 {
		r.epochs(&w)
	}
	if flags&hasUnclean != 0 {
		w.Unclean = uint32(r.positive(math.MaxUint32))
	}
	if flags&hasTrying != 0 {
		w.Trying = r.offset()
		w.Tries = uint32(r.positive(math.MaxUint32))
	}
	if flags&hasBypass != 0 {
		w.BypassBelow = int64(r.positive(math.MaxInt64))
	}
	return w
}

// beyond reads Undone and Highest.
func (r *reader) beyond(w *Window) {
	n := r.count(1, 1)
	gap := r.offset()
	if r.failed != "" {
		return
	}
	w.Undone = make([]int64, 1, n)
	w.Undone[0] = w.Frontier
	last := w.Frontier
	for len(w.Undone) < n && r.failed == "" {
		last = r.after(last)
		w.Undone = append(w.Undone, last)
	}
	if gap >= math.MaxInt64-1-last { // not even the offset after Highest may be out of range
		r.fail("highest out of range")
	}
	w.Highest = last + 1 + gap
}

// epochs reads Epochs.
func (r *reader) epochs(w *Window) {
	n := r.count(2, 0)
	if r.failed != "" {
		return
	}
	w.Epochs = make([]Epoch, 0, n)
	for len(w.Epochs) < n && r.failed == "" {
		e := Epoch{}
		var leaderEpoch int64
		if i := len(w.Epochs); i == 0 {
			below := r.varint()
			if below < -w.Frontier || below > w.Highest-w.Frontier {
				r.fail("leader epochs out of range")
			}
			e.First, leaderEpoch = w.Frontier+below, r.varint()
		} else {
			e.First = r.after(w.Epochs[i-1].First)
			leaderEpoch = r.varint()
			if leaderEpoch < -math.MaxInt32-1 || leaderEpoch > math.MaxInt32+1 {
				r.fail("leader epoch out of range")
			}
			leaderEpoch += int64(w.Epochs[i-1].LeaderEpoch)
		}
		if leaderEpoch < -1 || leaderEpoch > math.MaxInt32 || e.First > w.Highest {
			r.fail("leader epochs out of range")
		}
		e.LeaderEpoch = int32(leaderEpoch)
		w.Epochs = append(w.Epochs, e)
	}
}

// count reads how many entries follow, the first free of which take no bytes and the others at least size each: more than
// there are bytes for is damage, and must not be allocated.
func (r *reader) count(size, free int) int {
	return int(r.positive(uint64(len(r.rest)/size + free)))
}

// after reads an offset above this one.
func (r *reader) after(offset int64) int64 {
	delta := r.offset()
	if delta >= math.MaxInt64-offset {
		r.fail("offset out of range")
		return offset
	}
	return offset + 1 + delta
}

func (r *reader) id() (id [16]byte) {
	if len(r.rest) < len(id) {
		r.fail("too short")
		return id
	}
	copy(id[:], r.rest)
	r.rest = r.rest[len(id):]
	if id == [16]byte{} {
		r.fail("id of zeros")
	}
	return id
}

// offset reads what must fit in an int64: an offset, or a distance of two.
func (r *reader) offset() int64 { return int64(r.uvarint(math.MaxInt64)) }

// positive is a field that would not be there if it was 0.
func (r *reader) positive(most uint64) uint64 {
	v := r.uvarint(most)
	if v == 0 {
		r.fail("a field without a value")
	}
	return v
}

func (r *reader) varint() int64 {
	v := r.uvarint(math.MaxUint64)
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	switch {
	case n <= 0:
		r.fail("too short")
		return 0
	case n > 1 && r.rest[n-1] == 0:
		r.fail("a number longer than it needs to be")
		return 0
	case v > most:
		r.fail("a number out of range")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}
