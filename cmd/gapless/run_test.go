package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRunPrintsAndCommits(t *testing.T) {
	for _, more := range []string{"", "--protocol=consumer", "--batch --batch-size=7 --batch-linger=1ms", "--order=partition", "--order=unordered --workers=500", "--workers=auto --workers-min=2 --workers-max=100"} {
		b, cl := broker(t, "t")
		fill(t, cl, "t", 50)
		args := append([]string{"run", b, "--group=g", "--topic=t", "--until-end"}, strings.Fields(more)...)
		lines := printedLines(t, must(t, "", args...))
		seen := map[string]int{}
		for _, l := range lines {
			seen[fmt.Sprint(l.Partition, "@", l.Offset)]++
		}
		if len(lines) != 150 || len(seen) != 150 {
			t.Errorf("%q: %d lines, %d different; want 150", more, len(lines), len(seen))
		}
		if got := committed(t, cl, "g", "t"); got != [3]int64{50, 50, 50} {
			t.Errorf("%q: committed %v, want 50 each", more, got)
		}
		if out := must(t, "", args...); out != "" {
			t.Errorf("%q: handled again after the restart: %s", more, out)
		}
	}
}

func TestOtherSinks(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 5)
	for i, sink := range []string{"--sink=discard", "--sleep=1ms", "--sink=sleep --sleep=1ms --batch"} {
		args := []string{"run", b, "--topic=t", "--until-end", "--json", "--log-level=off", fmt.Sprint("--group=g", i)}
		r := command(t, "", nil, append(args, strings.Fields(sink)...)...)
		if r.code != 0 || r.out != "" {
			t.Fatalf("%s: exit code %d, stdout %q, stderr %s", sink, r.code, r.out, r.err)
		}
		lines := strings.Split(strings.TrimSpace(r.err), "\n")
		last := decode[progress](t, lines[len(lines)-1])
		if last.Event != "summary" || last.Handled != 15 {
			t.Errorf("%s: the last line is %+v, want the summary of 15", sink, last)
		}
	}
}

// With --json, all of stderr is JSON.
func TestRunJSON(t *testing.T) {
	r := command(t, "", nil, "run", "--embedded", "--embedded-records=300", "--until-end", "--json", "--progress-every=1ms")
	if r.code != 0 || len(printedLines(t, r.out)) != 300 {
		t.Fatalf("exit code %d, %d lines; %s", r.code, strings.Count(r.out, "\n"), r.err)
	}
	for line := range strings.Lines(r.err) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

// What is produced from JSON lines is printed as it was, byte for byte, whatever the bytes are.
func TestBytesSurvive(t *testing.T) {
	b, cl := broker(t, "t", "copy")
	records := []*kgo.Record{
		{Key: nil, Value: []byte("no key")},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("tombstone"), Value: nil},
		{Key: []byte{0xff, 0xfe}, Value: []byte{0, 0x80, '\n'}},
		{Key: []byte("quotes \" and \\"), Value: []byte("line\nbreak\u2028 <&>"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{0xc3}}, {Key: "h", Value: nil}}},
	}
	for _, r := range records {
		r.Topic = "t"
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	run := func(topic string) string {
		return must(t, "", "run", b, "--group=g-"+topic, "--topic="+topic, "--until-end", "--workers=1")
	}
	must(t, run("t"), "produce", b, "--topic=copy", "--format=json")
	got := consumeAll(t, cl, "copy", len(records))
	for _, want := range records {
		same := slices.ContainsFunc(got, func(r *kgo.Record) bool {
			return reflect.DeepEqual(r.Key, want.Key) && reflect.DeepEqual(r.Value, want.Value) && len(r.Headers) == len(want.Headers) &&
				(len(r.Headers) == 0 || reflect.DeepEqual(r.Headers, want.Headers))
		})
		if !same {
			t.Errorf("%q = %q did not arrive as it was", want.Key, want.Value)
		}
	}
	if lines := printedLines(t, run("copy")); len(lines) != len(records) {
		t.Errorf("%d lines of the copy, want %d", len(lines), len(records))
	}
}

func consumeAll(t *testing.T, like *kgo.Client, topic string, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl := client(t, like.OptValue(kgo.SeedBrokers).([]string)[0], kgo.ConsumeTopics(topic))
	var all []*kgo.Record
	for len(all) < n && ctx.Err() == nil {
		all = append(all, cl.PollFetches(ctx).Records()...)
	}
	return all
}

// An interrupt in the middle: what was printed is committed, and only that.
func TestInterruptDrains(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 2000)
	ctx, interrupt := context.WithCancel(t.Context())
	out := &recorder{}
	out.before = func() {
		if strings.Count(out.String(), "\n") > 100 {
			interrupt()
		}
	}
	var errs lockedBuffer
	code := execute(ctx, streams{nil, out, &errs, nil}, []string{"run", b, "--group=g", "--topic=t", "--workers=4", "--order=partition", "--progress-every=0"})
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var printed [3]int64
	for _, l := range printedLines(t, out.String()) {
		printed[l.Partition]++
	}
	if got := committed(t, cl, "g", "t"); got != printed || printed == [3]int64{2000, 2000, 2000} {
		t.Errorf("printed %v, committed %v", printed, got)
	}
}

// waiter is a writer that reports when a line comes that has a certain text.
type waiter struct {
	lockedBuffer
	for_ map[string]func()
}

