package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/jsonl"
	"github.com/gaplesshq/gapless/engine"
)

// printer writes records as JSON lines, whole lines only, and returns when they are written.
//
// A write a record would be a system call a record. Instead the lines of all that print at the same time go out together:
// while one of them writes, the others gather in a buffer, and one of those writes that next.
type printer struct {
	out io.Writer

	mu      sync.Mutex
	next    *printed // what is gathering; nil = nothing
	writing bool
	failed  error
}

// printed is the content of one write.
type printed struct {
	buf  bytes.Buffer
	lead chan struct{} // holds a token for the one who is to write it
	done chan struct{}
	err  error
}

// Handle prints a record.
func (p *printer) Handle(_ context.Context, r *engine.Record) error { return p.print(r) }

// HandleBatch prints a batch.
func (p *printer) HandleBatch(_ context.Context, b *engine.Batch) error { return p.print(b.Records...) }

func (p *printer) print(records ...*engine.Record) error {
	mine, err := p.gather(records)
	if err != nil {
		return err
	}
	select {
	case <-mine.lead:
		p.write(mine)
	case <-mine.done:
	}
	return mine.err
}

// gather adds lines to what is written next.
func (p *printer) gather(records []*engine.Record) (*printed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return nil, p.failed
	}
	if p.next == nil {
		p.next = &printed{lead: make(chan struct{}, 1), done: make(chan struct{})}
	}
	for _, r := range records {
		if err := jsonl.Append(&p.next.buf, r.Record); err != nil {
			return nil, engine.Permanent(err) // not seen: every record has a form in JSON
		}
	}
	if !p.writing {
		p.writing = true
		p.next.lead <- struct{}{}
	}
	return p.next, nil
}

// write writes w, and passes the lead to those who gathered meanwhile.
func (p *printer) write(w *printed) {
	p.mu.Lock()
	p.next, w.err = nil, p.failed // w is complete now
	p.mu.Unlock()
	if w.err == nil {
		if _, err := p.out.Write(w.buf.Bytes()); err != nil {
			// Nothing that follows could be printed, either; retries would only fill the dead-letter topic.
			w.err = engine.End(fmt.Errorf("stdout: %w", err))
		}
	}
	close(w.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = w.err
	if p.writing = p.next != nil; p.writing {
		p.next.lead <- struct{}{}
	}
}
