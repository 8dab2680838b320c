package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A Section is the rows of one workload.
type Section struct {
	Title string
	Rows  []Row
}

// JSON writes a line a row.
func JSON(w io.Writer, sections []Section) error {
	enc := json.NewEncoder(w)
	for _, s := range sections {
		for i := range s.Rows {
			if err := enc.Encode(&s.Rows[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Table writes the table, under a line that says where it comes from.
func Table(w io.Writer, from string, sections []Section) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", from); err != nil {
		return err
	}
	for _, s := range sections {
		if err := s.write(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, `
Medians, with the least and the most of the runs in brackets. Records/s from the first handler's begin to the last one's end. CPU of
the library's own process: all of it by the number of records, and that after the first record alone. "Gapless is": records/s of
Gapless in the same order over this row's, and its CPU a record over this row's. "slots" is records/s x mean handler time / handlers at once.
`)
	return err
}

func (s *Section) write(w io.Writer) error {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	head := []string{"library", "arm", "records", "records/s", "(least - most)", "CPU ns a record", "(least - most)", "after 1st", "RSS MB"}
	if s.sleeps() {
		head = append(head, "handler ms", "slots", "peak")
	}
	lines := [][]string{append(head, "Gapless is", "complete")}
	for i := range s.Rows {
		lines = append(lines, s.line(&s.Rows[i]))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(t, strings.Join(line, "\t")); err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n%s", s.Title, text.String())
	return err
}

// line is a row's line of the table.
func (s *Section) line(row *Row) []string {
	line := []string{row.Library, row.Mode, count(row.Records)}
	if row.Runs == 0 {
		line = append(line, "-", "", "-", "", "-", "-")
		if s.sleeps() {
			line = append(line, "-", "-", "-")
		}
		return append(line, "", row.verdict())
	}
	n := float64(row.Records)
	after := "-"
	if row.CPUAfter != nil {
		after = count(int64(*row.CPUAfter))
	}
	line = append(line,
		count(int64(row.Rate)), fmt.Sprintf("(%s - %s)", rate(n, row.SecondsMax), rate(n, row.SecondsMin)),
		count(int64(row.CPU)), fmt.Sprintf("(%s - %s)", count(int64(row.CPUMin)), count(int64(row.CPUMax))),
		after, fmt.Sprintf("%.0f", row.RSS))
	if s.sleeps() {
		line = append(line, fmt.Sprintf("%.2f", row.HandlerMS), fmt.Sprintf("%.0f %%", 100*row.SlotsFull), fmt.Sprint(row.Peak))
	}
	return append(line, s.against(row), row.verdict())
}

func (s *Section) sleeps() bool {
	for i := range s.Rows {
		if s.Rows[i].InFlight > 0 {
			return true
		}
	}
	return false
}

// against compares the Gapless row of the same order with a row.
func (s *Section) against(row *Row) string {
	if row.Library == gapless {
		return ""
	}
	for i := range s.Rows {
		g := &s.Rows[i]
		if g.Library == gapless && g.Mode == row.Order && g.Runs > 0 && row.Rate > 0 && row.CPU > 0 {
			return fmt.Sprintf("%.2fx, CPU %.2fx", g.Rate/row.Rate, g.CPU/row.CPU)
		}
	}
	return "-"
}

const gapless = "gapless"

// verdict is the last column: whether all runs were complete, and if not, why.
func (row *Row) verdict() string {
	switch {
	case row.Missing:
		return "not run: " + row.Why
	case !row.Complete:
		return fmt.Sprintf("NO, %d of %d runs: %s", row.Of-row.Runs, row.Of, row.Why)
	case row.Counted:
		return fmt.Sprintf("yes (%d, by count)", row.Runs)
	}
	return fmt.Sprintf("yes (%d)", row.Runs)
}

func rate(records, seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return count(int64(records / seconds))
}

// count writes a number with commas.
func count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
