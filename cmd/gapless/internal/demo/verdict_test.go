package demo

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// sound is the evidence of a run in which all went well: two partitions, two keys in each, and the records of each key in
// sequence, while those of different keys overlap. The record at offset 3 of partition 1 is poisonous.
func sound(order engine.Order) evidence {
	ev := evidence{
		order: string(order), workers: 64, planned: 16, poisonous: 1, retries: 2, seconds: 1.234,
		ends: map[int32]int64{0: 8, 1: 8}, committed: map[int32]int64{0: 8, 1: 8},
	}
	clock := int64(0)
	tick := func() int64 { clock++; return clock }
	for p := range int32(2) {
		for o := range int64(8) {
			r := placed{partition: p, offset: o, order: p*8 + int32(o), key: string('a' + 2*p + int32(o%2)), seq: int32(o/2) + 1}
			if p == 1 && o == 3 {
				r.poisonous, r.value = true, "poison"
				ev.dead = append(ev.dead, r)
			}
			ev.log = append(ev.log, r)
		}
		for o := int64(0); o < 8; o += 2 { // the two keys of the partition side by side, unless it is serial
			pair := ev.log[int(p)*8+int(o):][:2]
			if order == engine.OrderPartition {
				ev.handle(pair[:1], tick)
				ev.handle(pair[1:], tick)
			} else {
				ev.handle(pair, tick)
			}
			ev.samples = append(ev.samples, sample{clock, map[int32]commit{p: {offset: o + 2}}})
		}
	}
	return ev
}

// handle adds handlings that run together; a poisonous record is tried two times more.
func (ev *evidence) handle(rs []placed, tick func() int64) {
	from := len(ev.handlings)
	for _, r := range rs {
		first := outcomeOK
		if r.poisonous {
			first = outcomeFailed
		}
		ev.handlings = append(ev.handlings, handling{
			Partition: r.partition, Offset: r.offset, Order: r.order, Key: r.key, Seq: r.seq, Attempt: 1, Life: "A1", Outcome: first, Start: tick(), Took: time.Millisecond,
		})
	}
	for i := range rs {
		ev.handlings[from+i].End = tick()
	}
	for _, r := range rs {
		for attempt := 2; r.poisonous && attempt <= 3; attempt++ {
			h := handling{
				Partition: r.partition, Offset: r.offset, Order: r.order, Key: r.key, Seq: r.seq, Attempt: attempt, Life: "A1", Outcome: outcomeFailed, Start: tick(), End: tick(),
			}
			if attempt == 3 {
				h.Outcome = outcomeGivenUp
			}
			ev.handlings = append(ev.handlings, h)
		}
	}
}

func TestSoundEvidenceIsGood(t *testing.T) {
	for _, order := range []engine.Order{engine.OrderKey, engine.OrderUnordered, engine.OrderPartition} {
		f := judge(sound(order))
		if !f.good() {
			t.Errorf("%s: %v", order, f.problems)
		}
		want := Verdict{Produced: 16, Handled: 15, Retried: 2, DeadLettered: 1, Seconds: 1.23}
		if f.Verdict != want {
			t.Errorf("%s: %+v, not %+v", order, f.Verdict, want)
		}
	}
}

// find is the index of a record's handling.
func (ev *evidence) find(partition int32, offset int64, attempt int) int {
	return slices.IndexFunc(ev.handlings, func(h handling) bool {
		return h.Partition == partition && h.Offset == offset && h.Attempt == attempt
	})
}

func (ev *evidence) drop(i int) { ev.handlings = slices.Delete(ev.handlings, i, i+1) }

