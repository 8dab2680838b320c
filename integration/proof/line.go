package proof

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Word says what a line of the journal is about.
type Word byte

// The words.
const (
	Begun  Word = 'b' // a handler has begun a record
	Along  Word = 'a' // it has begun this one, too, in the batch of the one that it began before
	Ended  Word = 'e' // it has ended it with success
	Failed Word = 'f' // the attempt has failed, or was given up
)

// Line is one line of the journal, in the order of its fields:
//
//	b 1764460800000000000 m2.3 7/12 orders 3 4711 "key" "order-17"
//
// A record without a key or an id has - in their place.
type Line struct {
	Word       Word
	Nanos      int64  // Unix time, taken before the line was written
	Member     string // the process, and which of its lives: "m2.3"
	Generation int32  // of the group, when the partition was assigned
	Sequence   uint64 // of the assignment, within its process
	Topic      string
	Partition  int32
	Offset     int64
	Key        []byte // nil: none
	ID         string // the business key; empty: none

	Number int // in the journal, from 1; not written
}

// At is when it was written.
func (l *Line) At() time.Time { return time.Unix(0, l.Nanos) }

// Append appends the line with its newline.
func (l *Line) Append(b []byte) []byte {
	b = append(b, byte(l.Word), ' ')
	b = strconv.AppendInt(b, l.Nanos, 10)
	b = append(b, ' ')
	b = append(b, l.Member...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(l.Generation), 10)
	b = append(b, '/')
	b = strconv.AppendUint(b, l.Sequence, 10)
	b = append(b, ' ')
	b = append(b, l.Topic...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(l.Partition), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, l.Offset, 10)
	b = append(b, ' ')
	if l.Key == nil {
		b = append(b, '-')
	} else {
		b = strconv.AppendQuote(b, string(l.Key))
	}
	b = append(b, ' ')
	if l.ID == "" {
		b = append(b, '-')
	} else {
		b = strconv.AppendQuote(b, l.ID)
	}
	return append(b, '\n')
}

// String is the line as it stands in the journal.
func (l *Line) String() string { return strings.TrimSuffix(string(l.Append(nil)), "\n") }

// ParseLine reads a line without its newline.
func ParseLine(text string) (l Line, err error) {
	fields := strings.SplitN(text, " ", 8)
	if len(fields) != 8 || len(fields[0]) != 1 {
		return l, errors.New("it has too few fields")
	}
	l.Word = Word(fields[0][0])
	switch l.Word {
	case Begun, Along, Ended, Failed:
	default:
		return l, fmt.Errorf("%q is not a, b, e or f", fields[0])
	}
	l.Member, l.Topic = fields[2], fields[4]
	generation, sequence, _ := strings.Cut(fields[3], "/")
	var errs [6]error
	l.Nanos, errs[0] = strconv.ParseInt(fields[1], 10, 64)
	l.Generation, errs[1] = parse32(generation)
	l.Sequence, errs[2] = strconv.ParseUint(sequence, 10, 64)
	l.Partition, errs[3] = parse32(fields[5])
	l.Offset, errs[4] = strconv.ParseInt(fields[6], 10, 64)
	errs[5] = l.parseNames(fields[7])
	return l, errors.Join(errs[:]...)
}

func parse32(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err
}

// parseNames reads the key and the id, each quoted or -.
func (l *Line) parseNames(text string) error {
	key, present, rest, err := parseName(text)
	if err != nil {
		return fmt.Errorf("the key: %w", err)
	}
	if present {
		l.Key = []byte(key)
	}
	rest, ok := strings.CutPrefix(rest, " ")
	if !ok {
		return errors.New("there is no id")
	}
	if l.ID, _, rest, err = parseName(rest); err != nil {
		return fmt.Errorf("the id: %w", err)
	}
	if rest != "" {
		return fmt.Errorf("%q follows the id", rest)
	}
	return nil
}

func parseName(text string) (name string, present bool, rest string, err error) {
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		return "", false, rest, nil
	}
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil {
		return "", false, "", err
	}
	name, err = strconv.Unquote(quoted)
	return name, true, text[len(quoted):], err
}

// ReadJournal reads lines to the end. A last line without its newline is what a killed process was about to write: its handler had not
// gone on, so the line counts as not written. Any other line that can't be read is an error, with its number.
func ReadJournal(r io.Reader) (lines []Line, err error) {
	in := bufio.NewReader(r)
	for number := 1; ; number++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, fmt.Errorf("read the journal: %w", err)
		}
		l, err := ParseLine(string(bytes.TrimSuffix(text, []byte("\n"))))
		if err != nil {
			return lines, fmt.Errorf("line %d of the journal is %q: %w", number, text, err)
		}
		l.Number = number
		lines = append(lines, l)
	}
}
