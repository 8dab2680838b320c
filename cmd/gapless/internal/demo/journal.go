package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// outcome is what an attempt came to.
type outcome string

const (
	outcomeOK      outcome = "ok"
	outcomeFailed  outcome = "failed"   // to be tried again
	outcomeGivenUp outcome = "given-up" // the last attempt: a dead letter
	outcomeCut     outcome = "cut"      // its context ended: the record is left to the next owner
	outcomeKilled  outcome = "killed"   // its process ended in the middle of it: there is no line of its end
)

// handling is one attempt at one record, as the handler saw it.
type handling struct {
	Partition int32         `json:"partition"`
	Offset    int64         `json:"offset"`
	Key       string        `json:"key"`
	Order     int32         `json:"order"` // the business id
	Seq       int32         `json:"seq"`   // its number in the key, from its value
	Attempt   int           `json:"attempt"`
	Life      string        `json:"life"` // A1 is the first process of member A
	Outcome   outcome       `json:"outcome"`
	Start     int64         `json:"start"` // by the journal's clock
	End       int64         `json:"end"`   // 0: it never returned
	At        time.Duration `json:"at_ns"` // since the demo's start
	Took      time.Duration `json:"took_ns"`
}

func (h *handling) ok() bool { return h.Outcome == outcomeOK }

// memberOf is whose life it is; a member keeps its store over its lives.
func memberOf(life string) string { return strings.TrimRight(life, "0123456789") }

// ticks is how far the clock moves with each line of the journal: what happens between two lines has room.
const ticks = 2

// journal reads along what the members write.
type journal struct {
	begun time.Time
	path  string
	f     *os.File
	holds func(order int32) bool // whether it is one of the stuck records

	mu      sync.Mutex
	read    int64 // lines
	err     error
	entries []handling
	open    map[attempt]int
	stuck   map[int]bool // entries that are open and hold a frontier
	done    []int64      // orders handled, by partition, for the live view
	handled []bool       // by order
	dead    map[int32]bool
}

// attempt names an entry that has not ended.
type attempt struct {
	life string
	n    int64
}

func newJournal(path string, records, partitions int, holds func(int32) bool) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &journal{
		begun: time.Now(), path: path, f: f, holds: holds, entries: make([]handling, 0, records+records/20), open: map[attempt]int{},
		stuck: map[int]bool{}, done: make([]int64, partitions), handled: make([]bool, records), dead: map[int32]bool{},
	}, nil
}

func (j *journal) close() { _ = j.f.Close() }

// catchUp reads what has been written since the last look. It returns the clock: all that happened before the call is in.
func (j *journal) catchUp() (clock int64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.read * ticks, j.err
	}
	st, err := j.f.Stat()
	if err != nil {
		return 0, err
	}
	lines := st.Size() / lineLength
	r := bufio.NewReaderSize(io.NewSectionReader(j.f, j.read*lineLength, (lines-j.read)*lineLength), 64<<10)
	var line [lineLength]byte
	for j.read < lines {
		if _, err := io.ReadFull(r, line[:]); err != nil {
			return 0, err
		}
		j.read++
		if err := j.add(line[:]); err != nil {
			j.err = err
			return j.read * ticks, err
		}
	}
	return j.read * ticks, nil
}

func (j *journal) add(line []byte) error {
	x, err := parseLine(line)
	if err != nil {
		return err
	}
	id := attempt{x.life, x.n}
	if x.what == lineStart {
		x.Start = j.read * ticks
		j.open[id] = len(j.entries)
		if j.holds(x.Order) {
			j.stuck[len(j.entries)] = true
		}
		j.entries = append(j.entries, x.handling)
		return nil
	}
	i, ok := j.open[id]
	if !ok {
		return errors.New("the journal has an end without a beginning: " + string(line))
	}
	delete(j.open, id)
	delete(j.stuck, i)
	h := &j.entries[i]
	h.End, h.Outcome, h.Took = j.read*ticks, x.how, x.at-h.At
	switch {
	case h.ok() && int(h.Order) < len(j.handled) && !j.handled[h.Order]:
		j.handled[h.Order] = true
		j.done[h.Partition]++
	case h.Outcome == outcomeGivenUp:
		j.dead[h.Order] = true
	}
	return nil
}

// killed ends what a life that was killed had begun: nobody else will. Its process must have ended. It returns the clock.
func (j *journal) killed(life string) (clock int64, err error) {
	clock, err = j.catchUp()
	clock++ // behind the last line, before the next one
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, i := range j.open {
		if id.life == life {
			h := &j.entries[i]
			h.End, h.Outcome, h.Took = clock, outcomeKilled, time.Since(j.begun)-h.At
			delete(j.open, id)
			delete(j.stuck, i)
		}
	}
	return clock, err
}

// holding is how long a record has been holding a frontier in a life, if one does.
func (j *journal) holding(life string) (longest time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.stuck {
		if h := &j.entries[i]; h.Life == life {
			longest = max(longest, time.Since(j.begun)-h.At)
		}
	}
	return longest
}

// began says whether a life has begun something in each of these partitions since a moment of the clock.
func (j *journal) began(life string, clock int64, partitions []int32) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	in := map[int32]bool{}
	for i := len(j.entries) - 1; i >= 0 && j.entries[i].Start > clock; i-- {
		if h := &j.entries[i]; h.Life == life {
			in[h.Partition] = true
		}
	}
	for _, p := range partitions {
		if !in[p] {
			return false
		}
	}
	return true
}

// now is the journal's clock, as far as it was read.
func (j *journal) now() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.read * ticks
}

// progress is how many orders of each partition were handled so far, and how many were given up.
func (j *journal) progress(into []int64) (dead int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	copy(into, j.done)
	return int64(len(j.dead))
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
