package engine

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The headers of a dead letter, appended after those that the record had: where a name occurs twice, the last one counts.
// Values are ASCII, integers decimal, times RFC 3339 in UTC with milliseconds.
const (
	HeaderTopic     = "original_topic"
	HeaderPartition = "original_partition"
	HeaderOffset    = "original_offset"
	HeaderTimestamp = "original_timestamp"
	HeaderErrorType = "error_type"
	HeaderError     = "error_message"
	HeaderFailedAt  = "failed_at"
	HeaderAttempts  = "attempts"
	HeaderGroup     = "consumer_group"
	// HeaderOmitted is set to "value" where the record was too large for the dead-letter topic, so that only its address and
	// headers on the failure are there; the record is still at its origin, as long as that keeps it.
	HeaderOmitted = "omitted"
)

const rfc3339ms = "2006-01-02T15:04:05.000Z07:00"

// Envelope is the JSON form of a dead letter (DeadLetterEnvelope). Key and value are text where they are UTF-8, else base64
// with their encoding named; null stays null.
type Envelope struct {
	Topic         string  `json:"original_topic"`
	Partition     int32   `json:"original_partition"`
	Offset        int64   `json:"original_offset"`
	Timestamp     string  `json:"original_timestamp"`
	ErrorType     string  `json:"error_type"`
	Error         string  `json:"error_message"`
	FailedAt      string  `json:"failed_at"`
	Attempts      int     `json:"attempts"`
	Group         string  `json:"consumer_group"`
	Key           *string `json:"original_key"`
	KeyEncoding   string  `json:"original_key_encoding,omitempty"`
	Value         *string `json:"original_value"`
	ValueEncoding string  `json:"original_value_encoding,omitempty"`
	Omitted       string  `json:"omitted,omitempty"`
}

// deadLetter makes the dead letter of a record. Its own timestamp is that of the failure: retention goes by it, and a copied
// old one would be deleted at the next check.
func (c *Config) deadLetter(ep *epoch, r *kgo.Record, err error, attempts int, now time.Time, omit bool) (*kgo.Record, error) {
	out := &kgo.Record{
		Topic:     c.deadLetterTopic(ep.topic),
		Key:       r.Key,
		Timestamp: now,
		Partition: ep.partition,
		Context:   samePartition,
	}
	if c.DeadLetter.Format == DeadLetterEnvelope {
		env := Envelope{
			Topic: ep.topic, Partition: ep.partition, Offset: r.Offset, Timestamp: r.Timestamp.UTC().Format(rfc3339ms),
			ErrorType: errorType(err), Error: errorText(err), FailedAt: now.UTC().Format(rfc3339ms), Attempts: attempts, Group: c.Group,
		}
		if omit {
			env.Omitted = "value"
			out.Key = nil
		} else {
			env.Key, env.KeyEncoding = textOf(r.Key)
			env.Value, env.ValueEncoding = textOf(r.Value)
			out.Headers = r.Headers
		}
		value, err := json.Marshal(env)
		out.Value = value
		return out, err
	}
	if !omit {
		out.Value = r.Value
		out.Headers = append(out.Headers, r.Headers...)
	} else {
		out.Key = nil
	}
	add := func(key, value string) {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: key, Value: []byte(ascii(value))})
	}
	add(HeaderTopic, ep.topic)
	add(HeaderPartition, strconv.Itoa(int(ep.partition)))
	add(HeaderOffset, strconv.FormatInt(r.Offset, 10))
	add(HeaderTimestamp, r.Timestamp.UTC().Format(rfc3339ms))
	add(HeaderErrorType, errorType(err))
	add(HeaderError, errorText(err))
	add(HeaderFailedAt, now.UTC().Format(rfc3339ms))
	add(HeaderAttempts, strconv.Itoa(attempts))
	add(HeaderGroup, c.Group)
	if omit {
		add(HeaderOmitted, "value")
	}
	return out, nil
}

// textOf is b as text where it is UTF-8, else as base64.
func textOf(b []byte) (text *string, encoding string) {
	if b == nil {
		return nil, ""
	}
	s := string(b)
	if utf8.ValidString(s) {
		return &s, ""
	}
	s = base64.StdEncoding.EncodeToString(b)
	return &s, "base64"
}

// ascii escapes what is not printable ASCII.
func ascii(s string) string {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			q := strconv.QuoteToASCII(s)
			return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
		}
	}
	return s
}

const errorTextMax = 1000

func errorText(err error) string {
	s := err.Error()
	if len(s) > errorTextMax {
		s = strings.ToValidUTF8(s[:errorTextMax], "") + "..."
	}
	return s
}

