package bench

import (
	"testing"
	"time"
)

// TestAllocations is a gate: a record costs no allocation of its own, in any order, client included. What a poll and a commit allocate is
// shared by the thousands of records that came with it. Under the race detector the runtime allocates for itself.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Log("nothing is looked at under the race detector: make bench-gate runs it without")
		return
	}
	const most = 0.05
	for _, synthetic := range []bool{false, true} {
		arm := ArmEngine
		if synthetic {
			arm = ArmPipeline
		}
		for _, o := range orders {
			c := caseOf("workers", "8")
			c.Order = o
			r, err := Run(t.Context(), Config{Cases: []Case{c}, Rounds: 1, Warm: 50 * time.Millisecond, Synthetic: synthetic, until: 2_000_000, Limit: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			m := r.find(arm, c).Runs[0]
			if !m.Ended || m.AllocsPerRecord > most {
				t.Errorf("%s, order %s: %.4f allocations a record over %d records, more than %v", arm, o, m.AllocsPerRecord, m.Records, most)
			}
		}
	}
}
