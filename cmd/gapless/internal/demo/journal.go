package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync"
	"time"
)

// handling is one attempt at one record, as the handler saw it.
type handling struct {
	Partition int32         `json:"partition"`
	Offset    int64         `json:"offset"`
	Key       string        `json:"key"`
	Seq       int32         `json:"seq"` // its number in the key, from its value
	Attempt   int           `json:"attempt"`
	Member    string        `json:"member"`
	OK        bool          `json:"ok"`
	Start     int64         `json:"start"` // by the journal's clock
	End       int64         `json:"end"`   // 0: it never returned
	At        time.Duration `json:"at_ns"` // since the demo's start
	Took      time.Duration `json:"took_ns"`
}

// journal is what the handlers write down. Its clock is a counter of starts and ends: it orders all of them exactly, where
// two readings of the wall clock may be equal.
type journal struct {
	mu      sync.Mutex
	begun   time.Time
	clock   int64
	entries []handling
	running int
	peak    int
	done    []int64 // successes by partition, for the live view
}

func newJournal(records, partitions int) *journal {
	return &journal{begun: time.Now(), entries: make([]handling, 0, records+records/50), done: make([]int64, partitions)}
}

func (j *journal) start(h handling) (i int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clock++
	h.Start, h.At = j.clock, time.Since(j.begun)
	j.entries = append(j.entries, h)
	j.running++
	j.peak = max(j.peak, j.running)
	return len(j.entries) - 1
}

func (j *journal) end(i int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.clock++
	h := &j.entries[i]
	h.End, h.OK, h.Took = j.clock, ok, time.Since(j.begun)-h.At
	j.running--
	if ok {
		j.done[h.Partition]++
	}
}

// now is the journal's clock.
func (j *journal) now() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.clock
}

// progress is how many records of each partition were handled so far.
func (j *journal) progress(into []int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	copy(into, j.done)
}

// all is every entry so far.
func (j *journal) all() []handling {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// write keeps the journal as JSON lines.
func (j *journal) write(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := bufio.NewWriter(f)
	enc := json.NewEncoder(b)
	for _, h := range j.all() {
		if err := enc.Encode(h); err != nil {
			return err
		}
	}
	return b.Flush()
}
