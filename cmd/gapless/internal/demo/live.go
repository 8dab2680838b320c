package demo

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// watching is the view while the demo runs.
type watching struct {
	stop chan struct{}
	wg   sync.WaitGroup
}

// watch shows what happens, until it is ended: a table that is redrawn in place on a terminal, and lines elsewhere.
func (d *demo) watch(out io.Writer) *watching {
	w := &watching{stop: make(chan struct{})}
	var v view = &lineView{out: out}
	every := time.Second
	if f, ok := out.(*os.File); ok && isTerminal(f) && !d.o.plain {
		v, every = &tableView{screen: newScreen(f), o: d.o}, 200*time.Millisecond
	}
	cam := newCamera(d)
	w.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		defer v.close()
		v.show(cam.snapshot())
		for {
			select {
			case <-w.stop:
				v.show(cam.snapshot())
				return
			case <-tick.C:
				v.show(cam.snapshot())
			}
		}
	})
	return w
}

func (w *watching) end() {
	close(w.stop)
	w.wg.Wait()
}

type view interface {
	show(snapshot)
	close()
}

// isTerminal says whether f can be drawn on. The old Windows console shows escapes as they are.
func isTerminal(f *os.File) bool {
	if os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" && os.Getenv("WT_SESSION") == "" {
		return false
	}
	return term.IsTerminal(int(f.Fd()))
}

// colorful says whether out wants color.
func colorful(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && isTerminal(f)
}

// lineView prints a line a second, and the story as it goes.
type lineView struct {
	out  io.Writer
	told int
}

func (v *lineView) show(s snapshot) {
	var b strings.Builder
	for ; v.told < len(s.story); v.told++ {
		e := s.story[v.told]
		fmt.Fprintf(&b, "%s %s\n", clock(e.at), e.text)
	}
	fmt.Fprintf(&b, "%s produced %s handled %s (%s/s) lag %s in flight %d retrying %d dead-lettered %d\n",
		clock(s.at), number(s.produced), number(s.handled), number(int64(s.rate)), number(s.lag), s.inFlight, s.retrying, s.dead)
	_, _ = io.WriteString(v.out, b.String()) // progress; the verdict's own write is checked
}

func (v *lineView) close() {}

// tableView draws a frame.
type tableView struct {
	screen *screen
	o      options
}

func (v *tableView) close() { v.screen.close() }

const (
	barWidth   = 40
	storyLines = 6
)

func (v *tableView) show(s snapshot) {
	width, height := v.screen.size()
	v.screen.draw(v.frame(s, height), width, height)
}

func (v *tableView) frame(s snapshot, height int) []row {
	head := []row{
		{styleBold, fmt.Sprintf("gapless demo   %s orders, %s, order %s, 2 x %s",
			number(s.total), count(v.o.partitions, "partition"), v.o.order, count(v.o.workers, "worker"))},
		{styleNone, fmt.Sprintf("%s %3d%%  %s  %s/s", bar(s), share(s), clock(s.at), number(int64(s.rate)))},
		{styleNone, fmt.Sprintf("produced %s  handled %s  lag %s  retrying %d  dead-lettered %d",
			number(s.produced), number(s.handled), number(s.lag), s.retrying, s.dead)},
		{},
		{styleBold, "partition  owner      lag  in flight  retrying    frontier   committed   rate/s"},
	}
	foot := []row{{}}
	for _, m := range s.members {
		foot = append(foot, m.row())
	}
	story := s.story[max(len(s.story)-storyLines, 0):]
	for i, e := range story {
		r := row{styleDim, clock(e.at) + "  " + e.text}
		if i == len(story)-1 {
			r.style = styleNone
		}
		foot = append(foot, r)
	}
	// On a small screen the table is cut, and then the story's beginning is.
	room := height - 1 - len(head) - len(foot)
	shown := s.partitions
	if len(shown) > room {
		shown = shown[:max(room-1, 0)]
	}
	frame := head
	for p, r := range shown {
		frame = append(frame, r.row(p))
	}
	if hidden := len(s.partitions) - len(shown); hidden > 0 {
		frame = append(frame, row{styleDim, fmt.Sprintf("    and %s more", number(hidden))})
	}
	return append(frame, foot...)
}

func (r *partitionRow) row(partition int) row {
	owner, style := r.owner, styleNone
	if owner == "" {
		owner, style = "-", styleDim
	}
	return row{style, fmt.Sprintf("%9d  %-5s %8s  %9d  %8d  %10s  %10s  %7s",
		partition, owner, number(r.lag), r.inFlight, r.retrying, number(r.frontier), number(r.committed), number(int64(r.rate)))}
}

func (m *memberRow) row() row {
	switch {
	case m.killed:
		return row{styleBad, m.name + "  killed"}
	case !m.present:
		return row{styleDim, m.name + "  away"}
	}
	s := fmt.Sprintf("%s  %s, %d of %s busy", m.name, count(m.partitions, "partition"), m.running, count(m.limit, "worker"))
	if !m.healthy {
		return row{styleBad, s + ", unhealthy"}
	}
	return row{styleNone, s}
}

func share(s snapshot) int64 {
	return (s.handled + s.dead) * 100 / int64(s.total)
}

func bar(s snapshot) string {
	n := int(min(share(s), 100)) * barWidth / 100
	return strings.Repeat("█", n) + strings.Repeat("░", barWidth-n)
}
