package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// printJSON prints the verdict as one JSON object; what each kill cost, and what is wrong, goes to stderr.
func (f *findings) printJSON(stdout, stderr io.Writer) error {
	for i := range f.losses {
		l := &f.losses[i]
		if _, err := fmt.Fprintf(stderr, "%s, %s: %s redone, of %s that might have been: %s\n", l.name(), l.life, number(l.redone), number(l.allowed()), l.parts()); err != nil {
			return err
		}
	}
	for _, p := range f.problems {
		if _, err := fmt.Fprintln(stderr, "wrong:", p); err != nil {
			return err
		}
	}
	return json.NewEncoder(stdout).Encode(f.Verdict)
}

// print prints the verdict for people: a line for each thing that was proven, and how it was counted.
func (f *findings) print(out io.Writer, d *demo) error {
	p := printer{color: colorful(out)}
	p.line("")
	lost := fmt.Sprintf("%s produced = %s handled + %s dead-lettered", number(f.Produced), number(f.Handled), number(f.DeadLettered))
	if f.Lost != 0 {
		lost = fmt.Sprintf("%s of %s produced", number(f.Lost), number(f.Produced))
	}
	p.check(f.Lost == 0 && f.Produced == len(d.plan.records), "nothing lost", lost,
		"the topic read back, against the journal and the dead letters")
	if f.Duplicates == 0 {
		p.check(true, "no duplicates", "no record was handled twice but for a kill", "though B left and came back in the thick of it")
	} else {
		p.check(false, "no duplicates", number(f.Duplicates)+" successful handlings beyond one a record", "")
	}
	for i := range f.losses {
		f.losses[i].printTo(&p)
	}
	f.printCopies(&p)
	f.printOrder(&p)
	p.check(f.commitsBad == 0 && f.samples > 0, "no gaps", "nothing unfinished was ever committed, offset or window",
		fmt.Sprintf("offsets and windows read %s, against the journal", times(f.samples)))
	p.check(f.DeadLettered == f.poisonous, "dead letters", fmt.Sprintf("%d for %d poisonous records, after %s retries in all", f.DeadLettered, f.poisonous, number(f.Retried)),
		"the dead-letter topic read back: origins, keys and values")
	p.check(f.Lag == 0, "lag "+strconv.FormatInt(f.Lag, 10), "all of it is committed", "the group's offsets against the ends of the log")
	p.line("")
	for _, problem := range f.problems {
		p.styled(styleBad, "  wrong: "+problem)
	}
	if f.good() {
		p.styled(styleGood, "The verdict is good.")
	} else {
		p.styled(styleBad, "The verdict is bad.")
	}
	p.line(fmt.Sprintf("%s of work in handlers took %.1f s: up to %d ran at once.", period(f.work), f.Seconds, f.peak))
	if f.overtakes > 0 {
		p.line(fmt.Sprintf("%d%% of the records started before an earlier one of their partition was done.", f.overtakes*100/f.Produced))
	}
	_, err := io.WriteString(out, p.String())
	return err
}

// name says what kind of kill it was.
func (l *loss) name() string {
	if l.moved > 0 {
		return "kill -9, moved"
	}
	return "kill -9"
}

// parts says what was allowed.
func (l *loss) parts() string {
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{{l.inFlight, "in flight"}, {l.notDurable, "not yet durable"}, {l.notSaid, "not yet committed"}, {l.dropped, "dropped from a window"}} {
		if x.n > 0 || x.what == "in flight" {
			parts = append(parts, number(x.n)+" "+x.what)
		}
	}
	return strings.Join(parts, ", ")
}

// printTo prints what a kill cost.
func (l *loss) printTo(p *printer) {
	p.check(l.unexcused == 0 && l.redone <= l.allowed(), l.name(), fmt.Sprintf("%s redone, of %s that might have been", number(l.redone), number(l.allowed())), l.parts())
}

func (f *findings) printCopies(p *printer) {
	if f.sentTwice == 0 {
		return
	}
	found := fmt.Sprintf("%s orders were sent twice: %s handled once", number(f.sentTwice), number(f.copies.passed))
	how := fmt.Sprintf("%s handled again by the other member: its store did not know", number(f.copies.elsewhere))
	if f.copies.elsewhere == 0 {
		how = "though the partitions moved in between"
	}
	if f.BusinessDuplicates != 0 {
		how = number(f.BusinessDuplicates) + " handled again by a member whose store had their mark"
	}
	p.check(f.BusinessDuplicates == 0, "copies", found, how)
}

func (f *findings) printOrder(p *printer) {
	label, proof := "order kept", "by the journal's starts and ends, over retries and hand-overs"
	switch {
	case f.OrderViolations != 0:
		p.check(false, label, fmt.Sprintf("%s starts against the order by %s", number(f.OrderViolations), f.order), proof)
	case engine.Order(f.order) == engine.OrderUnordered:
		p.note("unordered", "no order was promised, so none is judged", "")
	case engine.Order(f.order) == engine.OrderPartition:
		p.check(true, label, "each partition one after the other", proof)
	default:
		p.check(true, label, fmt.Sprintf("each of %s keys in sequence, never two at once", number(f.keys)), proof)
	}
}

// The styles of lines.
const (
	styleNone = ""
	styleBold = "\x1b[1m"
	styleDim  = "\x1b[2m"
	styleGood = "\x1b[32m"
	styleBad  = "\x1b[31m"
	styleEnd  = "\x1b[0m"
)

// printer collects lines, with or without color.
type printer struct {
	strings.Builder
	color bool
}

func (p *printer) line(s string) { p.WriteString(s + "\n") }

func (p *printer) styled(style, s string) { p.line(p.style(style, s)) }

func (p *printer) style(style, s string) string {
	if !p.color || style == styleNone {
		return s
	}
	return style + s + styleEnd
}

func (p *printer) check(ok bool, what, found, how string) {
	mark := p.style(styleGood, "✓")
	if !ok {
		mark = p.style(styleBad, "✗")
	}
	p.entry(mark, what, found, how)
}

func (p *printer) note(what, found, how string) { p.entry("·", what, found, how) }

func (p *printer) entry(mark, what, found, how string) {
	p.line(fmt.Sprintf("%s %-14s %s", mark, what, found))
	if how != "" {
		p.line(p.style(styleDim, fmt.Sprintf("  %-14s %s", "", how)))
	}
}

// number writes n with its thousands apart.
func number[T int | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// count writes a number of things: one, or many (by default with an s).
func count(n int, one string, many ...string) string {
	switch {
	case n == 1:
		return "1 " + one
	case len(many) > 0:
		return number(n) + " " + many[0]
	}
	return number(n) + " " + one + "s"
}

func times(n int) string { return count(n, "time") }

// period is a duration as people say it.
func period(d time.Duration) string {
	switch {
	case d >= 2*time.Minute:
		return fmt.Sprintf("%.0f minutes", d.Minutes())
	case d >= 2*time.Second:
		return fmt.Sprintf("%.0f seconds", d.Seconds())
	}
	return d.Round(time.Millisecond).String()
}

// clock is the time since the start, as m:ss.t.
func clock(d time.Duration) string {
	t := d.Milliseconds() / 100
	return fmt.Sprintf("%d:%02d.%d", t/600, t/10%60, t%10)
}
