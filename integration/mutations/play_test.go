package main

import (
	"testing"

	"github.com/gaplesshq/gapless/integration/proof"
)

// What an oracle finds is counted in what the torture prints of it, with and without the mark of a test.
func TestFindingsAreCounted(t *testing.T) {
	for _, f := range []proof.Fault{
		proof.Lost, proof.CommittedPastUnfinished, proof.OrderViolation, proof.Overlap, proof.Redone, proof.BusinessDuplicate, proof.Stuck, proof.Rewound, proof.Foreign,
	} {
		one := proof.Finding{Fault: f, Topic: "t-1", Partition: 3, Offset: 5, Text: "and more"}.String()
		whole := proof.Finding{Fault: f, Topic: "t-1", Partition: -1, Offset: -1, Text: "and more"}.String()
		out := "round 1 good: seed 3, lost 0\n  " + one + "\n        seeds_test.go:87: " + whole + "\nkills of members: 3\n"
		want := map[proof.Fault]string{
			proof.CommittedPastUnfinished: "committed past unfinished 2", proof.OrderViolation: "order violations 2", proof.BusinessDuplicate: "business duplicates 2",
		}[f]
		if want == "" {
			want = string(f) + " 2"
		}
		if got := findings([]byte(out)); got != want {
			t.Errorf("%q gave %q instead of %q", out, got, want)
		}
	}
	if got := findings([]byte("15s  rounds 0/1  lost 0  redone 0 of 0 allowed  wrong 0\n")); got != "" {
		t.Errorf("a good round gave %q", got)
	}
}
