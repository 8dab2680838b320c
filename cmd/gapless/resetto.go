package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/settings"
	"github.com/twmb/franz-go/pkg/kadm"
)

// place is where offsets are set to: the flags --to and --by.
type place struct {
	text string
	kind placeKind
	n    int64     // the offset, or by how many
	at   time.Time // the time
	ago  time.Duration
}

type placeKind int

const (
	placeNone placeKind = iota
	placeEarliest
	placeLatest
	placeOffset
	placeTime
	placeAgo
	placeBy
)

// toFlag is --to.
type toFlag struct{ *place }

func (f toFlag) Set(text string) error {
	p := place{text: text}
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case text == "earliest":
		p.kind = placeEarliest
	case text == "latest":
		p.kind = placeLatest
	case err == nil && n >= 0:
		p.kind, p.n = placeOffset, n
	case err == nil:
		return fmt.Errorf("is not an offset; to go back by a number of records write --by %s", text)
	default:
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			p.kind, p.at = placeTime, at
			break
		}
		ago, err := settings.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("is not earliest, latest, an offset such as 1200, a time such as 2026-01-31T12:00:00Z, or a time span such as 90m or 2d, which is that long ago")
		}
		p.kind, p.ago = placeAgo, ago
	}
	*f.place = p
	return nil
}

func (f toFlag) String() string { return f.text }
func (toFlag) Type() string     { return "place" }

// byFlag is --by.
type byFlag struct{ *place }

func (f byFlag) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n == 0 {
		return fmt.Errorf("is not a number of records such as -100, which goes back, or +100, which skips")
	}
	*f.place = place{text: text, kind: placeBy, n: n}
	return nil
}

func (f byFlag) String() string { return f.text }
func (byFlag) Type() string     { return "records" }

// resolved is a place as the brokers know it.
type resolved struct {
	place
	byTime kadm.ListedOffsets
}

// moment is the time that a place stands for; ok is false where it is none. It is never before 1970: as negative times Kafka takes
// its names for places, and -1, a millisecond before, is the end of the log.
func (p place) moment(now time.Time) (at time.Time, ok bool) {
	switch p.kind {
	case placeTime:
		at = p.at
	case placeAgo:
		at = now.Add(-p.ago).Truncate(time.Millisecond)
	default:
		return at, false
	}
	if at.UnixMilli() < 0 {
		at = time.UnixMilli(0).UTC()
	}
	return at, true
}

// resolve asks the brokers for the offsets of a time. A time span is counted from now, by the clock of this machine.
func (p place) resolve(ctx context.Context, adm *kadm.Client, now time.Time, topics []string) (resolved, error) {
	r := resolved{place: p}
	at, ok := p.moment(now)
	if !ok {
		return r, nil
	}
	r.at = at
	var err error
	if r.byTime, err = adm.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topics...); err != nil {
		return r, fmt.Errorf("list the offsets at %s: %w", r.at.Format(time.RFC3339), err)
	}
	return r, nil
}

// in is the offset of the place in a partition, within its log, and what is to be said of it.
func (r resolved) in(p *partitionStatus) (to int64, remark string, err error) {
	start, end := *p.Start, *p.End
	switch r.kind {
	case placeEarliest:
		return start, "", nil
	case placeLatest:
		return end, "", nil
	case placeOffset:
		to = r.n
	case placeBy:
		if p.Committed == nil {
			return 0, "", fmt.Errorf("%s[%d]: the group has no commit there to count from; use --to", p.Topic, p.Partition)
		}
		c := *p.Committed
		if r.n > end-c { // c + n may be more than there are numbers
			return end, fmt.Sprintf("%s from there lies beyond the end of the log", r.text), nil
		}
		to = c + r.n
	default:
		o, ok := r.byTime.Lookup(p.Topic, p.Partition)
		if ok && o.Err != nil {
			return 0, "", fmt.Errorf("%s[%d]: the offset at %s: %w", p.Topic, p.Partition, r.text, o.Err)
		}
		if !ok || o.Offset < 0 || o.Offset >= end {
			return end, "no record is as late", nil
		}
		return max(o.Offset, start), "", nil
	}
	switch {
	case to < start:
		return start, fmt.Sprintf("%s lies before the start of the log", count(to)), nil
	case to > end:
		return end, fmt.Sprintf("%s lies beyond the end of the log", count(to)), nil
	}
	return to, "", nil
}
