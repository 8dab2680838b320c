package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// letter is a dead letter as another client shows it; a pointer tells nothing from empty.
type letter struct {
	Key     *string   `json:"key"`
	Payload *string   `json:"payload"`
	Headers []*string `json:"headers"` // names and values in turn
}

func (l letter) String() string {
	show := func(s *string) string {
		if s == nil {
			return "nil"
		}
		return fmt.Sprintf("%q", *s)
	}
	var headers []string
	for _, h := range l.Headers {
		headers = append(headers, show(h))
	}
	return fmt.Sprintf("key %s value %s headers %s", show(l.Key), show(l.Payload), strings.Join(headers, " "))
}

// C1: what a dead letter holds is what clients read that know nothing of Gapless: kcat, and Java's console consumer, which is
// the only one where kcat can't be had. Key, value and headers are the record's own, nil where they were nil, and the headers on
// the failure are text.
func TestOtherClientsReadDeadLetters(t *testing.T) {
	w := newWorld(t, 1)
	c := w.config(func(context.Context, *engine.Record) error { return fmt.Errorf("can't digest: %w", errBoom) })
	c.Retry = engine.Retry{Attempts: 1}
	c.Order = engine.OrderPartition
	c.DeadLetter = engine.DeadLetter{}
	m := w.start(c)
	ctx, cancel := patient()
	defer cancel()
	if err := w.cl.ProduceSync(ctx,
		&kgo.Record{Topic: w.topic, Key: []byte("clé"), Value: []byte(`{"amount": 1}`), Headers: []kgo.RecordHeader{
			{Key: "trace", Value: []byte("abc")}, {Key: "trace", Value: []byte("again")}, {Key: "nothing"}}},
		&kgo.Record{Topic: w.topic},
		&kgo.Record{Topic: w.topic, Key: []byte{}, Value: []byte{}},
	).FirstErr(); err != nil {
		t.Fatal(err)
	}
	w.noLagLeft()
	m.stop()

	text := func(s string) *string { return &s }
	failure := func(offset string) []*string {
		return []*string{text(engine.HeaderTopic), &w.topic, text(engine.HeaderPartition), text("0"), text(engine.HeaderOffset), &offset,
			text(engine.HeaderErrorType), text("errors.errorString"), text(engine.HeaderError), text("can't digest: boom"),
			text(engine.HeaderAttempts), text("1"), text(engine.HeaderGroup), &w.group}
	}
	want := []letter{
		{text("clé"), text(`{"amount": 1}`), append([]*string{text("trace"), text("abc"), text("trace"), text("again"), text("nothing"), nil}, failure("0")...)},
		{nil, nil, failure("1")},
		{text(""), text(""), failure("2")},
	}
	check := func(t *testing.T, letters []letter) {
		t.Helper()
		if len(letters) != len(want) {
			t.Fatalf("%d letters: %v", len(letters), letters)
		}
		for i, got := range letters {
			got.Headers = slices.Clone(got.Headers)
			withoutTimes(t, &got)
			if got.String() != want[i].String() {
				t.Errorf("letter %d:\n%s\nnot\n%s", i, got, want[i])
			}
		}
	}
	t.Run("Java", func(t *testing.T) { check(t, lettersByJava(w, w.topic+".dlq", len(want))) })
	t.Run("kcat", func(t *testing.T) {
		letters, err := lettersByKcat(w, w.topic+".dlq", len(want))
		if errors.Is(err, kafkatest.ErrNoKcat) {
			t.Logf("read by Java's client alone: %v", err)
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		check(t, letters)
	})
}

// withoutTimes takes the headers away whose values no test can foresee.
func withoutTimes(t *testing.T, l *letter) {
	t.Helper()
	for _, name := range []string{engine.HeaderTimestamp, engine.HeaderFailedAt} {
		for i := 0; ; i += 2 {
			if i == len(l.Headers) {
				t.Errorf("no header %s: %v", name, l)
				break
			}
			if *l.Headers[i] == name {
				l.Headers = slices.Delete(l.Headers, i, i+2)
				break
			}
		}
	}
}

func lettersByKcat(w *world, topic string, n int) (letters []letter, err error) {
	ctx, cancel := patient()
	defer cancel()
	answer, err := kafkatest.Kcat(ctx, "-b", strings.Join(w.cluster.Brokers(), ","), "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", fmt.Sprint(n), "-J", "-q")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(answer) {
		var l letter
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return nil, fmt.Errorf("kcat says %q: %w", line, err)
		}
		letters = append(letters, l)
	}
	return letters, nil
}

