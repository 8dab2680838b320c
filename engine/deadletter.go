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
	for {
		st.mu.Lock()
		if st.gone || st.writing {
			st.mu.Unlock()
			return
		}
		if st.timer != nil { // a reset of the breaker comes before the next try
			st.timer.Stop()
		}
		st.writing = true
		admitted := st.admitted
		st.mu.Unlock()
		if admitted || e.breakers.admit(e, ep) {
			break
		}
		st.mu.Lock()
		st.writing = false
		st.mu.Unlock()
		if phase(ep.phase.Load()) >= phaseDraining {
			e.letGo(st)
			return
		}
		if e.breakers.open(ep.topic) { // its reset finds the record; one that came before this may have missed it
			return
		}
	}
	st.mu.Lock()
	st.admitted = true
	st.mu.Unlock()
	e.sendDeadLetter(st)
}

// sendDeadLetter hands the dead letter to the producer.
func (e *Engine) sendDeadLetter(st *retryState) {
	ep := st.ep
	out, err := e.cfg.deadLetter(ep, st.rec, st.lastErr, int(st.attempts.Load()), time.Now(), st.omit)
	var cl *kgo.Client
	if err == nil {
		cl, err = e.dead.get(&e.cfg)
	}
	if err != nil {
		e.deadLetterFailed(st, err)
		return
	}
	st.mu.Lock()
	if st.gone {
		st.mu.Unlock()
		return
	}
	ctx, cancel, entered := forRoom()
	st.cancel = cancel
	st.mu.Unlock()
	defer entered()
	cl.Produce(ctx, out, func(_ *kgo.Record, err error) {
		e.dead.failed(cl, err)
		switch err = refusedWrite("dead-letter topic", out.Topic, orNoRoom(ctx, err)); {
		case err == nil:
			e.deadLettered(st)
		case tooLarge(err) && !st.omit:
			st.omit = true
			e.emit(Event{Name: EventDeadLetterCut, Topic: ep.topic, Partition: ep.partition, Offset: st.rec.Offset, Err: err,
				Hint: "the record is too large for the dead-letter topic; its address and the failure are written without key and value"})
			go e.sendDeadLetter(st) // inside a promise it might wait for room that only the next one makes
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
	e.health.set("dead letter "+ep.topic, nil) // its topic could not be made, but it is there now
	e.emit(Event{Name: EventDeadLettered, Topic: ep.topic, Partition: ep.partition, Offset: st.rec.Offset, Err: st.lastErr, Count: int64(st.attempts.Load())})
	e.complete(st, settledDeadLettered)
}

func (e *Engine) deadLetterFailed(st *retryState, err error) {
	st.mu.Lock()
	st.writing = false
	st.mu.Unlock()
	e.writeFailed(st, err)
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