// Each fault, planted alone, makes the verdict bad, and shows in the number that is meant for it.
func TestVerdictHasTeeth(t *testing.T) {
	const late = 1 << 20
	for _, c := range []struct {
		name  string
		order engine.Order
		plant func(*evidence)
		says  string
		want  func(*Verdict) bool // beyond the problem
	}{
		{"lost: never handled", engine.OrderUnordered, func(ev *evidence) { ev.drop(ev.find(0, 7, 1)) },
			"1 record was lost", func(v *Verdict) bool { return v.Lost == 1 && v.Handled == 14 }},
		{"lost: handled, but never to success", engine.OrderUnordered, func(ev *evidence) { ev.handlings[ev.find(0, 7, 1)].Outcome = outcomeFailed },
			"1 record was lost", func(v *Verdict) bool { return v.Lost == 1 }},
		{"lost: given up without a dead letter", engine.OrderUnordered, func(ev *evidence) { ev.dead = nil },
			"1 record was lost", func(v *Verdict) bool { return v.Lost == 1 && v.DeadLettered == 0 }},
		{"duplicate", engine.OrderKey, func(ev *evidence) {
			h := ev.handlings[ev.find(0, 2, 1)]
			h.Start, h.End = late, late+1
			ev.handlings = append(ev.handlings, h)
		}, "1 successful handling beyond one", func(v *Verdict) bool { return v.Duplicates == 1 && v.Retried == 3 && v.OrderViolations == 0 }},
		{"overlap of one key", engine.OrderKey, func(ev *evidence) {
			first := &ev.handlings[ev.find(0, 0, 1)]
			first.End = ev.handlings[ev.find(0, 2, 1)].Start // one beyond is enough
			ev.handlings[ev.find(0, 2, 1)].Start--
		}, "against the order by key", func(v *Verdict) bool { return v.OrderViolations == 1 }},
		{"two copies of one record at once", engine.OrderKey, func(ev *evidence) {
			h := ev.handlings[ev.find(0, 0, 1)]
			h.Outcome = outcomeFailed
			ev.handlings = append(ev.handlings, h)
		}, "against the order by key", func(v *Verdict) bool { return v.OrderViolations == 1 }},
		{"reordered key", engine.OrderKey, func(ev *evidence) {
			a, b := &ev.handlings[ev.find(0, 4, 1)], &ev.handlings[ev.find(0, 6, 1)]
			a.Start, b.Start = b.Start, a.Start
			a.End, b.End = b.End, a.End
		}, "against the order by key", func(v *Verdict) bool { return v.OrderViolations == 1 && v.Lost == 0 }},
		{"passed by the next of its key between two attempts", engine.OrderKey, func(ev *evidence) {
			second, next := &ev.handlings[ev.find(1, 3, 2)], &ev.handlings[ev.find(1, 5, 1)]
			second.Start, second.End, next.Start, next.End = next.Start, next.End, second.Start, second.End
		}, "against the order by key", func(v *Verdict) bool { return v.OrderViolations == 1 }},
		{"overlap in a partition", engine.OrderPartition, func(ev *evidence) {
			ev.handlings[ev.find(0, 0, 1)].End, ev.handlings[ev.find(0, 1, 1)].Start = 3, 2
		}, "against the order by partition", func(v *Verdict) bool { return v.OrderViolations == 1 }},
		{"lag", engine.OrderKey, func(ev *evidence) { ev.committed[1] = 6 },
			"the lag is 2", func(v *Verdict) bool { return v.Lag == 2 }},
		{"nothing committed in a partition", engine.OrderKey, func(ev *evidence) { delete(ev.committed, 0) },
			"the lag is 8", func(v *Verdict) bool { return v.Lag == 8 }},
		{"committed past an unfinished record", engine.OrderKey, func(ev *evidence) {
			s := &ev.samples[0]
			s.committed = maps.Clone(s.committed)
			s.committed[0] = commit{offset: s.committed[0].offset + 1}
		}, "in 1 of 8 samples the committed offset was past", nil},
		{"committed past a record that is still to be dead-lettered", engine.OrderKey, func(ev *evidence) {
			ev.samples = append(ev.samples, sample{ev.handlings[ev.find(1, 3, 2)].End, map[int32]commit{1: {offset: 4}}})
		}, "in 1 of 9 samples", nil},
		{"commits never seen", engine.OrderKey, func(ev *evidence) { ev.samples = nil }, "no committed offset was seen", nil},
		{"a healthy record dead-lettered", engine.OrderKey, func(ev *evidence) {
			h := &ev.handlings[ev.find(0, 7, 1)]
			h.Outcome = outcomeFailed
			ev.dead = append(ev.dead, ev.log[7])
		}, "2 orders are dead letters, but 1 were poisonous", func(v *Verdict) bool { return v.DeadLettered == 2 && v.Lost == 0 }},
		{"another record dead-lettered in place of the poisonous one", engine.OrderKey, func(ev *evidence) {
			ev.handlings[ev.find(1, 3, 3)].Outcome = outcomeOK
			ev.handlings[ev.find(0, 7, 1)].Outcome = outcomeFailed
			ev.dead = []placed{ev.log[7]}
		}, "is not poisonous", nil},
		{"a dead letter too many", engine.OrderKey, func(ev *evidence) { ev.dead = append(ev.dead, ev.dead[0]) }, "dead-lettered 2 times", nil},
		{"a dead letter from nowhere", engine.OrderKey, func(ev *evidence) {
			ev.dead = append(ev.dead, placed{partition: 1, offset: 99})
		}, "not in the topic", nil},
		{"a dead letter with another value", engine.OrderKey, func(ev *evidence) { ev.dead[0].value = "Poison" }, "another key or value", nil},
		{"both handled and dead-lettered", engine.OrderKey, func(ev *evidence) { ev.handlings[ev.find(1, 3, 3)].Outcome = outcomeOK },
			"both handled and dead-lettered", nil},
		{"another record's bytes", engine.OrderKey, func(ev *evidence) { ev.handlings[ev.find(0, 3, 1)].Seq++ }, "was handled as b number 3", nil},
		{"handled, but never produced", engine.OrderKey, func(ev *evidence) {
			ev.handlings = append(ev.handlings, handling{Partition: 0, Offset: 8, Key: "a", Seq: 5, Attempt: 1, Life: "A1", Outcome: outcomeOK, Start: late, End: late + 1})
		}, "was handled, but is not in the topic", nil},
		{"a handler that never returned", engine.OrderUnordered, func(ev *evidence) {
			h := &ev.handlings[ev.find(0, 7, 1)]
			h.Outcome, h.End = "", 0
		}, "never returned", func(v *Verdict) bool { return v.Lost == 1 }},
		{"not all produced", engine.OrderKey, func(ev *evidence) { ev.planned++ }, "16 orders are in the topic, not the 17", nil},
		{"too few retries", engine.OrderKey, func(ev *evidence) { ev.drop(ev.find(1, 3, 2)) }, "1 retries are fewer than the 2", nil},
		{"stalled", engine.OrderKey, func(ev *evidence) { ev.troubles = []string{"nothing happened"} }, "nothing happened", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := sound(c.order)
			c.plant(&ev)
			f := judge(ev)
			if f.good() {
				t.Fatalf("the verdict is good: %+v", f.Verdict)
			}
			if all := strings.Join(f.problems, "\n"); !strings.Contains(all, c.says) {
				t.Errorf("it does not say %q, but:\n%s", c.says, all)
			}
			if c.want != nil && !c.want(&f.Verdict) {
				t.Errorf("%+v", f.Verdict)
			}
		})
	}
}
