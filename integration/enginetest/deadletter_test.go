package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/engine"
)

// C1, C6: a record that fails twice and then succeeds is settled by its third attempt. While it waits, nothing passes it in
// the commit, its key's later records wait with it, and other keys go on.
func TestRetriedUntilItSucceeds(t *testing.T) {
	w := newWorld(t, 1)
	w.produce(0, "a=0", "flaky=1", "b=2", "flaky=3", "c=4")
	l := w.ledger()
	var attempts []int // of the one record that fails; its attempts never overlap
	last := w.newGate()
	c := w.config(l.keep(func(_ context.Context, r *engine.Record) error {
		if r.Offset == 3 && !l.has(0, 1) {
			return engine.End(fmt.Errorf("offset 3 started before offset 1 of its key was settled"))
		}
		if r.Offset != 1 {
			return nil
		}
		attempts = append(attempts, r.Attempt)
		if r.Attempt < 3 {
			return errBoom
		}
		last.wait(r)
		return nil
	}))
	c.Retry = engine.Retry{Attempts: 3, Base: 20 * time.Millisecond}
	m := w.start(c)
	last.reached(w, 1)
	l.reaches(3)
	w.eventually("the first record is committed", func() bool { return w.committed(0) == 1 })
	last.lift()
	l.reaches(5)
	w.noLagLeft()
	m.stop()
	l.eachOnce(5)
	if !slices.Equal(attempts, []int{1, 2, 3}) {
		t.Errorf("attempts %v", attempts)
	}
	m.quiet(engine.EventRetryExhausted, engine.EventHeld)
}

const rfc3339ms = "2006-01-02T15:04:05.000Z"

// originalTime is recent enough for the broker not to delete the record for its age.
var originalTime = time.Now().Add(-time.Hour).Truncate(time.Second).Add(123 * time.Millisecond)

// withDeadLetters makes a poisonous record in each of three partitions fail for good, and returns the dead letters.
func withDeadLetters(w *world, format engine.DeadLetterFormat) (*member, []*kgo.Record) {
	w.Helper()
	l := w.ledger()
	c := w.config(l.keep(func(_ context.Context, r *engine.Record) error {
		if strings.HasPrefix(string(r.Key), "poison") {
			return fmt.Errorf("can't digest it: %w", errBoom)
		}
		return nil
	}))
	c.Retry = engine.Retry{Attempts: 2, Base: 10 * time.Millisecond}
	c.DeadLetter = engine.DeadLetter{Format: format}
	m := w.start(c)
	for p := range w.parts {
		w.produce(p, "k=0", "k=1")
		poison := &kgo.Record{Topic: w.topic, Partition: p, Key: fmt.Appendf(nil, "poison%d", p), Value: []byte{0xff, byte(p)},
			Timestamp: originalTime, Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("abc")}, {Key: "nothing"}}}
		ctx, cancel := patient()
		if err := w.cl.ProduceSync(ctx, poison).FirstErr(); err != nil {
			w.Fatal(err)
		}
		cancel()
		w.produce(p, "k=3")
	}
	l.reaches(9)
	w.noLagLeft() // the offset passes a dead letter once the broker has acknowledged it
	letters := w.read(w.topic+".dlq", 3)
	m.stop()
	if n := m.count(engine.EventDeadLettered); n != 3 {
		w.Errorf("%d dead_lettered events", n)
	}
	return m, letters
}

