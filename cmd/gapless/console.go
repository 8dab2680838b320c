package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// console is stderr, shared by the log and by the live line at the bottom: what is written scrolls above the line.
type console struct {
	mu   sync.Mutex
	out  io.Writer
	live bool // out is a terminal that has room for a live line
	fd   int
	line string
}

func newConsole(out io.Writer) *console {
	c := &console{out: out}
	if isTerminal(out) {
		c.live, c.fd = true, int(out.(*os.File).Fd())
	}
	return c
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

const clearLine = "\r\x1b[K"

// Write puts p above the live line.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line == "" {
		return c.out.Write(p)
	}
	_, err := fmt.Fprintf(c.out, "%s%s%s", clearLine, p, c.line)
	return len(p), err
}

// width is the terminal's, as it is now.
func (c *console) width() int {
	width, _ := sizeOf(c.fd)
	return width
}

// sizeOf is a terminal's size, or a usual one where it has none.
func sizeOf(fd int) (width, height int) {
	width, height, err := term.GetSize(fd)
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// setLine replaces the live line; "" removes it.
func (c *console) setLine(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if width, _, err := term.GetSize(c.fd); err == nil && width > 1 && len(s) >= width {
		s = s[:width-1] // a line that wraps can't be taken back
	}
	c.line = s
	_, _ = io.WriteString(c.out, clearLine+s)
}

// notes are what a command says beside its log, in lines, or as JSON lines for machines.
type notes struct {
	out  io.Writer
	json bool
}

func (n notes) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if n.json {
		writeJSON(n.out, map[string]string{"event": "note", "text": text})
		return
	}
	_, _ = fmt.Fprintln(n.out, text)
}

// count is n with its thousands apart.
func count(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

func isTerminalReader(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