func (w *waiter) Write(p []byte) (int, error) {
	for text, do := range w.for_ {
		if bytes.Contains(p, []byte(text)) {
			do()
		}
	}
	return w.lockedBuffer.Write(p)
}

// A second interrupt does not wait for the handlers, and says which records they had.
func TestSecondInterrupt(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 5)
	hard := make(chan struct{})
	ctx, interrupt := context.WithCancel(context.WithValue(t.Context(), hardKey{}, (<-chan struct{})(hard)))
	errs := &waiter{for_: map[string]func(){`"in_flight":2`: interrupt, `"event":"stopping"`: func() { close(hard) }}}
	code := execute(ctx, streams{nil, io.Discard, errs, nil},
		[]string{"run", b, "--group=g", "--topic=t", "--sleep=1h", "--workers=2", "--json", "--progress-every=1ms", "--log-level=off"})
	if code != exitInterrupted || !strings.Contains(errs.String(), "the stop left 2 records") {
		t.Errorf("exit code %d, want %d; %s", code, exitInterrupted, errs.String())
	}
	if got := committed(t, cl, "g", "t"); got[0] > 0 || got[1] > 0 || got[2] > 0 {
		t.Errorf("committed %v, though no handler had ended", got)
	}
}

// brokenPipe fails after some writes.
type brokenPipe struct{ recorder }

func (w *brokenPipe) Write(p []byte) (int, error) {
	if w.writes > 0 {
		return 0, io.ErrClosedPipe
	}
	return w.recorder.Write(p)
}

// A reader of stdout that goes away ends the command with 1, and what it did not get is not committed.
func TestStdoutGone(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 100)
	out := &brokenPipe{}
	var errs lockedBuffer
	code := execute(t.Context(), streams{nil, out, &errs, nil}, []string{"run", b, "--group=g", "--topic=t", "--workers=3", "--order=partition"})
	if code != exitFailed || !strings.Contains(errs.String(), "stdout: ") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	var printed [3]int64
	for _, l := range printedLines(t, out.String()) {
		printed[l.Partition]++
	}
	if got := committed(t, cl, "g", "t"); got != printed {
		t.Errorf("printed %v, committed %v", printed, got)
	}
}

func TestReplayLast(t *testing.T) {
	b, cl := broker(t, "t", "other")
	fill(t, cl, "t", 10)
	commit(t, cl, "g", "t", 7)
	lines := printedLines(t, must(t, "", "run", b, "--group=g", "--topic=t", "--replay-last=3"))
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprint(l.Partition, "@", l.Offset))
	}
	slices.Sort(got)
	if want := strings.Fields("0@4 0@5 0@6 1@4 1@5 1@6 2@4 2@5 2@6"); !slices.Equal(got, want) {
		t.Errorf("replayed %v, want %v", got, want)
	}
	if got := committed(t, cl, "g", "t"); got != [3]int64{7, 7, 7} {
		t.Errorf("the commits changed to %v", got)
	}
	if n := len(printedLines(t, must(t, "", "run", b, "--group=g", "--topic-pattern=^t$", "--replay-last=1000", "--json"))); n != 21 {
		t.Errorf("replayed %d of the 21 that there are", n)
	}
	if r := command(t, "", nil, "run", b, "--group=g", "--topic=other", "--replay-last=3"); r.code != 1 {
		t.Errorf("nothing to replay: exit code %d", r.code)
	}
	if n := len(printedLines(t, must(t, "", "run", "--embedded", "--replay-last=2"))); n != 8 {
		t.Errorf("the embedded broker replayed %d, want 2 of each of 4 partitions", n)
	}
}

// Each transaction leaves a marker in the offsets. N records are N records all the same.
func TestReplayLastCountsRecords(t *testing.T) {
	b, cl := broker(t, "t")
	tx := client(t, strings.TrimPrefix(b, "--brokers="), kgo.TransactionalID("tx"))
	for i := range 12 {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := tx.EndTransaction(t.Context(), kgo.TransactionEndTry(i%3 != 2)); err != nil { // every third is aborted
			t.Fatal(err)
		}
	}
	commit(t, cl, "g", "t", 24)
	var got []string
	for _, l := range printedLines(t, must(t, "", "run", b, "--group=g", "--topic=t", "--replay-last=5")) {
		got = append(got, *l.Value)
	}
	if want := strings.Fields("4 6 7 9 10"); !slices.Equal(got, want) {
		t.Errorf("replayed %v, want %v", got, want)
	}
}

func TestAdminAddress(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 5)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	errs := &waiter{}
	answers := make(chan string, 1)
	address := regexp.MustCompile(`admin address: (http://\S+)/status`)
	errs.for_ = map[string]func(){`"in_flight":1`: func() {
		select {
		case answers <- address.FindStringSubmatch(errs.String())[1]:
		default:
		}
	}}
	ended := make(chan int)
	go func() {
		ended <- execute(ctx, streams{nil, io.Discard, errs, nil}, []string{"run", b, "--group=g", "--topic=t", "--sleep=1h", "--workers=1",
			"--admin-addr=127.0.0.1:0", "--json", "--progress-every=1ms", "--drain-timeout=1ms"})
	}()
	base := <-answers
	for path, want := range map[string]string{"/readyz": "true", "/healthz": "true", "/metrics": "gapless_", "/status": `"in_flight": 1`} {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, %s; want %s in it", path, resp.StatusCode, body, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	interrupt()
	<-ended
}