// C1: a record that is given up is settled by its dead letter: the record as it was, in the partition of its number, with
// headers on the failure behind its own.
func TestDeadLetterHasTheRecordAndItsFailure(t *testing.T) {
	w := newWorld(t, 3)
	_, letters := withDeadLetters(w, engine.DeadLetterHeaders)
	for _, r := range letters {
		p := r.Partition
		if key := fmt.Sprintf("poison%d", p); string(r.Key) != key || string(r.Value) != string([]byte{0xff, byte(p)}) {
			t.Errorf("partition %d: key %q value %q", p, r.Key, r.Value)
		}
		if len(r.Headers) != 11 || r.Headers[0].Key != "trace" || string(r.Headers[0].Value) != "abc" || r.Headers[1].Key != "nothing" || r.Headers[1].Value != nil {
			t.Fatalf("partition %d: the record's own headers do not come first: %v", p, r.Headers)
		}
		got := map[string]string{}
		for _, h := range r.Headers[2:] {
			got[h.Key] = string(h.Value)
		}
		for key, want := range map[string]string{
			engine.HeaderTopic: w.topic, engine.HeaderPartition: fmt.Sprint(p), engine.HeaderOffset: "2",
			engine.HeaderTimestamp: originalTime.UTC().Format(rfc3339ms), engine.HeaderErrorType: "errors.errorString",
			engine.HeaderError: "can't digest it: boom", engine.HeaderAttempts: "2", engine.HeaderGroup: w.group,
		} {
			if got[key] != want {
				t.Errorf("partition %d: header %s = %q, not %q", p, key, got[key], want)
			}
		}
		failed, err := time.Parse(rfc3339ms, got[engine.HeaderFailedAt])
		if err != nil || time.Since(failed) > time.Minute {
			t.Errorf("header %s = %q: %v", engine.HeaderFailedAt, got[engine.HeaderFailedAt], err)
		}
		if d := r.Timestamp.Sub(failed); d < 0 || d > time.Millisecond {
			t.Errorf("the dead letter's timestamp %v is not that of the failure %v", r.Timestamp, failed)
		}
	}
}

// C1: the same as one JSON object. What is not UTF-8 survives as base64.
func TestDeadLetterEnvelope(t *testing.T) {
	w := newWorld(t, 3)
	_, letters := withDeadLetters(w, engine.DeadLetterEnvelope)
	for _, r := range letters {
		var env engine.Envelope
		if err := json.Unmarshal(r.Value, &env); err != nil {
			t.Fatal(err)
		}
		if env.Key == nil || *env.Key != fmt.Sprintf("poison%d", r.Partition) || env.KeyEncoding != "" {
			t.Errorf("key %v %q", env.Key, env.KeyEncoding)
		}
		if want := []string{"/wA=", "/wE=", "/wI="}[r.Partition]; env.Value == nil || *env.Value != want || env.ValueEncoding != "base64" {
			t.Errorf("value %v %q, not %s", env.Value, env.ValueEncoding, want)
		}
		failedAt := env.FailedAt
		env.Key, env.Value, env.ValueEncoding, env.FailedAt = nil, nil, "", ""
		want := engine.Envelope{Topic: w.topic, Partition: r.Partition, Offset: 2, Timestamp: originalTime.UTC().Format(rfc3339ms),
			ErrorType: "errors.errorString", Error: "can't digest it: boom", Attempts: 2, Group: w.group}
		if env != want {
			t.Errorf("envelope %+v, not %+v", env, want)
		}
		if _, err := time.Parse(rfc3339ms, failedAt); err != nil {
			t.Error(err)
		}
	}
}

// C1: the dead-letter topic is made before the first record is handled, with the source's partitions and the stated retention.
func TestDeadLetterTopicIsMadeAtStart(t *testing.T) {
	w := newWorld(t, 5)
	c := w.config(w.ledger().keep(nil))
	c.DeadLetter = engine.DeadLetter{Topic: "dead-{topic}", Retention: 96 * time.Hour}
	m := w.start(c)
	m.owns(5)
	ctx, cancel := patient()
	defer cancel()
	name := "dead-" + w.topic
	w.eventually("it has the partitions", func() bool { // the broker may not have heard of it yet, but its controller has
		details, err := w.adm.ListTopics(ctx, name)
		return err == nil && len(details[name].Partitions) == 5
	})
	configs, err := w.adm.DescribeTopicConfigs(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" && c.MaybeValue() != "345600000" {
			t.Errorf("retention.ms = %s", c.MaybeValue())
		}
	}
	m.stop()
}
