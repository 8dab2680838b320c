package store

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// line is one of the journal.
type line struct {
	word   byte // b: begun, e: ended, f: failed
	topic  string
	place  place
	id     string
	nanos  int64
	number int
}

type place struct {
	partition int
	offset    int64
}

// journal is the file that the handlers write to. Only the parent reads it.
type journal struct {
	path   string
	read   int64
	number int
}

func newJournal(t *testing.T) *journal {
	t.Helper()
	j := &journal{path: t.TempDir() + "/journal"}
	if err := os.WriteFile(j.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return j
}

// lineBytes is about what a line takes, so that lines can be counted by the size of the file.
func (j *journal) lineBytes(topic string) int64 { return int64(len(topic)) + 40 }

func (j *journal) size() int64 {
	info, err := os.Stat(j.path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// rest reads what the child wrote since the last call. A line that the kill has cut off was not written: its handler had not
// gone on. It is cut off, so that the next child begins a new one.
func (j *journal) rest() (lines []line, err error) {
	f, err := os.OpenFile(j.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw := make([]byte, j.size()-j.read)
	if _, err := f.ReadAt(raw, j.read); err != nil && len(raw) > 0 {
		return nil, err
	}
	whole := bytes.LastIndexByte(raw, '\n') + 1
	if whole < len(raw) {
		if err := f.Truncate(j.read + int64(whole)); err != nil {
			return nil, err
		}
	}
	j.read += int64(whole)
	for text := range strings.Lines(string(raw[:whole])) {
		j.number++
		fields := strings.Fields(text)
		if len(fields) != 6 {
			return nil, fmt.Errorf("line %d of the journal is %q", j.number, text)
		}
		p, err1 := strconv.Atoi(fields[2])
		o, err2 := strconv.ParseInt(fields[3], 10, 64)
		n, err3 := strconv.ParseInt(fields[5], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, fmt.Errorf("line %d of the journal is %q", j.number, text)
		}
		lines = append(lines, line{fields[0][0], fields[1], place{p, o}, strings.TrimPrefix(fields[4], "-"), n, j.number})
	}
	return lines, nil
}