// Marks that no test's text holds keep apart what Java's consumer prints.
const (
	fieldMark, headerMark, recordMark = "\x1e", "\x1f", "\x1d"
)

func lettersByJava(w *world, topic string, n int) (letters []letter) {
	w.Helper()
	args := []string{"--topic", topic, "--from-beginning", "--max-messages", fmt.Sprint(n)}
	for _, p := range []string{"print.headers=true", "print.key=true", "print.value=true",
		"key.separator=" + fieldMark, "headers.separator=" + headerMark, "line.separator=" + recordMark, "null.literal=nil!"} {
		args = append(args, "--formatter-property", p)
	}
	field := func(s string) *string {
		if s == "nil!" {
			return nil
		}
		return &s
	}
	for printed := range strings.SplitSeq(strings.TrimSpace(w.tool("consumer.ConsoleConsumer", args...)), recordMark) {
		fields := strings.Split(printed, fieldMark)
		if len(fields) != 3 {
			if printed != "" {
				w.Logf("Java says: %q", printed)
			}
			continue
		}
		l := letter{Key: field(fields[1]), Payload: field(fields[2])}
		for header := range strings.SplitSeq(fields[0], headerMark) {
			name, value, _ := strings.Cut(header, ":")
			l.Headers = append(l.Headers, &name, field(value))
		}
		letters = append(letters, l)
	}
	return letters
}

// Outputs with a key land on the partition that Java's producer chooses for it, so that both can write to one topic and its keys
// stay together. Records without a key have no place of their own.
func TestOutputsGoWhereJavasProducerPutsThem(t *testing.T) {
	const partitions = 7
	w := newWorld(t, 1)
	keys := []string{"", " ", "a", "order-1", "ключ", "鍵", "🔑", "e\u0301", "\u00e9", "\x01\x7f", strings.Repeat("long", 5000)}
	for i := range 500 {
		keys = append(keys, strings.Repeat(fmt.Sprintf("%c%d", 'a'+i%26, i), 1+i%9))
	}
	javas, mine := w.topic+"-java", w.topic+"-mine"
	w.cluster.CreateTopic(t, javas, partitions, nil)
	w.cluster.CreateTopic(t, mine, partitions, nil)

	var input strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&input, "%s\tv\n", key)
	}
	input.WriteString("nil!\tv\n")
	ctx, cancel := patient()
	defer cancel()
	if _, err := w.cluster.ToolWithInput(ctx, strings.NewReader(input.String()), "org.apache.kafka.tools.ConsoleProducer", w.bootstrapped([]string{"--topic", javas,
		"--reader-property", "parse.key=true", "--reader-property", "null.marker=nil!", "--request-timeout-ms", "30000"})...); err != nil {
		t.Fatal(err)
	}

	c := w.config(func(_ context.Context, r *engine.Record) error {
		for _, key := range keys {
			r.Emit(&kgo.Record{Topic: mine, Key: []byte(key), Value: []byte("v")})
		}
		r.Emit(&kgo.Record{Topic: mine, Value: []byte("v")})
		return nil
	})
	m := w.start(c)
	w.produce(0, "all")
	w.noLagLeft() // the outputs are acknowledged
	m.stop()

	theirs, ours := w.placed(javas, len(keys)+1), w.placed(mine, len(keys)+1)
	for key, partition := range theirs {
		if at, ok := ours[key]; !ok || at != partition {
			t.Errorf("key %.20q: Java's producer chose partition %d, ours %d (%v)", key, partition, at, ok)
		}
	}
	if used := slices.Compact(slices.Sorted(maps.Values(theirs))); len(used) != partitions {
		t.Errorf("the keys were spread over %v", used)
	}
}

