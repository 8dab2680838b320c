package main

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kadm"
)

// Whose the metadata of a commit is.
const (
	metadataNone    = "none"    // there is none: another program or a tool committed
	metadataGapless = "gapless" // a resume window
	metadataOther   = "other"   // another program's
	metadataDamaged = "damaged" // a resume window that can't be read
	metadataNewer   = "newer"   // a resume window of a newer version
)

// metadataWords are those for people.
var metadataWords = map[string]string{
	metadataNone:    "-",
	metadataGapless: "resume window",
	metadataOther:   "another program's",
	metadataDamaged: "damaged",
	metadataNewer:   "newer version",
}

// windowStatus is the resume window that came with a commit.
type windowStatus struct {
	// Ignored is why the next owner will not use it.
	Ignored   string     `json:"ignored,omitempty"`
	Frontier  int64      `json:"frontier"`
	Highest   int64      `json:"highest_settled"` // frontier - 1 where nothing beyond the frontier is settled
	Settled   int64      `json:"settled_beyond"`
	Undone    []int64    `json:"undone"`
	Shortened bool       `json:"shortened"`
	Epochs    []epochRun `json:"leader_epochs"`
	TopicID   string     `json:"topic_id,omitempty"` // as Kafka's own tools print it
	// Partitions are those that the topic had when the group first claimed this one.
	Partitions  int32  `json:"partitions,omitempty"`
	Store       string `json:"store,omitempty"`
	StoreSeq    uint64 `json:"store_sequence,omitempty"`
	Unclean     uint32 `json:"unclean_ends"` // a running owner has counted itself in
	Trying      *int64 `json:"trying,omitempty"`
	Tries       uint32 `json:"tries,omitempty"`
	BypassBelow int64  `json:"bypass_below,omitempty"`

	w window.Window
}

type epochRun struct {
	First       int64 `json:"first"`
	LeaderEpoch int32 `json:"leader_epoch"`
}

// readMetadata tells whose the metadata of a commit is, and what it says. The topic's id is what the brokers say now.
func readMetadata(metadata string, committed int64, topicID kadm.TopicID) (of string, ws *windowStatus) {
	w, err := window.Decode(metadata)
	switch {
	case metadata == "":
		return metadataNone, nil
	case errors.Is(err, window.ErrNone):
		return metadataOther, nil
	case errors.Is(err, window.ErrVersion):
		return metadataNewer, nil
	case err != nil:
		return metadataDamaged, nil
	}
	settled, _ := w.Counts()
	ws = &windowStatus{
		Frontier: w.Frontier, Highest: w.Highest, Settled: settled, Undone: w.Undone, Shortened: w.Cut, Epochs: []epochRun{},
		Partitions: w.Partitions, Unclean: w.Unclean, BypassBelow: w.BypassBelow, w: w,
	}
	if ws.Undone == nil {
		ws.Undone = []int64{}
	}
	for _, e := range w.Epochs {
		ws.Epochs = append(ws.Epochs, epochRun{e.First, e.LeaderEpoch})
	}
	if w.TopicID != [16]byte{} {
		ws.TopicID = base64.RawURLEncoding.EncodeToString(w.TopicID[:])
	}
	if w.Store != [16]byte{} {
		ws.Store, ws.StoreSeq = hex.EncodeToString(w.Store[:]), w.StoreSeq
	}
	if w.Trying >= 0 && w.Tries > 0 {
		ws.Trying, ws.Tries = &w.Trying, w.Tries
	}
	switch {
	case w.Frontier != committed:
		ws.Ignored = fmt.Sprintf("it belongs to offset %s: a tool moved the commit and kept the metadata", count(w.Frontier))
	case topicID == kadm.TopicID{}:
		ws.Ignored = "the topic's id is not known"
	case !w.Same(topicID):
		ws.Ignored = "it is of another topic of this name, which was deleted"
	}
	return metadataGapless, ws
}

