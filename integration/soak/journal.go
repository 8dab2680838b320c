package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// word is what a line of the journal says.
type word byte

const (
	begun   word = 'b'
	handled word = 'h'
	failed  word = 'f' // to be tried again
	givenUp word = 'g' // the last attempt has failed
	cut     word = 'c' // the context had ended: the record is left to the next owner
)

// line is what a handler writes when it begins a record and when it ends it. All members append to one file, so the kernel puts the
// lines in order, and what was written stays written when a process is killed.
type line struct {
	what      word
	copy      bool
	life      uint16 // which process, by the order of their starts
	partition int32
	id        uint64
	offset    int64
	at        int64 // ns since 1970
}

// lineLength divides a page, so that no line crosses from one to the next, where a kill could tear it.
const lineLength = 32

func (l *line) bytes() []byte {
	b := make([]byte, 0, lineLength)
	b = append(b, byte(l.what), 0)
	if l.copy {
		b[1] = 1
	}
	b = binary.LittleEndian.AppendUint16(b, l.life)
	b = binary.LittleEndian.AppendUint32(b, uint32(l.partition))
	b = binary.LittleEndian.AppendUint64(b, l.id)
	b = binary.LittleEndian.AppendUint64(b, uint64(l.offset))
	return binary.LittleEndian.AppendUint64(b, uint64(l.at))
}

func lineOf(b []byte) (line, error) {
	l := line{
		what: word(b[0]), copy: b[1] == 1, life: binary.LittleEndian.Uint16(b[2:]),
		partition: int32(binary.LittleEndian.Uint32(b[4:])), id: binary.LittleEndian.Uint64(b[8:]),
		offset: int64(binary.LittleEndian.Uint64(b[16:])), at: int64(binary.LittleEndian.Uint64(b[24:])),
	}
	switch l.what {
	case begun, handled, failed, givenUp, cut:
		return l, nil
	}
	return l, fmt.Errorf("the journal has a line that nobody writes: %x", b)
}

// pen writes the lines of one member.
type pen struct {
	f    *os.File
	life uint16
	fail func(error)
}

func openPen(path string, life uint16, fail func(error)) (*pen, error) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	return &pen{f: f, life: life, fail: fail}, err
}

// write returns when the line is in the file. Without it nothing that follows could be proven, so an error ends the member.
func (p *pen) write(what word, r *engine.Record) {
	l := line{what: what, life: p.life, partition: r.Partition, offset: r.Offset, at: time.Now().UnixNano()}
	l.id, l.copy = identify(r.Headers)
	if _, err := p.f.Write(l.bytes()); err != nil {
		p.fail(fmt.Errorf("write to the journal: %w", err))
	}
}

// journal reads along.
type journal struct {
	f    *os.File
	read int64 // bytes
}

func newJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	return &journal{f: f}, err
}

// rest gives each line that was written since the last call to hear.
func (j *journal) rest(hear func(line)) error {
	st, err := j.f.Stat()
	if err != nil {
		return err
	}
	n := (st.Size() - j.read) / lineLength * lineLength
	r := bufio.NewReaderSize(io.NewSectionReader(j.f, j.read, n), 256<<10)
	j.read += n
	var b [lineLength]byte
	for ; n > 0; n -= lineLength {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return fmt.Errorf("read the journal: %w", err)
		}
		l, err := lineOf(b[:])
		if err != nil {
			return err
		}
		hear(l)
	}
	return nil
}
