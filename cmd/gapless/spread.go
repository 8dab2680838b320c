package main

import (
	"fmt"
	"io"
	"sort"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxCountedKeys bounds the memory for counting keys.
const maxCountedKeys = 1_000_000

// spread counts how records and keys spread over the partitions of a topic.
type spread struct {
	mu         sync.Mutex
	partitions map[int32]*partitionSpread
	keys       int
	incomplete bool // more keys than are counted
}

type partitionSpread struct {
	records, bytes int64
	keys           map[string]int64
}

// add counts a record that was acknowledged.
func (s *spread) add(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.partitions == nil {
		s.partitions = map[int32]*partitionSpread{}
	}
	p := s.partitions[r.Partition]
	if p == nil {
		p = &partitionSpread{keys: map[string]int64{}}
		s.partitions[r.Partition] = p
	}
	p.records++
	p.bytes += int64(len(r.Key) + len(r.Value))
	if r.Key == nil {
		return
	}
	if n, known := p.keys[string(r.Key)]; known {
		p.keys[string(r.Key)] = n + 1
	} else if s.keys < maxCountedKeys {
		p.keys[string(r.Key)] = 1
		s.keys++
	} else {
		s.incomplete = true
	}
}

// spreadReport is a spread in numbers.
type spreadReport struct {
	Topic      string            `json:"topic"`
	Produced   int64             `json:"produced"`
	Failed     int64             `json:"failed"`
	Seconds    float64           `json:"seconds"`
	Keys       int               `json:"keys"`
	Incomplete bool              `json:"keys_incomplete,omitempty"` // there were more keys than are counted
	Partitions []partitionReport `json:"partitions"`
}

type partitionReport struct {
	Partition     int32   `json:"partition"`
	Records       int64   `json:"records"`
	Bytes         int64   `json:"bytes"`
	Share         float64 `json:"share"` // of all records
	Keys          int     `json:"keys"`
	HottestKey    string  `json:"hottest_key,omitempty"`
	HottestShare  float64 `json:"hottest_share,omitempty"` // of the partition's records
	hottestNumber int64
}

// report sums up; partitions that got nothing are listed, too.
func (s *spread) report(topic string, partitions int) spreadReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	rep := spreadReport{Topic: topic, Keys: s.keys, Incomplete: s.incomplete}
	for _, p := range s.partitions {
		rep.Produced += p.records
	}
	for n := range int32(partitions) {
		row := partitionReport{Partition: n}
		if p := s.partitions[n]; p != nil {
			row.Records, row.Bytes, row.Keys = p.records, p.bytes, len(p.keys)
			row.Share = share(p.records, rep.Produced)
			for k, times := range p.keys {
				if times > row.hottestNumber || times == row.hottestNumber && k < row.HottestKey {
					row.HottestKey, row.hottestNumber = k, times
				}
			}
			row.HottestShare = share(row.hottestNumber, p.records)
			if !utf8.ValidString(row.HottestKey) {
				row.HottestKey = strconv.QuoteToASCII(row.HottestKey)
			}
		}
		rep.Partitions = append(rep.Partitions, row)
	}
	sort.Slice(rep.Partitions, func(i, j int) bool { return rep.Partitions[i].Partition < rep.Partitions[j].Partition })
	return rep
}

func share(part, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(part*10_000/all) / 10_000
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + "%" }

// printTable prints the spread for people.
func (rep spreadReport) printTable(w io.Writer) error {
	t := newTable()
	t.AppendHeader(table.Row{"PARTITION", "RECORDS", "SHARE", "BYTES", "KEYS", "HOTTEST KEY", "OF PARTITION"})
	for _, p := range rep.Partitions {
		hottest := ""
		if p.hottestNumber > 0 {
			hottest = percent(p.HottestShare)
		}
		t.AppendRow(table.Row{p.Partition, count(p.Records), percent(p.Share), count(p.Bytes), count(int64(p.Keys)), printable(p.HottestKey), hottest})
	}
	t.SetColumnConfigs(rightAligned(1, 2, 3, 4, 5, 7))
	_, err := fmt.Fprintln(w, t.Render())
	if err == nil && rep.Incomplete {
		_, err = fmt.Fprintf(w, "Keys beyond the first %s are not counted.\n", count(maxCountedKeys))
	}
	return err
}

// printable is s without what would disturb a terminal.
func printable(s string) string {
	const most = 40
	if q := strconv.Quote(s); q != `"`+s+`"` {
		s = q
	}
	if r := []rune(s); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return s
}

// newTable is a table without lines: easy to read, to grep and to cut.
func newTable() table.Writer {
	t := table.NewWriter()
	s := table.StyleDefault
	s.Options = table.OptionsNoBordersAndSeparators
	s.Box.PaddingLeft, s.Box.PaddingRight = "", "  "
	s.Format.Header = text.FormatDefault
	t.SetStyle(s)
	t.SuppressTrailingSpaces()
	return t
}

func rightAligned(columns ...int) []table.ColumnConfig {
	var cs []table.ColumnConfig
	for _, n := range columns {
		cs = append(cs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	return cs
}