// placed reads n records and says in which partition each key is. There is one without a key.
func (w *world) placed(topic string, n int) map[string]int32 {
	w.Helper()
	at := map[string]int32{}
	keyless := 0
	for _, r := range w.read(topic, n) {
		if r.Key == nil {
			keyless++
			continue
		}
		if was, ok := at[string(r.Key)]; ok && was != r.Partition {
			w.Errorf("%s: key %.20q is in partitions %d and %d", topic, r.Key, was, r.Partition)
		}
		at[string(r.Key)] = r.Partition
	}
	if keyless != 1 || len(at) != n-1 {
		w.Errorf("%s: %d keys, %d records without one", topic, len(at), keyless)
	}
	return at
}

// C2: transactions of Java's producer, committed and aborted in turn as chance will have it. Gapless handles what Java's client
// would read: under read committed each record once, in spite of the aborted copies, and under read uncommitted all of them. Either
// way the lag is 0 behind the markers. Transactions of Go's producer are in transactions_test.go.
func TestReadsJavasTransactions(t *testing.T) {
	w := newWorld(t, 1)
	const n, size = 150, 3 // that none of 50 transactions is aborted has a chance of 1 to 10^9
	source := w.topic + "-source"
	w.cluster.CreateTopic(t, source, 1, nil)
	var records []*kgo.Record
	for _, value := range keyed(n, 10) {
		key, _, _ := strings.Cut(value, "=")
		records = append(records, &kgo.Record{Topic: source, Key: []byte(key), Value: []byte(value)})
	}
	ctx, cancel := patient()
	defer cancel()
	if err := w.cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	answer, err := w.cluster.Tool(ctx, "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", strings.Join(w.cluster.Brokers(), ","),
		"--input-topic", source, "--input-partition", "0", "--output-topic", w.topic, "--transactional-id", w.topic, "--consumer-group", source,
		"--transaction-size", fmt.Sprint(size), "--use-group-metadata", "--enable-random-aborts")
	if err != nil {
		t.Fatal(err)
	}
	end := w.end(0)
	if end <= n+n/size {
		t.Fatalf("the log ends at %d: nothing was aborted:\n%s", end, answer)
	}

	values := map[bool][]string{}
	for _, uncommitted := range []bool{false, true} {
		l := w.ledger()
		c := w.config(l.inOrder(byPartition, func(_ context.Context, r *engine.Record) error {
			values[uncommitted] = append(values[uncommitted], string(r.Value)) // one after the other
			return nil
		}))
		c.Order, c.ReadUncommitted, c.Group = engine.OrderPartition, uncommitted, fmt.Sprintf("%s-%v", w.group, uncommitted)
		w.group = c.Group
		m := w.start(c)
		w.noLagLeft()
		if at := w.committed(0); at != end {
			t.Errorf("read uncommitted %v: committed %d; the log ends at %d", uncommitted, at, end)
		}
		m.stop()
		l.orderly()
	}
	if !slices.Equal(values[false], keyed(n, 10)) {
		t.Errorf("committed are %d records: %v", len(values[false]), values[false])
	}
	if all := w.valuesWithoutMarkers(end); !slices.Equal(values[true], all) {
		t.Errorf("%d records were handled of %d in the log", len(values[true]), len(all))
	}
}

// valuesWithoutMarkers reads all of partition 0, whatever became of its transactions.
func (w *world) valuesWithoutMarkers(end int64) (values []string) {
	w.Helper()
	cl := w.client(kgo.ConsumeTopics(w.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	ctx, cancel := patient()
	defer cancel()
	for next := int64(0); next < end; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			w.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		}
	}
	return values
}
