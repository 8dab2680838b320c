// Package window is the resume window of a partition and its written forms: what a successor must know so that it repeats
// only what was not done. The engine writes it as metadata of the Kafka commit, from where it follows the partition to any
// host, and as a row of the dedupe store, which is fresher and stays. docs/resume-window.md has both forms byte by byte.
//
// A wrong "settled" loses a record and a wrong "not settled" repeats one, so here every doubt is "not settled".
package window

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Window says what is settled of a partition: all delivered records below Frontier, and of those from there to Highest all
// that Undone does not list. It names the records that are not settled, so its size follows the work in flight and not the
// width of the window. It is a plain value that belongs to one goroutine; what only reads it may run concurrently.
//
// The zero value claims nothing. Decode sets Highest and Trying to what they are where there is nothing to say.
type Window struct {
	// TopicID is the topic's, zero if it is not known. A topic that was deleted and created again uses its offsets again.
	TopicID [16]byte

	// Partitions are those that the topic had when the group first claimed this partition, 0 if that is not known. So one
	// that was added later can be told from one that nobody had claimed yet.
	Partitions int32

	// Frontier is the offset below which all delivered records are settled: normally the committed offset itself. It is
	// never settled itself.
	Frontier int64

	// Highest is the highest settled offset beyond Frontier, Frontier-1 if there is none.
	Highest int64

	// Undone are the delivered offsets from Frontier to Highest that are not settled, in ascending order. Frontier is the
	// first of them whenever Highest is above it; otherwise there are none.
	Undone []int64

	// Epochs are the leader epochs of the delivered records that may be suppressed, in ascending order of offsets. They may
	// begin below Frontier: a row of the store is newer than the commit at which the redelivery starts. What lies below the
	// first of them is not covered, and so never counts as settled.
	Epochs []Epoch

	// Store is the dedupe store whose row may be used beside this window, zero if there is none, and StoreSeq the lowest
	// sequence that the store must have reached: a store with another id was swapped, one below the sequence rolled back.
	Store    [16]byte
	StoreSeq uint64

	// Unclean counts the claims of the partition at this frontier that did not end with a clean revoke or stop.
	Unclean uint32

	// Trying is the record that was announced before its handler started because the ones before it may have killed the
	// process, and Tries how often it was. There is none if Trying is -1 or Tries is 0.
	Trying int64
	Tries  uint32

	// BypassBelow is the offset below which business marks are not looked at, because an operator rewound the group and had
	// them forgotten; 0 if that never happened. It has no say in what this window suppresses.
	BypassBelow int64

	// Cut says that the window was shortened from the top because it would not fit: more is settled than it says.
	Cut bool
}

// Epoch says that delivered records from First on have this leader epoch, -1 if their log knows none, up to the next run.
type Epoch struct {
	First       int64
	LeaderEpoch int32
}

// Done reports whether the window lists this offset as settled. Offsets that were never delivered (transaction markers,
// compacted records) and lie below Highest count as settled; Frontier and all above Highest do not. Whether a redelivered
// record is the one that was settled is for Same and Settled to say.
func (w *Window) Done(offset int64) bool {
	if offset < w.Frontier {
		return true
	}
	if offset == w.Frontier || offset > w.Highest {
		return false
	}
	_, undone := slices.BinarySearch(w.Undone, offset)
	return !undone
}

// Settled reports whether a redelivered record of the topic for which Same is true was settled earlier: its offset is Done
// and lies in a run, and its leader epoch is that of the run. A truncated log uses offsets again under a higher epoch, so
// another epoch means another record, and an offset outside of all runs is not known to be the same record either.
//
// A leader epoch of -1 is not known. Where one side knows its epoch and the other does not, the records can't be told to be
// the same, and the answer is no. Where neither does, the log has none at all (records from before Kafka 0.11, or a broker
// without replication of this kind) and no reader can ever notice its truncation; there the offset alone decides, since
// otherwise such a topic would have no window.
func (w *Window) Settled(offset int64, leaderEpoch int32) bool {
	if !w.Done(offset) {
		return false
	}
	i, ok := slices.BinarySearchFunc(w.Epochs, offset, func(e Epoch, offset int64) int {
		switch {
		case e.First < offset:
			return -1
		case e.First > offset:
			return 1
		}
		return 0
	})
	if !ok {
		i--
	}
	return i >= 0 && w.Epochs[i].LeaderEpoch == leaderEpoch
}

// Same reports whether the window is known to be of this topic: both ids are known and equal. An id that is not known, on
// either side, is a doubt: the topic may have been created again, and then its offsets belong to other records.
func (w *Window) Same(topicID [16]byte) bool {
	return topicID != [16]byte{} && topicID == w.TopicID
}

// Counts returns how many offsets beyond the frontier are settled, including those that were never delivered, and how many
// are listed as not settled.
func (w *Window) Counts() (settledBeyond, undone int64) {
	undone = int64(len(w.Undone))
	if w.Highest <= w.Frontier {
		return 0, undone
	}
	return max(w.Highest-w.Frontier+1-undone, 0), undone
}

// shown is how many entries of a list String writes: enough to look them up, and still one line.
const shown = 8

// String describes the window in words, for logs and for people at a terminal.
func (w *Window) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "next %s", grouped(w.Frontier))
	if w.Highest > w.Frontier {
		fmt.Fprintf(&b, "; settled beyond up to %s except %s (", grouped(w.Highest), grouped(len(w.Undone)))
		for i, o := range w.Undone[:min(len(w.Undone), shown)] {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(grouped(o))
		}
		if len(w.Undone) > shown {
			b.WriteString(" …")
		}
		b.WriteByte(')')
	}
	if w.Cut {
		b.WriteString("; shortened")
	}
	for i, e := range w.Epochs[:min(len(w.Epochs), shown)] {
		if i == 0 {
			b.WriteString("; leader epoch")
		} else {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %d from %s", e.LeaderEpoch, grouped(e.First))
	}
	if len(w.Epochs) > shown {
		b.WriteString(", …")
	}
	if w.TopicID != [16]byte{} {
		fmt.Fprintf(&b, "; topic %s…", hex.EncodeToString(w.TopicID[:2]))
	}
	if w.Partitions > 0 {
		fmt.Fprintf(&b, "; claimed when it had %s", plural(uint32(w.Partitions), "partition"))
	}
	if w.Store != [16]byte{} {
		fmt.Fprintf(&b, "; store %s… at %s", hex.EncodeToString(w.Store[:2]), grouped(w.StoreSeq))
	}
	if w.Unclean > 0 {
		fmt.Fprintf(&b, "; %s", plural(w.Unclean, "unclean end"))
	}
	if w.Trying >= 0 && w.Tries > 0 {
		fmt.Fprintf(&b, "; %s at %s", plural(w.Tries, "announced start"), grouped(w.Trying))
	}
	if w.BypassBelow > 0 {
		fmt.Fprintf(&b, "; business marks bypassed below %s", grouped(w.BypassBelow))
	}
	return b.String()
}

// plural counts things.
func plural(n uint32, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return grouped(n) + " " + thing + "s"
}

// grouped writes a number with commas, because offsets are long and people compare them.
func grouped[T int | int64 | uint32 | uint64](n T) string {
	s := fmt.Sprint(n)
	if n < 0 {
		return s // -1 for none, or a damaged value: as it is
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
