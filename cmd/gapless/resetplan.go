package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/twmb/franz-go/pkg/kadm"
)

// resetPlan is what a reset changes.
type resetPlan struct {
	Group    string `json:"group"`
	Protocol string `json:"protocol"`
	State    string `json:"state"`
	DryRun   bool   `json:"dry_run"`
	Done     bool   `json:"done"`
	// Redone and Skipped count offsets, so that gaps in a log (markers of transactions, compaction) count as records.
	Redone  int64    `json:"redone"`
	Skipped int64    `json:"skipped"`
	Notes   []string `json:"notes"`
	Moves   []move   `json:"partitions"`
}

// move is a partition's part of it.
type move struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      *int64 `json:"from"` // null = the group has no commit
	To        int64  `json:"to"`
	Start     int64  `json:"log_start"`
	End       int64  `json:"log_end"`
	// Redone were handled and will be again: from To on, what lies below From or is settled beyond it.
	Redone int64 `json:"redone"`
	// Skipped were not handled and never will be.
	Skipped int64 `json:"skipped"`
	// BypassBelow is the offset below which business marks are not looked at; 0 = none.
	BypassBelow int64    `json:"bypass_below,omitempty"`
	Remarks     []string `json:"remarks,omitempty"`

	before   string // the metadata that is replaced
	metadata string
}

// claimedPartitions are how many partitions the topics had when the group first claimed them, as the engine reads it from the
// group's commits: 0 where one does not say.
func (g *groupStatus) claimedPartitions() map[string]int32 {
	claimed := map[string]int32{}
	for _, p := range g.Partitions {
		if p.Committed == nil {
			continue
		}
		n := int32(0)
		if p.Window != nil {
			n = p.Window.Partitions
		}
		if was, ok := claimed[p.Topic]; ok {
			n = min(n, was)
		}
		claimed[p.Topic] = n
	}
	return claimed
}

// moveTo plans the reset of a partition. What the commit says beside its offset is about the work that is done again now, so it
// is dropped, but for two things: how many partitions the topic had, and which business marks an earlier reset had forgotten.
func moveTo(p *partitionStatus, to int64, claimed map[string]int32, forget bool) move {
	m := move{Topic: p.Topic, Partition: p.Partition, From: p.Committed, To: to, Start: *p.Start, End: *p.End, before: p.text()}
	old := p.trusted()
	m.countRecords(old)
	w := window.Window{TopicID: p.topicID, Frontier: to, Highest: to - 1, Trying: -1}
	switch n, ok := claimed[p.Topic]; {
	case p.Committed != nil && p.Window != nil:
		w.Partitions = p.Window.Partitions
	case p.Committed != nil:
	case ok:
		w.Partitions = n
	default: // the group claims the topic with this commit
		w.Partitions = p.partitions
	}
	if old != nil && old.BypassBelow > to {
		w.BypassBelow = old.BypassBelow
	}
	if forget {
		n, why := p.handledBelow()
		if n > to && n > w.BypassBelow {
			w.BypassBelow = n
			if why != "" {
				m.Remarks = append(m.Remarks, why)
			}
		}
	}
	m.BypassBelow = w.BypassBelow
	// What is handled again was settled once: so a later reset that has marks forgotten does not take To for the furthest that
	// the group has been.
	w.Cut = m.From != nil && *m.From > to || old != nil && (old.Highest >= to || old.Cut)
	m.metadata = string(w.Append(nil, 0))
	return m
}

// trusted is the window that the next owner would go by; nil = none.
func (p *partitionStatus) trusted() *window.Window {
	if p.Window == nil || p.Window.Ignored != "" {
		return nil
	}
	return &p.Window.w
}

// handledBelow is the offset below which all lies that the group may have handled. Where the commit does not tell, that is the
// end of the log.
func (p *partitionStatus) handledBelow() (n int64, doubt string) {
	switch w := p.trusted(); {
	case w == nil:
		return *p.End, "how far the group came is not known"
	case w.Cut:
		return *p.End, "how far the group came is not known: more is settled than its commit lists"
	case w.Unclean > 0:
		return *p.End, "how far the group came is not known: its last owner did not stop cleanly"
	default:
		return max(w.Frontier, w.Highest+1), ""
	}
}

// countRecords counts what is handled again and what is skipped. old is the window that is dropped.
func (m *move) countRecords(old *window.Window) {
	from := m.Start
	if m.From != nil {
		from = max(*m.From, m.Start) // retention has skipped what lies below
	}
	m.Redone = max(from-m.To, 0)
	m.Skipped = max(m.To-from, 0)
	if old == nil || old.Highest <= old.Frontier {
		return
	}
	// Settled beyond the commit: handled again from To on, and not skipped below it.
	settled := func(lo, hi int64) int64 { // from lo on, below hi
		lo, hi = max(lo, old.Frontier), min(hi, old.Highest+1)
		i, _ := slices.BinarySearch(old.Undone, lo)
		j, _ := slices.BinarySearch(old.Undone, hi)
		return max(hi-lo-int64(max(j-i, 0)), 0)
	}
	m.Redone += settled(max(m.To, from), m.End)
	m.Skipped -= min(settled(from, m.To), m.Skipped)
}

// add adds a partition to the plan.
func (p *resetPlan) add(m move) {
	p.Moves = append(p.Moves, m)
	p.Redone += m.Redone
	p.Skipped += m.Skipped
}

// offsets are what the plan commits.
func (p *resetPlan) offsets() kadm.Offsets {
	offsets := kadm.Offsets{}
	for _, m := range p.Moves {
		offsets.Add(kadm.Offset{Topic: m.Topic, Partition: m.Partition, At: m.To, LeaderEpoch: -1, Metadata: m.metadata})
	}
	return offsets
}

// print shows the plan to people.
func (p *resetPlan) print(w io.Writer) {
	t := newTable()
	t.AppendHeader(table.Row{"TOPIC", "PARTITION", "FROM", "TO", "REDONE", "SKIPPED", "REMARKS"})
	for _, m := range p.Moves {
		remarks := slices.Clone(m.Remarks)
		if m.BypassBelow > 0 {
			remarks = append(remarks, "business marks are bypassed below "+count(m.BypassBelow))
		}
		t.AppendRow(table.Row{m.Topic, m.Partition, known(m.From), count(m.To), some(m.Redone), some(m.Skipped), strings.Join(remarks, "; ")})
	}
	t.SetColumnConfigs(rightAligned(2, 3, 4, 5, 6))
	_, _ = fmt.Fprintf(w, "group %s  %s  %s\n\n%s\n\n", printable(p.Group), p.Protocol, p.State, t.Render())
}

// sayNotes writes what the operator has to know of it.
func (p *resetPlan) sayNotes(w io.Writer) {
	if p.Skipped > 0 {
		_, _ = fmt.Fprintf(w, "WARNING: %s skipped: this group will never handle what it has not handled there yet\n", plural(p.Skipped, "record"))
	}
	for _, n := range p.Notes {
		_, _ = fmt.Fprintln(w, n)
	}
}

// some is a number, where there is any.
func some(n int64) string {
	if n == 0 {
		return "-"
	}
	return count(n)
}
