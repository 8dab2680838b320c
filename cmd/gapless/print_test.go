package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

func someRecord(partition int32, offset int64) *engine.Record {
	return &engine.Record{Record: &kgo.Record{Topic: "t", Partition: partition, Offset: offset, Value: []byte(strings.Repeat("x", 200))}}
}

// recorder is a writer that counts its calls.
type recorder struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	writes int
	before func()
	err    error
}

func (w *recorder) Write(p []byte) (int, error) {
	if w.before != nil {
		w.before()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	if w.err != nil {
		return 0, w.err
	}
	return w.buf.Write(p)
}

func (w *recorder) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// Whole lines, once each, and a line is written when Handle has returned.
func TestPrinterIsWholeAndFlushed(t *testing.T) {
	out := &recorder{}
	p := &printer{out: out}
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 200 {
				if err := p.Handle(t.Context(), someRecord(int32(worker), int64(i))); err != nil {
					t.Error(err)
				}
				if i%50 == 0 && !strings.Contains(out.String(), fmt.Sprintf(`"partition":%d,"offset":%d,`, worker, i)) {
					t.Errorf("Handle returned before %d@%d was written", worker, i)
				}
			}
		})
	}
	wg.Wait()
	next := map[int32]int64{}
	lines := bufio.NewScanner(strings.NewReader(out.String()))
	n := 0
	for lines.Scan() {
		var r struct {
			Partition int32
			Offset    int64
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if r.Offset != next[r.Partition] {
			t.Fatalf("partition %d: offset %d after %d", r.Partition, r.Offset, next[r.Partition]-1)
		}
		next[r.Partition]++
		n++
	}
	if n != 16*200 {
		t.Errorf("%d lines, want %d", n, 16*200)
	}
}

// While one write is out, the lines of all others gather, and go out in the next one.
func TestPrinterGathers(t *testing.T) {
	inWrite, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	out := &recorder{before: func() { once.Do(func() { close(inWrite); <-goOn }) }}
	p := &printer{out: out}
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Handle(context.Background(), someRecord(0, 0)) })
	<-inWrite
	gathered := make(chan *printed, 20)
	for i := range 20 {
		wg.Go(func() {
			w, err := p.gather([]*engine.Record{someRecord(1, int64(i))})
			if err != nil {
				t.Error(err)
			}
			gathered <- w
			select {
			case <-w.lead:
				p.write(w)
			case <-w.done:
			}
		})
	}
	first := <-gathered
	for range 19 {
		if w := <-gathered; w != first {
			t.Error("a line went into another write")
		}
	}
	close(goOn)
	wg.Wait()
	if out.writes != 2 || strings.Count(out.String(), "\n") != 21 {
		t.Errorf("%d writes with %d lines, want 2 with 21", out.writes, strings.Count(out.String(), "\n"))
	}
}

// A stdout that is gone ends the engine: nothing counts as handled that was not written.
func TestPrinterFailure(t *testing.T) {
	gone := errors.New("broken pipe")
	p := &printer{out: &recorder{err: gone}}
	for range 3 {
		if err := p.Handle(t.Context(), someRecord(0, 0)); !errors.Is(err, gone) {
			t.Errorf("got %v, want %v", err, gone)
		}
	}
	if n := p.out.(*recorder).writes; n != 1 {
		t.Errorf("%d writes after the first failed", n-1)
	}
}
