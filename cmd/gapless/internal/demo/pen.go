package demo

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// The journal is one file that the handlers of all members append to: a line where an attempt begins, and one where it ends.
// It is the demo's evidence, so it is outside of everything that it judges:
//
//   - A line is one write with O_APPEND. What is written survives the process that is killed the next moment, and the order of the
//     lines is the order in which things happened, over all processes: it is the clock of the verdict.
//   - All lines have one length that divides a page, so that no kill can tear one.
const lineLength = 128

// pen writes a member's lines.
type pen struct {
	f     *os.File
	life  string    // who writes: the member and which of its lives
	begun time.Time // the demo's
	n     atomic.Int64
	fail  func(error)
}

func openPen(path, life string, begun time.Time, fail func(error)) (*pen, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &pen{f: f, life: life, begun: begun, fail: fail}, nil
}

// start writes that an attempt begins, and returns its number in this life.
func (p *pen) start(h handling) int64 {
	n := p.n.Add(1)
	b := p.line(lineStart, n)
	for _, v := range []int64{int64(h.Partition), h.Offset, int64(h.Order), int64(h.Seq), int64(h.Attempt)} {
		b = append(strconv.AppendInt(b, v, 10), ' ')
	}
	p.write(append(b, h.Key...))
	return n
}

func (p *pen) end(n int64, how outcome) { p.write(append(p.line(lineEnd, n), how...)) }

const (
	lineStart = 's'
	lineEnd   = 'e'
)

func (p *pen) line(what byte, n int64) []byte {
	b := make([]byte, 0, lineLength)
	b = append(append(append(b, what, ' '), p.life...), ' ')
	b = append(strconv.AppendInt(b, n, 10), ' ')
	return append(strconv.AppendInt(b, time.Since(p.begun).Microseconds(), 10), ' ')
}

func (p *pen) write(b []byte) {
	if len(b) > lineLength-1 {
		p.fail(fmt.Errorf("a line of the journal is too long: %s", b))
		return
	}
	for len(b) < lineLength-1 {
		b = append(b, ' ')
	}
	if _, err := p.f.Write(append(b, '\n')); err != nil {
		p.fail(fmt.Errorf("write the journal: %w", err))
	}
}

// parsed is a line as it was read.
type parsed struct {
	what byte
	life string
	n    int64
	at   time.Duration
	handling
	how outcome
}

func parseLine(line []byte) (x parsed, err error) {
	f := bytes.Fields(line)
	number := func(i int) int64 {
		if i >= len(f) {
			err = fmt.Errorf("the journal has a line of another form: %q", line)
			return 0
		}
		v, e := strconv.ParseInt(string(f[i]), 10, 64)
		if e != nil {
			err = fmt.Errorf("the journal has a line of another form: %q", line)
		}
		return v
	}
	x.n, x.at = number(2), time.Duration(number(3))*time.Microsecond
	if err != nil {
		return x, err
	}
	x.what, x.life = f[0][0], string(f[1])
	switch {
	case x.what == lineEnd && len(f) == 5:
		x.how = outcome(f[4])
	case x.what == lineStart && len(f) >= 9:
		x.handling = handling{
			Life: x.life, Partition: int32(number(4)), Offset: number(5), Order: int32(number(6)), Seq: int32(number(7)), Attempt: int(number(8)), At: x.at,
		}
		if len(f) > 9 {
			x.Key = string(f[9])
		}
	default:
		err = fmt.Errorf("the journal has a line of another form: %q", line)
	}
	return x, err
}
