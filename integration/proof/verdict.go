package proof

import (
	"fmt"
	"strings"
)

// Verdict counts what was found. As JSON it is one object, with the fields in this order.
type Verdict struct {
	Rounds                  int     `json:"rounds"`
	Records                 int     `json:"records"`
	Lost                    int     `json:"lost"`                      // never settled, though the group is past them
	CommittedPastUnfinished int     `json:"committed_past_unfinished"` // a commit, or what it says beyond its offset, was ahead of the work
	OrderViolations         int     `json:"order_violations"`          // began before an earlier one of its lane was settled, or after a later one
	Overlaps                int     `json:"overlaps"`                  // two handlers of one record, or of one lane, at a time
	OverlapsAllowed         int     `json:"overlaps_allowed"`          // of them, because the earlier owner's session or drain had ended (C6)
	Redone                  int     `json:"redone"`                    // began though they had ended
	RedoneAllowed           int     `json:"redone_allowed"`            // of them, because nothing that the group or the store had said so
	BusinessDuplicates      int     `json:"business_duplicates"`       // ran though the mark of their business key was durable there
	Stuck                   int     `json:"stuck"`                     // partitions whose lag did not return to 0
	Seed                    uint64  `json:"seed"`
	Seconds                 float64 `json:"seconds"`

	Findings []Finding `json:"-"` // whatever is wrong, in words
}

// OK says that nothing is wrong.
func (v *Verdict) OK() bool {
	return len(v.Findings) == 0 && v.Lost == 0 && v.CommittedPastUnfinished == 0 && v.OrderViolations == 0 && v.Overlaps == v.OverlapsAllowed &&
		v.Redone == v.RedoneAllowed && v.BusinessDuplicates == 0 && v.Stuck == 0
}

// Add adds another verdict's counts and findings. The seed and the seconds stay.
func (v *Verdict) Add(w *Verdict) {
	v.Rounds += w.Rounds
	v.Records += w.Records
	v.Lost += w.Lost
	v.CommittedPastUnfinished += w.CommittedPastUnfinished
	v.OrderViolations += w.OrderViolations
	v.Overlaps += w.Overlaps
	v.OverlapsAllowed += w.OverlapsAllowed
	v.Redone += w.Redone
	v.RedoneAllowed += w.RedoneAllowed
	v.BusinessDuplicates += w.BusinessDuplicates
	v.Stuck += w.Stuck
	v.Findings = append(v.Findings, w.Findings...)
}

// Fault names what a finding is about: a field of the verdict, or Rewound or Foreign, which have none.
type Fault string

// The faults.
const (
	Lost                    Fault = "lost"
	CommittedPastUnfinished Fault = "committed_past_unfinished"
	OrderViolation          Fault = "order_violations"
	Overlap                 Fault = "overlaps"
	Redone                  Fault = "redone"
	BusinessDuplicate       Fault = "business_duplicates"
	Stuck                   Fault = "stuck"
	Rewound                 Fault = "rewound" // what was committed went back, and no operator had done it
	Foreign                 Fault = "foreign" // handled, and never produced or of an aborted transaction; or evidence that contradicts itself
)

// Finding is something that is wrong.
type Finding struct {
	Fault     Fault
	Topic     string
	Partition int32
	Offset    int64 // -1: it is about the whole partition
	Text      string
	Lines     []Line // that show it
}

// String is the finding with its lines.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s[%d]", f.Fault, f.Topic, f.Partition)
	if f.Offset >= 0 {
		fmt.Fprintf(&b, "@%d", f.Offset)
	}
	b.WriteString(" " + f.Text)
	for i := range f.Lines {
		fmt.Fprintf(&b, "\n    %d: %s", f.Lines[i].Number, &f.Lines[i])
	}
	return b.String()
}
