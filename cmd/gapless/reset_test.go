package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func resetArgs(b string, more ...string) []string {
	return append([]string{"offsets", "reset", b, "--group=g"}, more...)
}

func reset(t *testing.T, b string, more ...string) resetPlan {
	t.Helper()
	return decode[resetPlan](t, must(t, "", resetArgs(b, append(more, "--json", "--yes")...)...))
}

// handledIn are the offsets of partition 0 that a run until the end handles.
func handledIn(t *testing.T, b string) (offsets []int64) {
	t.Helper()
	for _, l := range printedLines(t, must(t, "", "run", b, "--group=g", "--topic=t", "--until-end")) {
		if l.Partition == 0 {
			offsets = append(offsets, l.Offset)
		}
	}
	slices.Sort(offsets)
	return offsets
}

func upTo(from, to int64) (offsets []int64) {
	for o := from; o < to; o++ {
		offsets = append(offsets, o)
	}
	return offsets
}

// A rewind is honoured: the records are handled again, also those that the window which came with the commit before calls
// settled. Without a reset they are not, which the first run shows.
func TestResetIsHonoured(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 20)
	commitWith(t, cl, "g", "t", 0, 5, windowed(t, cl, "t", 5, settledTo(14, 5, 9)))
	if got, want := handledIn(t, b), append([]int64{5, 9}, upTo(15, 20)...); !slices.Equal(got, want) {
		t.Fatalf("with the window: handled %v, want %v", got, want)
	}
	if plan := reset(t, b, "--topic=t", "--to=3"); plan.Redone != 3*17 || plan.Skipped != 0 || !plan.Done {
		t.Errorf("got %+v", plan)
	}
	if got := handledIn(t, b); !slices.Equal(got, upTo(3, 20)) {
		t.Errorf("after the reset: handled %v", got)
	}
	// In the middle of a window: what it calls settled is handled again as well.
	commitWith(t, cl, "g", "t", 0, 5, windowed(t, cl, "t", 5, settledTo(14, 5, 9)))
	plan := reset(t, b, "--topic=t", "--partition=0", "--to=7")
	if m := plan.Moves[0]; len(plan.Moves) != 1 || m.Redone != 7 || m.Skipped != 1 || *m.From != 5 || m.To != 7 {
		t.Errorf("got %+v", plan)
	}
	if got := handledIn(t, b); !slices.Equal(got, upTo(7, 20)) {
		t.Errorf("after the second reset: handled %v", got)
	}
}

// What a reset says beside the offset claims nothing, and keeps how many partitions the topic had when the group claimed it.
func TestResetKeepsWhatStillMatters(t *testing.T) {
	b, cl := broker(t, "t", "new")
	fill(t, cl, "t", 50)
	commitWith(t, cl, "g", "t", 0, 10, windowed(t, cl, "t", 10, func(w *window.Window) {
		settledTo(30, 10)(w)
		w.Partitions, w.Unclean, w.Trying, w.Tries, w.BypassBelow, w.Store, w.StoreSeq = 2, 3, 10, 2, 40, [16]byte{1}, 9
	}))
	commitWith(t, cl, "g", "t", 1, 10, "of another program")
	reset(t, b, "--topic=t", "--to=20")
	w := said(t, cl, "g", "t", 0)
	if w.Frontier != 20 || w.Highest != 19 || len(w.Undone) != 0 || w.Partitions != 2 || w.Unclean != 0 || w.Trying != -1 || w.Store != [16]byte{} {
		t.Errorf("t[0]: %+v", w)
	}
	if w.BypassBelow != 40 {
		t.Errorf("t[0]: marks are bypassed below %d; the reset before said 40", w.BypassBelow)
	}
	for p := range int32(3) {
		if w := said(t, cl, "g", "t", p); p > 0 && w.Partitions != 0 {
			t.Errorf("t[%d]: claimed when the topic had %d partitions, but no commit tells", p, w.Partitions)
		}
	}
	reset(t, b, "--topic=t", "--to=45")
	if w := said(t, cl, "g", "t", 0); w.BypassBelow != 0 {
		t.Errorf("marks are bypassed below %d, which has been passed", w.BypassBelow)
	}
	reset(t, b, "--topic=new", "--to=earliest")
	if w := said(t, cl, "g", "new", 1); w.Partitions != 3 {
		t.Errorf("a topic that is claimed by the reset: %+v", w)
	}
}

