package demo

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
)

// chronicle writes evidence of one partition by hand.
type chronicle struct {
	ev    evidence
	clock int64
	at    time.Duration
}

func newChronicle(orders int) *chronicle {
	c := &chronicle{ev: evidence{order: "unordered", workers: 8, planned: orders, ends: map[int32]int64{}, committed: map[int32]int64{}}, at: 10 * time.Second}
	for o := range orders {
		c.send(int32(o))
	}
	return c
}

func (c *chronicle) send(order int32) {
	at := int64(len(c.ev.log))
	c.ev.log = append(c.ev.log, placed{offset: at, order: order, key: fmt.Sprint("key", order), seq: 1})
	c.ev.ends[0], c.ev.committed[0] = at+1, at+1
	if int(order) < int(at) {
		c.ev.copies++
	}
}

func (c *chronicle) tick() int64 { c.clock += ticks; return c.clock }

// handle lets a life handle records, one after the other.
func (c *chronicle) handle(life string, how outcome, offsets ...int64) {
	for _, o := range offsets {
		h := handling{Offset: o, Order: c.ev.log[o].order, Key: c.ev.log[o].key, Seq: 1, Attempt: 1, Life: life, Outcome: how, At: c.at, Start: c.tick()}
		if how != outcomeKilled {
			h.End = c.tick()
		}
		c.ev.handlings = append(c.ev.handlings, h)
	}
}

// kill ends a life; what stands in the commit and in the store is as given.
func (c *chronicle) kill(life string, said commit, durable ...int32) *kill {
	k := &kill{life: life, clock: c.clock + 1, at: c.at, committed: map[int32]commit{0: said}, copied: "copy", durable: map[int32]bool{}}
	for _, o := range durable {
		k.durable[o] = true
	}
	for i := range c.ev.handlings {
		if h := &c.ev.handlings[i]; h.Outcome == outcomeKilled && h.End == 0 {
			h.End = k.clock
		}
	}
	c.ev.kills = append(c.ev.kills, k)
	c.ev.samples = append(c.ev.samples, sample{k.clock, k.committed})
	return k
}

func upTo(offset, highest int64, undone ...int64) commit {
	return commit{offset: offset, window: &window.Window{Frontier: offset, Highest: highest, Undone: append([]int64{offset}, undone...)}}
}

// Each record that was redone needs an excuse of its own, and each excuse is counted.
func TestRedone(t *testing.T) {
	for _, c := range []struct {
		name            string
		play            func(*chronicle)
		redone, allowed int
		says            string // "": the verdict is good
	}{
		{"in flight", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1)
			c.handle("B1", outcomeKilled, 2, 3)
			c.kill("B1", upTo(2, 1), 0, 1)
			c.handle("B2", outcomeOK, 2, 3)
		}, 2, 2, ""},
		{"to be tried again: nothing is redone", func(c *chronicle) {
			c.handle("B1", outcomeFailed, 0)
			c.kill("B1", upTo(0, -1))
			c.handle("B2", outcomeOK, 0, 1, 2, 3)
		}, 0, 0, ""},
		{"not yet durable", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			c.kill("B1", upTo(0, -1), 0, 2, 3)
			c.handle("B2", outcomeOK, 1)
		}, 1, 1, ""},
		{"durable, and redone with the same store", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			c.kill("B1", upTo(0, -1), 0, 1, 2, 3)
			c.handle("B2", outcomeOK, 1)
		}, 1, 0, "1 of them was finished and safe"},
		{"durable, and redone by another member: not yet committed", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			c.kill("B1", upTo(0, 2, 1), 0, 1, 2, 3)
			c.handle("A1", outcomeOK, 0, 1, 3)
		}, 3, 3, ""},
		{"committed, and redone by another member", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			c.kill("B1", upTo(0, 2, 1), 0, 1, 2, 3)
			c.handle("A1", outcomeOK, 0, 1, 2, 3)
		}, 4, 3, "1 of them was finished and safe"},
		{"finished long ago, and not committed", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			c.at += settleWithin
			c.kill("B1", upTo(0, -1), 0, 1, 2, 3)
			c.handle("A1", outcomeOK, 0, 1, 2, 3)
		}, 4, 0, "4 of them were finished and safe"},
		{"finished long ago, on a machine that stood still", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			c.at += settleWithin
			c.kill("B1", upTo(0, -1), 0, 1, 2, 3).gap = time.Second
			c.handle("A1", outcomeOK, 0, 1, 2, 3)
		}, 4, 4, ""},
		{"dropped from a window", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			c.at += settleWithin
			said := upTo(0, 2)
			said.window.Cut, said.bytes = true, shortenedFrom
			c.kill("B1", said, 0, 1, 2, 3)
			c.handle("A1", outcomeOK, 3)
		}, 1, 1, ""},
		{"dropped from a window that was not long", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			c.at += settleWithin
			said := upTo(0, 2)
			said.window.Cut = true
			c.kill("B1", said, 0, 1, 2, 3)
			c.handle("A1", outcomeOK, 3)
		}, 1, 0, "1 of them was finished and safe"},
		{"the window of another offset", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			said := upTo(1, 3)
			said.offset = 0
			c.kill("B1", said, 0, 1, 2, 3)
			c.handle("A1", outcomeOK, 1)
		}, 1, 4, ""},
		{"committed, but not durable", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3)
			c.kill("B1", upTo(4, 3), 0, 1, 2)
		}, 0, 0, "its mark was not durable"},
		{"finished by the one before, and redone after the kill", func(c *chronicle) {
			c.handle("A1", outcomeOK, 1)
			c.handle("B1", outcomeOK, 0, 2, 3)
			c.kill("B1", upTo(0, -1), 0, 2, 3)
			c.handle("B2", outcomeOK, 1)
		}, 0, 0, "1 successful handling beyond one"},
		{"handed over cleanly, then killed: no excuse", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1)
			c.handle("A1", outcomeOK, 0, 2, 3)
			c.kill("B1", upTo(0, -1))
		}, 0, 0, "1 successful handling beyond one"},
		{"the partition was no longer the killed one's", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1)
			c.handle("A1", outcomeOK, 2, 3)
			c.kill("B1", upTo(0, -1))
			c.handle("A1", outcomeOK, 1)
		}, 1, 0, "1 of them was finished and safe"},
		{"twice by one life", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0, 1, 2, 3, 3)
		}, 0, 0, "1 successful handling beyond one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newChronicle(4)
			c.play(h)
			f := judge(h.ev)
			all := strings.Join(f.problems, "\n")
			if f.good() != (c.says == "") || !strings.Contains(all, c.says) {
				t.Errorf("it is to say %q, and says %q", c.says, all)
			}
			if f.Redone != c.redone || f.RedoneAllowed != c.allowed || f.Lost != 0 {
				t.Errorf("redone %d of %d, not %d of %d: %+v", f.Redone, f.RedoneAllowed, c.redone, c.allowed, f.losses)
			}
		})
	}
}

