package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"
)

// sample is one look at the group and at each of its members.
type sample struct {
	Type    string         `json:"type"` // "sample"
	At      float64        `json:"at"`   // seconds since the start of the load
	Sent    int            `json:"sent"`
	Handled int            `json:"handled"`
	Lag     int64          `json:"lag"` // -1: nobody answered
	Members []memberSample `json:"members"`
}

type memberSample struct {
	Life string `json:"life"`
	answer
	Store int64 `json:"store_bytes"` // of the files in the store's directory but its logs
	Log   int64 `json:"log_bytes"`   // of the logs
}

// takeSamples takes one at each interval's end, until ctx ends.
func (s *soak) takeSamples(ctx context.Context, progress io.Writer) error {
	heapTaken := false
	for i := 1; ; i++ {
		t := time.NewTimer(time.Until(s.began.Add(time.Duration(i) * s.o.every)))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		s.sampleNow(ctx, progress)
		if !heapTaken && time.Since(s.began) >= warmUp(s.o.duration) {
			heapTaken = true
			if err := s.profile(ctx, "heap-begin.pb.gz"); err != nil {
				return err
			}
		}
	}
}

// profile writes what is on member A's heap.
func (s *soak) profile(ctx context.Context, name string) error {
	s.mu.Lock()
	m := s.members[0]
	s.mu.Unlock()
	path, err := filepath.Abs(filepath.Join(s.o.out, name))
	if err != nil {
		return err
	}
	_, err = m.tell(ctx, order{Heap: path})
	return err
}

// lagWithin is how long the broker may take to say what the lag is: during its restart nobody answers.
const lagWithin = 3 * time.Second

func (s *soak) sampleNow(ctx context.Context, progress io.Writer) {
	at := time.Since(s.began)
	x := sample{Type: "sample", At: at.Seconds(), Lag: -1}
	for _, m := range s.present() {
		a, err := m.tell(ctx, order{})
		if err != nil { // it has just been killed, or has left; else its end fails the run
			continue
		}
		of := memberSample{Life: m.name, answer: a}
		of.Store, of.Log = bytesIn(m.store)
		x.Members = append(x.Members, of)
	}
	asking, cancel := context.WithTimeout(ctx, lagWithin)
	defer cancel()
	if lag, err := s.lag(asking); err == nil {
		x.Lag = lag
	}
	c := s.ledger.now()
	x.Sent, x.Handled = c.Records, c.Handled
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.samples = append(s.samples, x)
	err := s.out.Encode(x)
	s.mu.Unlock()
	if err != nil {
		s.fail(fmt.Errorf("write a sample: %w", err))
	}
	l, _ := s.ledger.latencyOf(int(at/s.o.every) - 1)
	_, _ = fmt.Fprintf(progress, "%8s  sent %d, handled %d, lag %d, p50 %.1f ms, p99 %.1f ms", at.Round(time.Second), x.Sent, x.Handled, x.Lag, l.P50, l.P99)
	for _, m := range x.Members {
		_, _ = fmt.Fprintf(progress, "; %s %.0f MiB, heap %.1f MiB, %d goroutines, %d files", m.Life, mebibytes(m.RSS), mebibytes(m.Heap), m.Goroutines, m.Files)
		for what, problem := range m.Problems {
			_, _ = fmt.Fprintf(progress, " (%s: %s)", what, problem)
		}
	}
	_, _ = fmt.Fprintln(progress)
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// bytesIn is the size of a store's directory, without its logs and of these; files that go while it is looked at count or do not.
func bytesIn(dir string) (store, logs int64) {
	if dir == "" {
		return 0, 0
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // it has gone meanwhile
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // the same
		}
		if filepath.Ext(path) == ".log" {
			logs += info.Size()
		} else {
			store += info.Size()
		}
		return nil
	})
	return store, logs
}
