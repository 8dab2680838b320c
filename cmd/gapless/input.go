package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/jsonl"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lines reads records from a stream, one a line.
type lines struct {
	json      bool
	separator string // between key and value; "" = no key
}

// read calls each for every line until the stream or ctx ends. The stream is read by a goroutine of its own, since nothing
// can interrupt a read: after ctx it is left behind, with the process about to end.
func (l *lines) read(ctx context.Context, in io.Reader, each func(*kgo.Record) error) error {
	type read struct {
		n    int
		line []byte
		err  error
	}
	came := make(chan read, 64)
	go func() {
		defer close(came)
		r := bufio.NewReaderSize(in, 64<<10)
		for n := 1; ; n++ {
			line, err := r.ReadBytes('\n')
			if len(line) > 0 || err != nil && !errors.Is(err, io.EOF) {
				select {
				case came <- read{n, line, err}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case c, more := <-came:
			if !more {
				return nil
			}
			if c.err != nil && !errors.Is(c.err, io.EOF) {
				return fmt.Errorf("stdin: %w", c.err)
			}
			r, err := l.parse(bytes.TrimSuffix(bytes.TrimSuffix(c.line, []byte("\n")), []byte("\r")))
			if err != nil {
				return fmt.Errorf("stdin, line %d: %w", c.n, err)
			}
			if r == nil {
				continue
			}
			if err := each(r); err != nil {
				return err
			}
		}
	}
}

// parse makes a record of a line; nil for an empty one among JSON lines.
func (l *lines) parse(line []byte) (*kgo.Record, error) {
	if l.json {
		if len(bytes.TrimSpace(line)) == 0 {
			return nil, nil
		}
		return jsonl.Parse(line)
	}
	if l.separator == "" {
		return &kgo.Record{Value: line}, nil
	}
	key, value, found := bytes.Cut(line, []byte(l.separator))
	if !found {
		return nil, fmt.Errorf("has no key: %q is not in it (--key-separator)", l.separator)
	}
	return &kgo.Record{Key: key, Value: value}, nil
}