// errorType is the type of the innermost error that is not a mere wrapping.
func errorType(err error) string {
	var p *PanicError
	if errors.As(err, &p) {
		return "panic"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
		}
		err = inner
	}
}

// writeDeadLetter writes the dead letter of a parked record; the record is settled only when it is acknowledged, and while it
// can't be written the partition holds.
func (e *Engine) writeDeadLetter(st *retryState) {
	ep := st.ep
	st.mu.Lock()
	if st.gone || st.writing {
		st.mu.Unlock()
		return
	}
	st.writing = true
	admitted := st.admitted
	st.mu.Unlock()
	if !admitted {
		admitted = e.breakers.admit(e, ep)
		st.mu.Lock()
		st.admitted, st.writing = admitted, admitted
		st.mu.Unlock()
	}
	if !admitted { // parked until the breaker is reset
		if phase(ep.phase.Load()) >= phaseDraining {
			e.letGo(st)
		}
		return
	}
	out, err := e.cfg.deadLetter(ep, st.rec, st.lastErr, st.attempts, time.Now(), st.omit)
	if err != nil {
		e.deadLetterFailed(st, err)
		return
	}
	e.side.Produce(context.Background(), out, func(_ *kgo.Record, err error) {
		switch {
		case err == nil:
			e.deadLettered(st)
		case tooLarge(err) && !st.omit:
			st.mu.Lock()
			st.omit, st.writing = true, false
			st.mu.Unlock()
			e.emit(Event{Name: EventDeadLetterCut, Topic: ep.topic, Partition: ep.partition, Offset: st.rec.Offset, Err: err,
				Hint: "the record is too large for the dead-letter topic; its address and the failure are written without key and value"})
			e.writeDeadLetter(st)
		default:
			e.deadLetterFailed(st, err)
		}
	})
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

func (e *Engine) deadLettered(st *retryState) {
	ep := st.ep
	e.emit(Event{Name: EventDeadLettered, Topic: ep.topic, Partition: ep.partition, Offset: st.rec.Offset, Err: st.lastErr, Count: int64(st.attempts)})
	if st.dlqTries > 0 {
		e.health.set("dead letter "+ep.topic, nil)
		e.resume(ep, stopDeadLetter)
	}
	e.complete(st, settledDeadLettered)
}

func (e *Engine) deadLetterFailed(st *retryState, err error) {
	ep := st.ep
	st.dlqTries++
	e.counts.deadLetterFailures.Add(1)
	wait := min(time.Second<<min(st.dlqTries-1, 5), 30*time.Second)
	e.health.set("dead letter "+ep.topic, err)
	if st.dlqTries == 1 || st.dlqTries%10 == 0 {
		e.emit(Event{Name: EventDeadLetterFailed, Topic: ep.topic, Partition: ep.partition, Offset: st.rec.Offset, Err: err, Count: int64(st.dlqTries),
			Hint: "the partition holds and the write is tried again with backoff; check the dead-letter topic, its ACLs and its size limit"})
	}
	e.stop(ep, stopDeadLetter, err)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.writing = false
	if st.gone {
		return
	}
	if phase(ep.phase.Load()) >= phaseDraining { // a drain waits for acknowledgements, not for the next try
		go e.letGo(st)
		return
	}
	st.timer = time.AfterFunc(wait, func() {
		st.mu.Lock()
		st.timer = nil
		gone := st.gone
		st.mu.Unlock()
		if !gone {
			e.writeDeadLetter(st)
		}
	})
}

// samePartition marks a dead letter for its partitioner: it goes to the partition that it names, where that exists.
var samePartition = context.WithValue(context.Background(), samePartitionKey{}, true)

type samePartitionKey struct{}

// deadLetterPartitioner partitions as the Java client does, but for dead letters.
func deadLetterPartitioner() kgo.Partitioner { return partitioner{kgo.StickyKeyPartitioner(nil)} }

type partitioner struct{ java kgo.Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &topicPartitioner{p.java.ForTopic(topic)}
}

type topicPartitioner struct{ java kgo.TopicPartitioner }

func marked(r *kgo.Record) bool {
	return r.Context != nil && r.Context.Value(samePartitionKey{}) != nil
}

func (p *topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return marked(r) || p.java.RequiresConsistency(r)
}

func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	if marked(r) && int(r.Partition) < n {
		return int(r.Partition)
	}
	return p.java.Partition(r, n)
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (p *topicPartitioner) OnNewBatch() {
	if b, ok := p.java.(kgo.TopicPartitionerOnNewBatch); ok {
		b.OnNewBatch()
	}
}
