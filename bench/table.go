package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// column is one of the table's.
type column struct {
	head string
	show func(r *Result) string
	want func(r *Result) bool // somebody has to, for the column to be there; nil = always
}

var columns = []column{
	{"records/s", func(r *Result) string { return figure(r.Rate.Median) }, nil},
	{"spread", func(r *Result) string { return figure(r.Rate.Least) + ".." + figure(r.Rate.Most) }, func(r *Result) bool { return r.Rate.Rounds > 1 }},
	{"bound", func(r *Result) string { return figure(r.Bound.Rate) }, nil},
	{"by", func(r *Result) string { return r.Bound.By }, nil},
	{"of it", func(r *Result) string { return percent(r.Rate.Median, r.Bound.Rate) }, nil},
	{"cpu/record", func(r *Result) string { return nanos(r.CPUPerRecord.Median) }, nil},
	{"allocs", func(r *Result) string { return fmt.Sprintf("%.3f", r.AllocsPerRecord.Median) }, nil},
	{"rss MB", func(r *Result) string { return fmt.Sprintf("%.0f", r.PeakRSS.Median/1e6) }, nil},
	{"in flight", func(r *Result) string { return figure(r.PeakInFlight.Median) }, (*Result).timed},
	{"handler", func(r *Result) string { return nanos(r.HandlerNanos.Median) }, (*Result).timed},
	{"slots full", func(r *Result) string { return fmt.Sprintf("%.2f", r.SlotsFull.Median) }, (*Result).timed},
	{"lag 0 in", func(r *Result) string { return seconds(r.LagZero.Median) }, func(r *Result) bool { return r.LagZero.Median > 0 }},
	{"p50", func(r *Result) string { return millis(r.P50.Median) }, hasLatency},
	{"p90", func(r *Result) string { return millis(r.P90.Median) }, hasLatency},
	{"p99", func(r *Result) string { return millis(r.P99.Median) }, hasLatency},
	{"p99.9", func(r *Result) string { return millis(r.P999.Median) }, hasLatency},
}

func hasLatency(r *Result) bool { return r.P50.Rounds > 0 }

// WriteTable writes a table for people: a line for each arm of each case, and below it what has to be known to read it.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nbroker: %s; %d rounds of %s in turn, medians", r.Machine, r.Broker, r.Rounds, seconds(r.Seconds))
	if r.InProcess {
		b.WriteString("; CPU and memory are this process's, with all that it does")
	}
	if r.Interrupted {
		b.WriteString("\ninterrupted: what was measured until then")
	}
	b.WriteString("\n\n")
	if len(r.Results) == 0 {
		b.WriteString("nothing was measured\n")
		_, err := io.WriteString(w, b.String())
		return err
	}
	names := varied(r.Cases)
	if len(names) == 0 {
		names = []string{"workers"}
	}
	var shown []column
	for _, c := range columns {
		for i := range r.Results {
			if c.want == nil || c.want(&r.Results[i]) {
				shown = append(shown, c)
				break
			}
		}
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	heads := append(append([]string(nil), names...), "arm")
	for _, c := range shown {
		heads = append(heads, c.head)
	}
	_, _ = fmt.Fprintln(t, strings.Join(heads, "\t")+"\t")
	var notes []string
	for i := range r.Results {
		one := &r.Results[i]
		var cells []string
		for _, n := range names {
			cells = append(cells, one.Case.Get(n))
		}
		cells = append(cells, string(one.Arm))
		for _, c := range shown {
			text := ""
			if c.want == nil || c.want(one) {
				if !one.Arm.lacks(c.head) {
					text = c.show(one)
				}
			}
			cells = append(cells, text)
		}
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
		for _, n := range one.Notes {
			notes = append(notes, fmt.Sprintf("%s, %s: %s", describe(one.Case, names), one.Arm, n))
		}
	}
	_ = t.Flush()
	if len(notes) > 0 {
		b.WriteString("\n" + strings.Join(notes, "\n") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lacks says that a column means nothing for an arm: the loops have no handler, and what bounds a case does not bound its controls.
func (a Arm) lacks(head string) bool {
	switch head {
	case "in flight", "handler", "slots full":
		return a == ArmBare || a == ArmDecode
	case "bound", "by", "of it":
		return a == ArmBare || a == ArmDecode || a == ArmGoroutines
	}
	return false
}

// count is a whole number with commas.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// figure is a number with three digits that count, and commas.
func figure(x float64) string {
	if x == 0 {
		return "0"
	}
	if a := math.Abs(x); a < 100 {
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(x)))-2)
	return count(int64(math.Round(x/unit) * unit))
}

func percent(x, of float64) string {
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 100*x/of)
}

// nanos is a length of time with three digits that count.
func nanos(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 1e3:
		return fmt.Sprintf("%.0fns", x)
	case x < 1e6:
		return strconv.FormatFloat(x/1e3, 'g', 3, 64) + "us"
	case x < 1e9:
		return strconv.FormatFloat(x/1e6, 'g', 3, 64) + "ms"
	}
	return seconds(x / 1e9)
}

func millis(x float64) string { return nanos(x * 1e6) }

func seconds(x float64) string {
	if x == 0 {
		return ""
	}
	return time.Duration(math.Round(x*100) / 100 * float64(time.Second)).Round(10 * time.Millisecond).String()
}
