package demo

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// row is a line of a frame.
type row struct{ style, text string }

// screen redraws a frame in place, below what the terminal showed before.
type screen struct {
	f     *os.File
	drawn int // lines of the last frame
	width int // when it was drawn
	color bool
}

// The escapes. A terminal that knows synchronized output shows a frame at once; others ignore it.
const (
	syncBegin  = "\x1b[?2026h"
	syncEnd    = "\x1b[?2026l"
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearLine  = "\x1b[K" // from the cursor on
	clearBelow = "\x1b[J"
	clearAll   = "\x1b[2J\x1b[H"
)

func newScreen(f *os.File) *screen { return &screen{f: f, color: colorful(f)} }

func (s *screen) size() (width, height int) {
	w, h, err := term.GetSize(int(s.f.Fd()))
	if err != nil || w < 1 || h < 1 {
		return 80, 24
	}
	return w, h
}

// draw replaces the last frame. All of it is one write, each line is cut to the width and cleared behind its text only, so
// that nothing flickers or wraps.
func (s *screen) draw(frame []row, width, height int) {
	if most := max(height-1, 1); len(frame) > most {
		frame = frame[:most]
	}
	p := printer{color: s.color}
	p.WriteString(syncBegin + hideCursor)
	switch {
	case s.width != 0 && s.width != width: // the old lines may have wrapped: nobody knows where they are
		p.WriteString(clearAll)
	case s.drawn > 0:
		p.WriteString("\x1b[" + strconv.Itoa(s.drawn) + "A\r")
	}
	for _, r := range frame {
		text := r.text
		if runes := []rune(text); len(runes) > width {
			text = string(runes[:width])
		}
		p.WriteString(p.style(r.style, strings.TrimRight(text, " ")))
		if len([]rune(text)) < width { // behind a full line the cursor still stands on its last character
			p.WriteString(clearLine)
		}
		p.WriteString("\r\n")
	}
	p.WriteString(clearBelow + syncEnd)
	s.drawn, s.width = len(frame), width
	_, _ = s.f.WriteString(p.String()) // progress; the verdict's own write is checked
}

func (s *screen) close() { _, _ = s.f.WriteString(showCursor) }
