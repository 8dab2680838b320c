package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/window"
)

// start is when every story begins.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// story is evidence written by hand, of one partition.
//
//	record 5 k id       offset 5 with key k and id "id"; - = none, gone or aborted behind it
//	1.5 b m1.1/1 5      a line of the journal at 1.5 s, of m1.1 in its first tenure, about offset 5
//	2 commit 3          what the group has at 2 s
//	2 commit 3 to 7 but 3,5   and its window: settled up to 7, but for 3 and 5
//	2 wrote 3           what the group's log has from 2 s on; with a window in the same way
//	2 dead 5            a dead letter of 5
//	2 mark m1 id        the mark of id is in m1's store
//	1-9 paused m1.1     an incident; also cut, killed, stopping, store lost; without an end: for good, or at once
//	3 reset 2           an operator set the offset to 2
//	end 10 8            the log ends at 10, 8 are committed
func story(t *testing.T, order engine.Order, dedupe bool, text string) *Evidence {
	t.Helper()
	ev := &Evidence{Order: order, Dedupe: dedupe, Session: 6 * time.Second, Drain: 2 * time.Second}
	num := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return n
	}
	at := func(s string) time.Time {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return start.Add(time.Duration(f * float64(time.Second)))
	}
	records := map[int64]Record{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "record":
			r := Record{Topic: "t", Offset: num(f[1]), LeaderEpoch: 1, Gone: slices.Contains(f, "gone"), Aborted: slices.Contains(f, "aborted")}
			if f[2] != "-" {
				r.Key = []byte(f[2])
			}
			if len(f) > 3 && f[3] != "-" {
				r.ID = f[3]
			}
			records[r.Offset] = r
			ev.Records = append(ev.Records, r)
			continue
		case "end":
			ev.Ends = append(ev.Ends, End{Topic: "t", End: num(f[1]), Committed: num(f[2])})
			continue
		}
		from, until, _ := strings.Cut(f[0], "-")
		when, to := at(from), time.Time{}
		if until != "" {
			to = at(until)
		}
		switch f[1] {
		case "a", "b", "e", "f":
			member, sequence, _ := strings.Cut(f[2], "/")
			r := records[num(f[3])]
			ev.Lines = append(ev.Lines, Line{
				Word: Word(f[1][0]), Nanos: when.UnixNano(), Member: member, Sequence: uint64(num(sequence)), Topic: "t", Offset: num(f[3]), Key: r.Key, ID: r.ID, Number: len(ev.Lines) + 1,
			})
		case "commit", "wrote":
			c := Commit{At: when, Topic: "t", Offset: num(f[2])}
			if len(f) > 3 {
				w := window.Window{Frontier: c.Offset, Highest: num(f[4]), Trying: -1, Epochs: []window.Epoch{{First: 0, LeaderEpoch: 1}}}
				for s := range strings.SplitSeq(f[6], ",") {
					w.Undone = append(w.Undone, num(s))
				}
				c.Metadata = string(w.Append(nil, 0))
			}
			if f[1] == "wrote" {
				ev.Logged = append(ev.Logged, c)
				continue
			}
			c.From = when
			ev.Commits = append(ev.Commits, c)
		case "dead":
			ev.DeadLetters = append(ev.DeadLetters, DeadLetter{Topic: "t", Offset: num(f[2]), At: when})
		case "mark":
			ev.Marks = append(ev.Marks, Mark{Host: f[2], ID: f[3], At: when})
		case "reset":
			ev.Incidents = append(ev.Incidents, Incident{What: Reset, From: when, To: when, Offset: num(f[2])})
		case "killed", "stopping":
			if to.IsZero() {
				to = when
			}
			ev.Incidents = append(ev.Incidents, Incident{What: What(f[1]), From: when, To: to, Member: f[2]})
		default:
			in := Incident{What: What(f[1]), From: when, To: to}
			if f[1] == "store" {
				in.What, f = StoreLost, f[1:]
			}
			if len(f) > 2 {
				in.Member = f[2]
			}
			ev.Incidents = append(ev.Incidents, in)
		}
	}
	return ev
}