// A store that makes nothing durable has no excuse for all that it was given.
func TestMarksMayNotWaitForEver(t *testing.T) {
	n := maxPending + 20
	c := newChronicle(n)
	for o := range n {
		c.handle("B1", outcomeOK, int64(o))
	}
	c.kill("B1", upTo(0, -1))
	c.handle("B2", outcomeOK, 0)
	f := judge(c.ev)
	if f.good() || f.RedoneAllowed != maxPending+c.ev.workers || !strings.Contains(strings.Join(f.problems, "\n"), "had no durable mark") {
		t.Errorf("%+v %v", f.Verdict, f.problems)
	}
}

// Orders that were sent twice are handled once by all who can know.
func TestCopies(t *testing.T) {
	for _, c := range []struct {
		name string
		play func(*chronicle)
		want copies
	}{
		{"passed over", func(c *chronicle) { c.handle("A1", outcomeOK, 0) }, copies{passed: 1}},
		{"the copy was handled, and the first passed over", func(c *chronicle) { c.handle("A1", outcomeOK, 2) }, copies{passed: 1}},
		{"handled twice by one life", func(c *chronicle) { c.handle("A1", outcomeOK, 0, 2) }, copies{business: 1}},
		{"by the next life, after a clean leave", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0)
			c.handle("B2", outcomeOK, 2)
		}, copies{business: 1}},
		{"by the next life, with a durable mark", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0)
			c.kill("B1", upTo(1, 0), 0)
			c.handle("B2", outcomeOK, 2)
		}, copies{business: 1}},
		{"by the next life, without", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0)
			c.kill("B1", upTo(0, -1))
			c.handle("B2", outcomeOK, 2)
		}, copies{elsewhere: 1}},
		{"by the other member", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0)
			c.handle("A1", outcomeOK, 2)
		}, copies{elsewhere: 1}},
		{"failed by one, handled by the other", func(c *chronicle) {
			c.handle("B1", outcomeCut, 0)
			c.handle("A1", outcomeOK, 0)
		}, copies{passed: 1}},
		{"redone is no copy", func(c *chronicle) {
			c.handle("B1", outcomeOK, 0)
			c.kill("B1", upTo(0, -1))
			c.handle("A1", outcomeOK, 0)
		}, copies{passed: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newChronicle(2)
			h.send(0)
			h.handle("A1", outcomeOK, 1)
			h.ev.samples = []sample{{committed: map[int32]commit{0: {}}}}
			c.play(h)
			f := judge(h.ev)
			if f.copies != c.want || f.BusinessDuplicates != c.want.business || f.good() != (c.want.business == 0) {
				t.Errorf("%+v, not %+v: %v", f.copies, c.want, f.problems)
			}
			if f.Produced != 2 || f.Handled != 2 || f.Lost != 0 || f.sentTwice != 1 {
				t.Errorf("%+v", f.Verdict)
			}
		})
	}
}

// A window that says of an unfinished record that it is finished is a commit past it.
func TestWindowPastUnfinished(t *testing.T) {
	for undone, bad := range map[int64]int{1: 0, 2: 1} {
		c := newChronicle(4)
		c.handle("B1", outcomeOK, 3)
		c.ev.samples = []sample{{c.clock, map[int32]commit{0: upTo(0, 3, 1, 2)}}}
		c.ev.samples[0].committed[0].window.Undone = slices.DeleteFunc([]int64{0, 1, 2}, func(o int64) bool { return o == 2 && undone == 2 })
		c.handle("B1", outcomeOK, 0, 1, 2)
		if f := judge(c.ev); f.commitsBad != bad || f.good() != (bad == 0) {
			t.Errorf("%d: %d %v", undone, f.commitsBad, f.problems)
		}
	}
}
