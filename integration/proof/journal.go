package proof

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// Journal is what handlers write to. Each line is one Write, so that lines of several goroutines and processes do not mix in a file
// that was opened by OpenJournal, and are there before the handler goes on, whoever dies then.
type Journal struct {
	w  io.Writer
	id func(*engine.Record) string
}

// NewJournal writes to w, which must be safe for several goroutines. id is the business key of a record, empty for none; a nil id is none
// for all.
func NewJournal(w io.Writer, id func(*engine.Record) string) *Journal {
	if id == nil {
		id = func(*engine.Record) string { return "" }
	}
	return &Journal{w: w, id: id}
}

// OpenJournal appends to a file, which several processes of one machine may share. It makes the file where there is none. Lines come in
// the order in which they were written, and none is torn but the last of a process that was killed.
func OpenJournal(path string, id func(*engine.Record) string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return NewJournal(f, id), nil
}

// Close closes what the journal writes to, where that can be closed.
func (j *Journal) Close() error {
	if c, ok := j.w.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// write writes a line about a record. Where that fails the attempt must fail as well: what is not in the journal has not happened.
func (j *Journal) write(word Word, member string, r *engine.Record) error {
	owner := r.Owner()
	l := Line{
		Word: word, Nanos: time.Now().UnixNano(), Member: member, Generation: owner.Generation, Sequence: owner.Sequence,
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, ID: j.id(r),
	}
	if _, err := j.w.Write(l.Append(make([]byte, 0, 128))); err != nil {
		return fmt.Errorf("write to the journal: %w", err)
	}
	return nil
}

// Wrap has h write down what it begins and ends. member names the process and its life, without spaces: "m2.3" is the third life on the
// host m2.
func (j *Journal) Wrap(h engine.Handler, member string) engine.Handler {
	return engine.HandlerFunc(func(ctx context.Context, r *engine.Record) error {
		if err := j.write(Begun, member, r); err != nil {
			return err
		}
		word := Failed
		defer func() { // a panic is a failure, too
			if word == Failed {
				_ = j.write(Failed, member, r)
			}
		}()
		if err := h.Handle(ctx, r); err != nil {
			return err
		}
		word = Ended
		return j.write(Ended, member, r)
	})
}

// BatchHandler is a handler of batches that says which records have failed: an error for each record, or none at all. It is what WrapBatch
// takes, because the marks of Batch.Fail can't be read back.
type BatchHandler func(ctx context.Context, b *engine.Batch) (failed []error)

// WrapBatch is Wrap for batches. All of a batch begin together, and end together.
func (j *Journal) WrapBatch(h BatchHandler, member string) engine.BatchHandler {
	return engine.BatchHandlerFunc(func(ctx context.Context, b *engine.Batch) error {
		word := Begun
		for i, r := range b.Records {
			if err := j.write(word, member, r); err != nil {
				for _, r := range b.Records[:i] {
					_ = j.write(Failed, member, r)
				}
				return err
			}
			word = Along
		}
		done := false
		defer func() {
			if !done {
				for _, r := range b.Records {
					_ = j.write(Failed, member, r)
				}
			}
		}()
		failed := h(ctx, b)
		done = true
		for i, r := range b.Records {
			word := Ended
			if i < len(failed) && failed[i] != nil {
				word = Failed
				b.Fail(i, failed[i])
			}
			if err := j.write(word, member, r); err != nil {
				b.Fail(i, err)
			}
		}
		return nil
	})
}