// beyond is the window in a cell of a table: what is settled beyond the commit, and how much is open there.
func (p *partitionStatus) beyond() string {
	switch {
	case p.MetadataOf == metadataDamaged, p.MetadataOf == metadataNewer:
		return metadataWords[p.MetadataOf]
	case p.Window == nil:
		return "-"
	case p.Window.Ignored != "":
		return "ignored"
	}
	var says []string
	if w := p.Window; w.Settled > 0 {
		says = append(says, fmt.Sprintf("+%s beyond, %s open", count(w.Settled), count(int64(len(w.Undone)))))
	}
	if n := p.uncleanEnds(); n > 0 {
		says = append(says, plural(int64(n), "unclean end"))
	}
	if len(says) == 0 {
		return "-"
	}
	return strings.Join(says, ", ")
}

// uncleanEnds are the assignments that ended without a clean stop. A running owner has counted itself in, in case it will be one.
func (p *partitionStatus) uncleanEnds() uint32 {
	n := p.Window.Unclean
	if p.Member != "" && n > 0 {
		n--
	}
	return n
}

// hasWindows says whether there is anything of ours to show.
func (g *groupStatus) hasWindows() bool {
	for _, p := range g.Partitions {
		if p.MetadataOf == metadataGapless || p.MetadataOf == metadataDamaged || p.MetadataOf == metadataNewer {
			return true
		}
	}
	return false
}

// shownOffsets is how many offsets of a list people get to see; --json has them all.
const shownOffsets = 8

// words tell what the commit of a partition says beside its offset, where that is more than the table can.
func (p *partitionStatus) words() (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	switch p.MetadataOf {
	case metadataOther:
		say("the metadata is another program's: %s; all from the commit on is handled", printable(p.text()))
	case metadataDamaged:
		say("the resume window is damaged; all from the commit on is handled")
	case metadataNewer:
		say("the resume window is of a newer version, which this one can't read; all from the commit on is handled")
	}
	if p.Start != nil && p.Committed != nil && *p.Committed < *p.Start {
		say("the log begins %s offsets after the commit: retention deleted them", count(*p.Start-*p.Committed))
	}
	if p.End != nil && p.Committed != nil && *p.Committed > *p.End {
		say("the commit lies %s offsets beyond the end of the log, which was truncated or begun anew", count(*p.Committed-*p.End))
	}
	w := p.Window
	if w == nil {
		return lines
	}
	if w.Ignored != "" {
		say("the resume window is ignored: %s", w.Ignored)
	}
	if w.Settled > 0 {
		say("%s settled beyond the commit, up to %s; %s open there: %s", count(w.Settled), count(w.Highest), count(int64(len(w.Undone))), someOffsets(w.Undone))
	}
	if w.Shortened {
		say("more was settled than the window says: what did not fit, or what a reset went back over, is handled again")
	}
	if w.Store != "" {
		say("dedupe store %s…, which must have reached sequence %d", w.Store[:8], w.StoreSeq)
	}
	if n := p.uncleanEnds(); n > 0 {
		say("%s at this offset", plural(int64(n), "unclean end"))
	}
	if w.Trying != nil {
		say("record %s was announced %s before its handler started, as it may be what ends the process", count(*w.Trying), times(w.Tries))
	}
	if w.BypassBelow > w.Frontier {
		say("business marks are bypassed below %s, since a reset had them forgotten", count(w.BypassBelow))
	}
	return lines
}

// text is the metadata as it was committed.
func (p *partitionStatus) text() string {
	if p.Metadata == nil {
		return ""
	}
	return *p.Metadata
}

// someOffsets lists the first offsets, and says how many more there are.
func someOffsets(list []int64) string {
	var b strings.Builder
	for i, o := range list[:min(len(list), shownOffsets)] {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(count(o))
	}
	if more := len(list) - shownOffsets; more > 0 {
		fmt.Fprintf(&b, " and %s more", count(int64(more)))
	}
	return b.String()
}

// plural counts things.
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(n) + " " + thing + "s"
}

func times(n uint32) string {
	if n == 1 {
		return "once"
	}
	return count(int64(n)) + " times"
}