// The marks of all that may have been handled are forgotten: below the commit, or what the window says; below the end of the log
// where the commit does not tell how far the group came.
func TestForgetDedupe(t *testing.T) {
	plain := func(*window.Window) {}
	for name, c := range map[string]struct {
		set  func(w *window.Window)
		text string
		want int64
	}{
		"a clean end":             {set: plain, want: 20},
		"settled beyond":          {set: settledTo(30, 20), want: 31},
		"an earlier reset":        {set: func(w *window.Window) { w.BypassBelow = 40 }, want: 40},
		"shortened":               {set: func(w *window.Window) { settledTo(30, 20)(w); w.Cut = true }, want: 50},
		"an unclean end":          {set: func(w *window.Window) { w.Unclean = 1 }, want: 50},
		"of another topic":        {set: func(w *window.Window) { w.TopicID = [16]byte{9} }, want: 50},
		"of another program":      {text: "hello", want: 50},
		"damaged":                 {text: "gapless:1:AAAA", want: 50},
		"by a tool, without any ": {text: "", want: 50},
	} {
		b, cl := broker(t, "t")
		fill(t, cl, "t", 50)
		text := c.text
		if c.set != nil {
			text = windowed(t, cl, "t", 20, c.set)
		}
		commitWith(t, cl, "g", "t", 0, 20, text)
		plan := reset(t, b, "--topic=t", "--partition=0", "--to=5", "--forget-dedupe")
		if m := plan.Moves[0]; m.BypassBelow != c.want {
			t.Errorf("%s: marks are bypassed below %d, want %d", name, m.BypassBelow, c.want)
		}
		if w := said(t, cl, "g", "t", 0); w.BypassBelow != c.want || w.Frontier != 5 {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

// Who forgets --forget-dedupe and resets once more gets it all the same, though the commit is at its place already. Owners carry
// it on until they have passed it.
func TestForgetDedupeAfterwards(t *testing.T) {
	for name, set := range map[string]func(*window.Window){"a clean end": nil, "settled beyond": settledTo(30, 20), "nothing but beyond": settledTo(30, 20), "of another program": nil} {
		b, cl := broker(t, "t")
		fill(t, cl, "t", 50)
		commitWith(t, cl, "g", "t", 0, 20, windowed(t, cl, "t", 20, set))
		if name == "of another program" {
			commitWith(t, cl, "g", "t", 0, 20, "")
		}
		to := "--to=5"
		if name == "nothing but beyond" {
			to = "--to=20"
		}
		reset(t, b, "--topic=t", "--partition=0", to)
		reset(t, b, "--topic=t", "--partition=0", to, "--forget-dedupe")
		if w := said(t, cl, "g", "t", 0); w.BypassBelow != 50 {
			t.Errorf("%s: marks are bypassed below %d", name, w.BypassBelow)
		}
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan int)
		lines, out := io.Pipe()
		go func() {
			args := []string{"run", b, "--group=g", "--topic=t", "--drain-timeout=10ms", "--log-level=off"}
			ended <- execute(ctx, streams{nil, out, io.Discard, nil}, args)
		}()
		if _, err := bufio.NewReaderSize(lines, 16).ReadByte(); err != nil { // a record is handled, so the claim has been acknowledged; the rest waits for a reader
			t.Fatal(err)
		}
		w := said(t, cl, "g", "t", 0)
		interrupt()
		_ = lines.Close()
		<-ended
		if w.Unclean != 1 || w.BypassBelow != 50 {
			t.Errorf("%s: an owner claims with %+v", name, w)
		}
		must(t, "", "run", b, "--group=g", "--topic=t", "--until-end")
		if w := said(t, cl, "g", "t", 0); w.BypassBelow != 0 || w.Frontier != 50 {
			t.Errorf("%s: after a run: %+v", name, w)
		}
	}
}

// Without the flag a group that has a store is told what that means.
func TestResetSpeaksOfTheStore(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 50)
	commitWith(t, cl, "g", "t", 0, 20, windowed(t, cl, "t", 20, func(w *window.Window) { w.Store, w.StoreSeq = [16]byte{1}, 3 }))
	if r := command(t, "", nil, resetArgs(b, "--topic=t", "--to=5", "--dry-run")...); !strings.Contains(r.err, "the group has a dedupe store") {
		t.Errorf("stderr: %s", r.err)
	}
	if r := command(t, "", nil, resetArgs(b, "--topic=t", "--to=latest", "--dry-run", "--forget-dedupe")...); !strings.Contains(r.err, "there is nothing to forget") {
		t.Errorf("stderr: %s", r.err)
	}
}

func TestResetPlaces(t *testing.T) {
	b, cl := broker(t, "t", "other")
	now := time.Now().Truncate(time.Second)
	var records []*kgo.Record
	for i := range 10 {
		records = append(records, &kgo.Record{Topic: "t", Partition: 0, Value: []byte("v"), Timestamp: now.Add(time.Duration(i-10) * time.Minute)})
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fill(t, cl, "other", 4)
	if _, err := kadm.NewClient(cl).DeleteRecords(t.Context(), kadm.Offsets{"t": {0: {Topic: "t", Partition: 0, At: 2}}}); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]struct {
		to     int64
		remark string
	}{
		"--to=earliest": {2, ""},
		"--to=latest":   {10, ""},
		"--to=6":        {6, ""},
		"--to=0":        {2, "0 lies before the start of the log"},
		"--to=5000":     {10, "5,000 lies beyond the end of the log"},
		"--to=150s":     {8, ""},
		"--to=2d":       {2, ""},
		"--to=" + now.Add(-4*time.Minute).UTC().Format(time.RFC3339): {6, ""},
		"--to=" + now.Add(time.Hour).UTC().Format(time.RFC3339):      {10, "no record is as late"},
		"--to=1969-12-31T23:59:59.999Z":                              {2, ""}, // -1 in milliseconds, by which Kafka means the end
		"--to=0001-01-01T00:00:00Z":                                  {2, ""},
		"--to=2000000h":                                              {2, ""},
		"--by=-2":                                                    {3, ""},
		"--by=+2":                                                    {7, ""},
		"--by=-100":                                                  {2, "-95 lies before the start of the log"},
		"--by=-9223372036854775808":                                  {2, "-9,223,372,036,854,775,803 lies before the start of the log"},
		"--by=9223372036854775807":                                   {10, "9223372036854775807 from there lies beyond the end of the log"},
	} {
		commitWith(t, cl, "g", "t", 0, 5, "")
		plan := reset(t, b, "--topic=t", "--partition=0", flag)
		m := plan.Moves[0]
		if m.To != want.to || strings.Join(m.Remarks, "; ") != want.remark {
			t.Errorf("%s: to %d (%q), want %d (%q)", flag, m.To, m.Remarks, want.to, want.remark)
		}
		if m.Redone != max(5-want.to, 0) || m.Skipped != max(want.to-5, 0) {
			t.Errorf("%s: %d redone, %d skipped", flag, m.Redone, m.Skipped)
		}
		if at := committed(t, cl, "g", "t"); at[0] != want.to {
			t.Errorf("%s: committed %v", flag, at)
		}
	}
	if r := command(t, "", nil, resetArgs(b, "--topic=t", "--by=-1", "--yes")...); r.code != 1 || !strings.Contains(r.err, "t[1]: the group has no commit there to count from; use --to") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if at := committed(t, cl, "g", "other"); at != [3]int64{} {
		t.Errorf("a topic that was not named is committed at %v", at)
	}
}

// A topic means all of its partitions, and --all-topics those that the group has a commit in.
func TestResetTopics(t *testing.T) {
	b, cl := broker(t, "t", "u", "x", "gone")
	for _, topic := range []string{"t", "u", "x"} {
		fill(t, cl, topic, 10)
	}
	for _, topic := range []string{"t", "u", "gone"} {
		commitWith(t, cl, "g", topic, 1, 0, "")
	}
	if _, err := kadm.NewClient(cl).DeleteTopics(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	r := command(t, "", nil, resetArgs(b, "--all-topics", "--to=latest", "--yes")...)
	if r.code != 0 || committed(t, cl, "g", "t") != [3]int64{10, 10, 10} || committed(t, cl, "g", "u") != [3]int64{10, 10, 10} || committed(t, cl, "g", "x") != [3]int64{} {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if !strings.Contains(r.err, "WARNING: 60 records skipped") || !strings.Contains(r.out, "6 partitions of group g were reset") {
		t.Errorf("got %s\n%s", r.err, r.out)
	}
	if r := command(t, "", nil, resetArgs(b, "--topic=t,nope", "--to=latest", "--yes")...); r.code != 3 || !strings.Contains(r.err, `topic "nope" does not exist`) {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if r := command(t, "", nil, resetArgs(b, "--topic=t", "--partition=3", "--to=latest", "--yes")...); r.code != 3 || !strings.Contains(r.err, `no partition 3; it has 3`) {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if r := command(t, "", nil, "offsets", "reset", b, "--group=fresh", "--all-topics", "--to=latest", "--yes"); r.code != 1 || !strings.Contains(r.err, "committed nothing") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if r := command(t, "", nil, "offsets", "reset", b, "--group=fresh", "--topic=t", "--to=latest", "--yes"); r.code != 0 || !strings.Contains(r.err, "group fresh does not exist yet") || committed(t, cl, "fresh", "t") != [3]int64{10, 10, 10} {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
}

func TestResetDryRun(t *testing.T) {
	b, cl := broker(t, "t")
	fill(t, cl, "t", 10)
	commit(t, cl, "g", "t", 4)
	out := must(t, "", resetArgs(b, "--topic=t", "--to=1", "--dry-run")...)
	if !strings.Contains(out, "would be reset; nothing was changed. 9 records would be handled again, 0 skipped.") || committed(t, cl, "g", "t") != [3]int64{4, 4, 4} {
		t.Errorf("got\n%s", out)
	}
	if plan := decode[resetPlan](t, must(t, "", resetArgs(b, "--topic=t", "--to=1", "--dry-run", "--json")...)); !plan.DryRun || plan.Done || len(plan.Moves) != 3 || plan.Notes == nil {
		t.Errorf("got %+v", plan)
	}
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]error{"y\n": nil, "Yes \n": nil, "n\n": errNotConfirmed, "\n": errNotConfirmed, "": errNotConfirmed, "yess\n": errNotConfirmed} {
		var out bytes.Buffer
		if err := confirm(t.Context(), strings.NewReader(answer), &out, "Sure?"); err != want || out.String() != "Sure? [y/N] " {
			t.Errorf("%q: %v, %q", answer, err, out.String())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, end := io.Pipe()
	if err := confirm(ctx, in, io.Discard, "Sure?"); err != errNotConfirmed {
		t.Errorf("interrupted: %v", err)
	}
	_ = end.Close()
}

// The settings may come from everywhere, and what is typed wins over its opposite from elsewhere.
func TestResetSettings(t *testing.T) {
	b, cl := broker(t, "t", "u")
	fill(t, cl, "t", 10)
	for i, c := range []struct {
		env  []string
		args []string
		want [3]int64
		code int
	}{
		{env: []string{"GAPLESS_GROUP=g", "GAPLESS_TOPIC=t", "GAPLESS_TO=3", "GAPLESS_YES=true"}, args: []string{"offsets", "reset", b}, want: [3]int64{3, 3, 3}},
		{env: []string{"GAPLESS_TOPIC=t", "GAPLESS_PARTITION=0,2", "GAPLESS_BY=-1"}, args: resetArgs(b, "--yes"), want: [3]int64{4, 5, 4}},
		{env: []string{"GAPLESS_TOPIC=u", "GAPLESS_TO=3"}, args: resetArgs(b, "--yes", "--all-topics", "--by=2"), want: [3]int64{7, 7, 7}},
		{env: []string{"GAPLESS_BY=3", "GAPLESS_ALL_TOPICS=true"}, args: resetArgs(b, "--yes", "--topic=t", "--to=9"), want: [3]int64{9, 9, 9}},
		{env: []string{"GAPLESS_BY=3", "GAPLESS_TO=3"}, args: resetArgs(b, "--yes", "--topic=t"), want: [3]int64{5, 5, 5}, code: 2},
	} {
		commit(t, cl, "g", "t", 5)
		if r := command(t, "", c.env, c.args...); r.code != c.code || committed(t, cl, "g", "t") != c.want {
			t.Errorf("%d: exit code %d, committed %v: %s", i, r.code, committed(t, cl, "g", "t"), r.err)
		}
	}
}

func TestEmbeddedReset(t *testing.T) {
	out := must(t, "", "offsets", "reset", "--embedded", "--to=earliest", "--yes")
	if !strings.Contains(out, fmt.Sprintf("%d partitions of group gapless-embedded were reset", embeddedPartitions)) {
		t.Errorf("got\n%s", out)
	}
}