// faults are what a verdict says, without what is 0.
func (v *Verdict) faults() string {
	counts := map[string]int{
		"lost": v.Lost, "past": v.CommittedPastUnfinished, "order": v.OrderViolations, "overlaps": v.Overlaps, "overlaps_allowed": v.OverlapsAllowed,
		"redone": v.Redone, "redone_allowed": v.RedoneAllowed, "business": v.BusinessDuplicates, "stuck": v.Stuck,
	}
	for _, f := range v.Findings {
		if f.Fault == Foreign || f.Fault == Rewound {
			counts[string(f.Fault)]++
		}
	}
	var words []string
	for name, n := range counts {
		if n > 0 {
			words = append(words, fmt.Sprintf("%s=%d", name, n))
		}
	}
	slices.SortFunc(words, cmp.Compare)
	return strings.Join(words, " ")
}

const three = `
	record 0 k a
	record 1 k b
	record 2 j c
`

var stories = []struct {
	name, order string
	dedupe      bool
	text        string
	want        string
}{
	{"all is well", "key", false, three + `
		1 b m1.1/1 0
		1.1 b m1.1/1 2
		1.2 e m1.1/1 0
		1.2 b m1.1/1 1
		1.3 e m1.1/1 2
		1.4 f m1.1/1 1
		1.5 b m1.1/1 1
		1.6 e m1.1/1 1
		2 commit 3
		end 3 3`, ""},

	// What is lost, and what is not.
	{"never handled", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 b m1.1/1 2
		1.3 e m1.1/1 2
		end 3 3`, "lost=1"},
	{"failed and passed", "unordered", false, `
		record 0 k a
		1 b m1.1/1 0
		1.1 f m1.1/1 0
		end 1 1`, "lost=1"},
	{"dead letter", "unordered", false, `
		record 0 k a
		1 b m1.1/1 0
		1.1 f m1.1/1 0
		1.2 dead 0
		1.3 commit 1
		end 1 1`, ""},
	{"killed in the middle", "unordered", false, `
		record 0 k a
		1 b m1.1/1 0
		1.1 killed m1.1
		end 1 1`, "lost=1"},
	{"gone before it was handled", "unordered", false, `
		record 0 k a gone
		record 1 k b
		1 b m1.1/1 1
		1.1 e m1.1/1 1
		2 commit 2
		end 2 2`, ""},
	{"aborted", "unordered", false, `
		record 0 k a aborted
		record 2 k b
		1 b m1.1/1 2
		1.1 e m1.1/1 2
		2 commit 3
		end 4 4`, ""},
	{"aborted and handled", "unordered", false, `
		record 0 k a aborted
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		end 2 2`, "foreign=1"},
	{"a copy has ended", "unordered", true, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		end 2 2`, ""},
	{"a copy has ended, without dedupe", "unordered", false, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		end 2 2`, "lost=1"},
	{"a rewind is not honoured", "unordered", false, `
		record 0 k a
		record 1 k b
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 b m1.1/1 1
		1.3 e m1.1/1 1
		3 reset 0
		4 b m1.2/1 0
		4.1 e m1.2/1 0
		end 2 2`, "lost=1 redone=1 redone_allowed=1"},
	{"a rewind with marks", "unordered", true, `
		record 0 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		3 reset 0
		end 1 1`, ""},
	{"what lies before a reset is not asked for", "unordered", false, three + `
		1 reset 2
		1 b m1.1/1 2
		1.1 e m1.1/1 2
		2 commit 3
		end 3 3`, ""},

	// What is stuck.
	{"not done", "unordered", false, `
		record 0 k a
		1 b m1.1/1 0
		end 1 0`, "stuck=1"},
	{"nothing committed", "unordered", false, `
		record 0 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		end 1 -1`, "stuck=1"},
	{"behind a marker", "unordered", false, `
		record 0 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		end 2 1`, "stuck=1"},
	{"a tail that compaction removed", "unordered", false, `
		record 0 k a
		record 1 k b gone
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		end 2 1`, ""},
	{"an empty partition", "unordered", false, `end 0 -1`, ""},

	// What a commit says.
	{"the highest in place of the frontier", "unordered", false, three + `
		1 b m1.1/1 0
		1 b m1.1/1 2
		1.1 e m1.1/1 2
		1.2 commit 3`, "past=2"},
	{"the frontier", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 b m1.1/1 1
		1.3 commit 1`, ""},
	{"committed before it ended", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 commit 1
		1.2 e m1.1/1 0`, "past=1"},
	{"committed before its dead letter", "unordered", false, three + `
		1 b m1.1/1 0
		1.05 f m1.1/1 0
		1.1 commit 1
		1.2 dead 0`, "past=1"},
	{"a window", "unordered", false, three + `
		1 b m1.1/1 0
		1 b m1.1/1 2
		1.1 e m1.1/1 2
		1.2 commit 0 to 2 but 0,1`, ""},
	{"a window with one too many", "unordered", false, three + `
		1 b m1.1/1 0
		1 b m1.1/1 2
		1.1 e m1.1/1 2
		1.2 commit 0 to 2 but 0`, "past=1"},
	{"gone and passed", "unordered", false, `
		record 0 k a gone
		1 commit 1`, ""},
	{"it went back", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 commit 1
		1.3 commit 0`, "rewound=1"},
	{"it went back in the log", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 wrote 1
		1.3 wrote 0`, "rewound=1"},
	{"a broker answered with what was before", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 wrote 1
		1.25 commit 1
		1.3 commit 0`, ""},
	{"what it answered does not allow to begin again", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 wrote 1
		1.25 commit 1
		1.3 commit 0
		1.4 b m1.1/2 0
		1.5 e m1.1/2 0`, "redone=1"},
	{"an operator sent it back in the log", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 wrote 1
		1.25 reset 0
		1.25 wrote 0`, ""},
	{"past a record, and back before anybody asked", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 wrote 2
		1.3 commit 0`, "past=1"},
	{"an operator sent it back", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 commit 1
		1.25 reset 0
		1.3 commit 0`, ""},
	{"a reset forwards", "unordered", false, three + `
		1 reset 3
		1.3 commit 3`, ""},

	// Order.
	{"after a later one", "key", false, three + `
		1 b m1.1/1 1
		1.1 e m1.1/1 1
		1.2 b m1.1/1 0
		1.3 e m1.1/1 0`, "order=2"}, // 1 before 0 was settled, and 0 after 1
	{"another key", "key", false, three + `
		1 b m1.1/1 2
		1.1 b m1.1/1 0`, ""},
	{"another key of a partition", "partition", false, three + `
		1 b m1.1/1 2
		1.05 e m1.1/1 2
		1.1 b m1.1/1 0
		1.15 e m1.1/1 0`, "order=2"},
	{"no key", "key", false, `
		record 0 - a
		record 1 - b
		1 b m1.1/1 1
		1.1 b m1.1/1 0`, ""},
	{"unordered", "unordered", false, three + `
		1 b m1.1/1 1
		1.1 b m1.1/1 0`, ""},
	{"a retry", "key", false, three + `
		1 b m1.1/1 0
		1.1 f m1.1/1 0
		1.2 b m1.1/1 0
		1.3 e m1.1/1 0
		1.4 b m1.1/1 1`, ""},
	{"passed over while it waits for its retry", "key", false, three + `
		1 b m1.1/1 0
		1.1 f m1.1/1 0
		1.2 b m1.1/1 1`, "order=1"},
	{"after a dead letter", "key", false, three + `
		1 b m1.1/1 0
		1.1 f m1.1/1 0
		1.2 dead 0
		1.2 b m1.1/1 1`, ""},
	{"before its dead letter", "key", false, three + `
		1 b m1.1/1 0
		1.1 f m1.1/1 0
		1.2 b m1.1/1 1
		1.3 dead 0`, "order=1"},
	{"again, by the next owner", "key", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 b m1.1/1 1
		1.3 e m1.1/1 1
		1.4 killed m1.1
		9 b m2.1/1 0
		9.1 e m2.1/1 0
		9.2 b m2.1/1 1`, "redone=2 redone_allowed=2"},
	{"behind one that is gone", "key", false, `
		record 0 k a gone
		record 1 k b
		1 b m1.1/1 1`, ""},
	{"a batch by partition", "partition", false, three + `
		1 b m1.1/1 0
		1 a m1.1/1 1
		1 a m1.1/1 2
		1.1 e m1.1/1 0
		1.1 e m1.1/1 1
		1.1 e m1.1/1 2
		2 commit 3`, ""},
	{"a batch by partition that fails", "partition", false, three + `
		1 b m1.1/1 0
		1 a m1.1/1 1
		1 a m1.1/1 2
		1.1 e m1.1/1 0
		1.1 f m1.1/1 1
		1.1 e m1.1/1 2
		2 b m1.1/1 1
		2 a m1.1/1 2
		2.1 e m1.1/1 1
		2.1 e m1.1/1 2`, ""},
	{"what follows the failure in a batch is committed", "partition", false, three + `
		1 b m1.1/1 0
		1 a m1.1/1 1
		1 a m1.1/1 2
		1.1 e m1.1/1 0
		1.1 f m1.1/1 1
		1.1 e m1.1/1 2
		2 commit 1 to 2 but 1`, "past=1"},
	{"two batches of a partition", "partition", false, three + `
		1 b m1.1/1 0
		1 a m1.1/1 1
		1.05 b m1.1/1 2`, "order=1 overlaps=2"},
	{"a batch with two of a key", "key", false, three + `
		1 b m1.1/1 0
		1 a m1.1/1 1`, "order=1 overlaps=1"},

	// Overlaps.
	{"one record twice", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 b m1.1/1 0`, "overlaps=1"},
	{"one key at two members", "key", false, three + `
		1 b m1.1/1 0
		1.1 b m2.1/1 0`, "overlaps=1"},
	{"it outlived the drain", "key", false, three + `
		1 b m1.1/1 0
		3.5 b m2.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"it outlived the drain, and is back", "key", false, three + `
		1 b m1.1/1 0
		3.5 b m1.1/2 0`, "overlaps=1"},
	{"it outlived the drain, and is back, unordered", "unordered", false, three + `
		1 b m1.1/1 0
		3.5 b m1.1/2 0`, "overlaps=1 overlaps_allowed=1"},
	{"it was stopped", "key", false, three + `
		1 b m1.1/1 0
		1.1-9 paused m1.1
		2.9 b m2.1/1 0`, "overlaps=1"}, // not for so long
	{"it was stopped for a session", "key", false, three + `
		8 b m1.1/1 0
		1.1-9 paused m1.1
		9.5 b m2.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"it was cut off", "key", false, three + `
		8 b m1.1/1 0
		4.1-9 cut m1.1
		9.5 b m2.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"all were cut off", "key", false, three + `
		8 b m1.1/1 0
		4.1-9 cut
		9.5 b m2.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"its brokers were gone for a moment", "key", false, three + `
		1 b m1.1/1 0
		1.1-1.3 cut
		2.9 b m2.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"it began after its brokers were back", "key", false, three + `
		2 b m1.1/1 0
		1.1-1.3 cut
		2.9 b m2.1/1 0`, "overlaps=1"},
	{"another was cut off", "key", false, three + `
		8 b m1.1/1 0
		4.1-9 cut m2.1
		9.5 b m2.1/1 0`, "overlaps=1"},
	{"it wakes after a pause", "key", false, three + `
		9 b m2.1/1 0
		1-9.5 paused m1.1
		9.6 b m1.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"it wakes after two pauses", "key", false, three + `
		9 b m2.1/1 0
		4-6.5 paused m1.1
		6.6-9.5 paused m1.1
		9.6 b m1.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"it wakes after a pause within a pause", "key", false, three + `
		9 b m2.1/1 0
		4-9.5 paused m1.1
		5-6 paused m1.1
		9.6 b m1.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"it wakes after a short pause, and one of long ago", "key", false, three + `
		9 b m2.1/1 0
		4-6.5 paused m1.1
		7.6-9.5 paused m1.1
		9.6 b m1.1/1 0`, "overlaps=1"},
	{"it is back in the network", "key", false, three + `
		9 b m2.1/1 0
		4-9.5 cut m1.1
		9.6 b m1.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"it begins while it is cut off", "key", false, three + `
		9 b m2.1/1 0
		2-9.5 cut m1.1
		9.4 b m1.1/1 0`, "overlaps=1"},
	{"it woke long ago", "key", false, three + `
		19 b m2.1/1 0
		1-9.5 paused m1.1
		19.6 b m1.1/1 0`, "overlaps=1"},
	{"it was killed", "key", false, three + `
		1 b m1.1/1 0
		1.1 killed m1.1
		1.2 b m2.1/1 0`, ""},
	{"it was being killed", "key", false, three + `
		1 b m1.1/1 0
		1.1-1.3 killed m1.1
		1.2 b m2.1/1 0`, "overlaps=1 overlaps_allowed=1"},
	{"it was killed later", "key", false, three + `
		1 b m1.1/1 0
		1.2-1.3 killed m1.1
		1.1 b m2.1/1 0`, "overlaps=1"},
	{"another was being killed", "key", false, three + `
		1 b m1.1/1 0
		1.1-1.3 killed m2.1
		1.2 b m2.1/1 0`, "overlaps=1"},
	{"it left, and its handler with it", "key", false, three + `
		1 b m1.1/1 0
		1.1-1.3 stopping m1.1
		1.4 b m2.1/1 0`, ""},
	{"it lives after its end", "key", false, three + `
		1 b m1.1/1 0
		1.1 killed m1.1
		1.2 b m1.1/1 2`, "foreign=1"},

	// What is done again.
	{"done again after a kill", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 killed m1.1
		9 b m2.1/1 0`, "redone=1 redone_allowed=1"},
	{"done again though committed", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 commit 1
		1.3 killed m1.1
		9 b m2.1/1 0`, "redone=1"},
	{"done again though its window says so", "unordered", false, three + `
		1 b m1.1/1 1
		1.1 e m1.1/1 1
		1.2 commit 0 to 1 but 0
		1.3 killed m1.1
		9 b m2.1/1 1`, "redone=1"},
	{"done again after a shorter window", "unordered", false, three + `
		1 b m1.1/1 1
		1.1 e m1.1/1 1
		1.2 commit 0 to 1 but 0
		1.3 commit 0
		1.4 killed m1.1
		9 b m2.1/1 1`, "redone=1 redone_allowed=1"},
	{"done again after a reset", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 commit 1
		2 reset 0
		3 b m1.2/1 0
		3.1 e m1.2/1 0`, "redone=1 redone_allowed=1"},
	{"done again in the same tenure", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 commit 1
		1.3 b m1.1/1 0`, "redone=1"},
	{"begun again by one that wakes", "unordered", false, three + `
		1-9.5 paused m1.1
		8 b m2.1/1 0
		8.1 e m2.1/1 0
		8.2 commit 1
		9.5 b m1.1/1 0`, "redone=1 redone_allowed=1"},
	{"a dead letter is handled again though committed", "unordered", false, three + `
		1 b m1.1/1 0
		1.1 f m1.1/1 0
		1.2 dead 0
		1.3 commit 1
		1.4 b m1.1/1 0`, "redone=1"},

	// Business keys.
	{"a copy runs after a mark", "unordered", true, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 killed m1.1
		1.2 mark m1 a
		9 b m1.2/1 1`, "business=1"},
	{"a copy runs after a kill without a mark", "unordered", true, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 killed m1.1
		9 b m1.2/1 1`, ""},
	{"a copy runs on another host", "unordered", true, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 killed m1.1
		1.2 mark m1 a
		9 b m2.1/1 1`, ""},
	{"a copy runs after the store is lost", "unordered", true, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 killed m1.1
		1.2 mark m1 a
		1.3 store lost m1.1
		9 b m1.2/1 1`, ""},
	{"a copy runs in the same life", "unordered", true, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 e m1.1/1 0
		1.2 b m1.1/1 1`, "business=1"},
	{"a copy runs in the same life, after one that outlived its tenure", "unordered", true, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		3.5 e m1.1/1 0
		4.2 b m1.1/2 1`, ""},
	{"two copies at a time", "unordered", true, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 b m1.1/1 1`, "business=1"},
	{"a copy after a failure", "unordered", true, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 f m1.1/1 0
		1.2 b m1.1/1 1`, ""},
	{"copies without dedupe", "unordered", false, `
		record 0 k a
		record 1 k a
		1 b m1.1/1 0
		1.1 b m1.1/1 1`, ""},

	// Evidence that can't be.
	{"never produced", "unordered", false, three + `1 b m1.1/1 7`, "foreign=1"},
	{"ended without having begun", "unordered", false, three + `1 e m1.1/1 0`, "foreign=1"},
	{"a dead letter of nothing", "unordered", false, three + `1 dead 9`, "foreign=1"},
}

// C1-C6: each kind of fault is found, and each kind of what is allowed is allowed.
func TestJudge(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			v := Judge(story(t, engine.Order(s.order), s.dedupe, s.text))
			if got := v.faults(); got != s.want {
				t.Errorf("got %q, want %q", got, s.want)
				for _, f := range v.Findings {
					t.Log(f)
				}
			}
			if v.OK() != (len(v.Findings) == 0) {
				t.Errorf("OK is %v, with %d findings", v.OK(), len(v.Findings))
			}
		})
	}
}
