package schedule

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// The headers of a message.
const (
	IDHeader   = "id"
	WorkHeader = "work"
)

// Message is a record to produce. Copies of an id are the same in all but key and place.
type Message struct {
	Partition int32 // modulo those that there are
	Key       []byte
	ID        string
	Work      Work
}

// Value is what it carries.
func (m *Message) Value() []byte { return []byte("payload of " + m.ID) }

// Work is what a handler does with a record.
type Work struct {
	Wait  time.Duration // so long, or until its context ends
	Stuck time.Duration // so long, whatever its context says
	Fails int           // so many first attempts of a process fail; -1: all
	Crash bool          // it ends the process
}

// String is the work in the form of the header.
func (w Work) String() string {
	var parts []string
	if w.Wait > 0 {
		parts = append(parts, "wait="+w.Wait.String())
	}
	if w.Stuck > 0 {
		parts = append(parts, "stuck="+w.Stuck.String())
	}
	if w.Fails != 0 {
		parts = append(parts, "fails="+strconv.Itoa(w.Fails))
	}
	if w.Crash {
		parts = append(parts, "crash")
	}
	return strings.Join(parts, " ")
}

// ParseWork reads what String has written.
func ParseWork(text string) (w Work, err error) {
	for part := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "wait":
			w.Wait, err = time.ParseDuration(value)
		case "stuck":
			w.Stuck, err = time.ParseDuration(value)
		case "fails":
			w.Fails, err = strconv.Atoi(value)
		case "crash":
			w.Crash = true
		default:
			err = fmt.Errorf("%q is not a kind of work; there are wait=, stuck=, fails= and crash", name)
		}
		if err != nil {
			return w, fmt.Errorf("work %q: %w", text, err)
		}
	}
	return w, nil
}

// Messages draws the records of a round, one burst after the other. Which they are depends on the round alone and on how many were drawn
// before.
type Messages struct {
	r     *Round
	rng   *rand.Rand
	sent  []string        // ids, in order
	crash map[string]bool // ids
}

// Messages begins to draw the round's records.
func (r *Round) Messages() *Messages {
	return &Messages{r: r, rng: rand.New(rand.NewPCG(r.Seed, 0x6d657373)), crash: map[string]bool{}}
}

// Next draws n more, for any of so many partitions. Those of a transaction that will be aborted are not copied later.
func (m *Messages) Next(n, partitions int, abort bool) []Message {
	out := make([]Message, n)
	for i := range out {
		msg := &out[i]
		msg.Partition = int32(m.rng.IntN(partitions))
		if m.r.Kind == Compacted || m.rng.IntN(5) > 0 {
			msg.Key = []byte("k" + strconv.Itoa(m.rng.IntN(m.r.Keys)))
		}
		if len(m.sent) > 0 && m.rng.IntN(1000) < m.r.Mix.Copies {
			back := 1 + m.rng.IntN(min(len(m.sent), 60)) // most soon after the first
			if m.rng.IntN(4) == 0 {
				back = 1 + m.rng.IntN(len(m.sent))
			}
			if id := m.sent[len(m.sent)-back]; !m.crash[id] { // each copy would be a crash loop of its own
				msg.ID, msg.Work = id, m.work(id)
				continue
			}
		}
		msg.ID = "id" + strconv.Itoa(len(m.sent))
		if abort {
			msg.ID = fmt.Sprintf("aborted%d-%d", len(m.sent), i)
			continue
		}
		m.sent = append(m.sent, msg.ID)
		msg.Work = m.work(msg.ID)
	}
	return out
}

// work depends on the id, so that a copy has the same; but only so many records of a round crash.
func (m *Messages) work(id string) (w Work) {
	f := fnv.New64a()
	_, _ = fmt.Fprint(f, m.r.Seed, id)
	rng := rand.New(rand.NewPCG(f.Sum64(), 1))
	mix := m.r.Mix
	w.Wait = time.Duration(rng.IntN(20)) * time.Millisecond
	if rng.IntN(1000) < mix.Slow {
		w.Wait = time.Duration(rng.IntN(1000)) * time.Millisecond
	}
	switch d := rng.IntN(1000); {
	case d < mix.Stuck:
		w.Stuck = m.r.Drain + time.Duration(rng.Int64N(int64(m.r.Drain)))
	case d < mix.Stuck+mix.Fail:
		w.Fails = 1 + rng.IntN(m.r.Retry.Attempts-1)
	case d < mix.Stuck+mix.Fail+mix.Poison:
		w.Fails = -1
	case d >= 980 && (m.crash[id] || len(m.crash) < mix.Crash):
		m.crash[id], w.Crash = true, true
	}
	return w
}
