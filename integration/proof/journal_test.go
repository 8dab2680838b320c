package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestLines(t *testing.T) {
	for _, l := range []Line{
		{Word: Begun, Nanos: 17, Member: "m1.1", Generation: 3, Sequence: 9, Topic: "t", Partition: 2, Offset: 1 << 40, Key: []byte("k"), ID: "id"},
		{Word: Along, Member: "m1.1", Topic: "t"},
		{Word: Ended, Nanos: -1, Member: "m", Generation: -1, Topic: "t", Key: []byte{}, ID: "-"},
		{Word: Failed, Member: "m", Topic: "t", Key: []byte("\xff \n\x00\""), ID: "a b\n\u00e4"},
	} {
		text := string(l.Append(nil))
		if strings.Count(text, "\n") != 1 {
			t.Errorf("%q is not one line", text)
		}
		got, err := ParseLine(strings.TrimSuffix(text, "\n"))
		if err != nil || !reflect.DeepEqual(got, l) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestReadJournal(t *testing.T) {
	good := "b 1 m1.1 0/0 t 0 0 - -\n"
	lines, err := ReadJournal(strings.NewReader(good + good + good[:9]))
	if err != nil || len(lines) != 2 || lines[1].Number != 2 {
		t.Errorf("a torn end: %v, %v", lines, err)
	}
	for _, bad := range []string{
		"", "b", "x 1 m1.1 0/0 t 0 0 - -", "b x m1.1 0/0 t 0 0 - -", "b 1 m1.1 0 t 0 0 - -", "b 1 m1.1 0/0 t 0 0 -", "b 1 m1.1 0/0 t 0 0 \"k -",
		"b 1 m1.1 0/0 t 0 0 - - -", "b 1 m1.1 0/0 t 4294967296 0 - -", "b 1 m1.1 0/0 t 0 0 k -",
	} {
		if _, err := ReadJournal(strings.NewReader(good + bad + "\n" + good)); err == nil || !strings.Contains(err.Error(), "line 2 ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Lines of several writers do not mix.
func TestOneJournalForMany(t *testing.T) {
	path := t.TempDir() + "/journal"
	var wg sync.WaitGroup
	for i := range 4 {
		j, err := OpenJournal(path, func(r *engine.Record) string { return string(r.Value) })
		if err != nil {
			t.Fatal(err)
		}
		h := j.Wrap(engine.HandlerFunc(func(context.Context, *engine.Record) error { return nil }), "m1.1")
		wg.Go(func() {
			for n := range 100 {
				if err := h.Handle(t.Context(), aRecord(int64(1000*i+n))); err != nil {
					t.Error(err)
				}
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := ReadJournal(f)
	if err != nil || len(lines) != 800 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

func aRecord(offset int64) *engine.Record {
	return &engine.Record{Record: &kgo.Record{Topic: "t", Offset: offset, Key: []byte("k"), Value: []byte("v")}}
}

// words are those of the lines, in order.
func words(t *testing.T, b *bytes.Buffer) (s string) {
	t.Helper()
	lines, err := ReadJournal(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		s += string(l.Word)
	}
	return s
}

func TestWrap(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		h    engine.HandlerFunc
		want string
	}{
		"success": {func(context.Context, *engine.Record) error { return nil }, "be"},
		"failure": {func(context.Context, *engine.Record) error { return boom }, "bf"},
		"panic":   {func(context.Context, *engine.Record) error { panic(boom) }, "bf"},
	} {
		var b bytes.Buffer
		func() {
			defer func() { _ = recover() }()
			if err := NewJournal(&b, nil).Wrap(c.h, "m1.1").Handle(t.Context(), aRecord(0)); (err == nil) != (name == "success") {
				t.Errorf("%s: %v", name, err)
			}
		}()
		if got := words(t, &b); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// sealed takes so many lines, and no more.
type sealed struct {
	bytes.Buffer
	left int
}

func (s *sealed) Write(b []byte) (int, error) {
	if s.left--; s.left < 0 {
		return 0, os.ErrClosed
	}
	return s.Buffer.Write(b)
}

// What can't be written down has not happened.
func TestJournalThatTakesNothing(t *testing.T) {
	ran := 0
	h := engine.HandlerFunc(func(context.Context, *engine.Record) error { ran++; return nil })
	for left, want := range []int{0, 1} {
		ran = 0
		if err := NewJournal(&sealed{left: left}, nil).Wrap(h, "m").Handle(t.Context(), aRecord(0)); !errors.Is(err, os.ErrClosed) || ran != want {
			t.Errorf("with %d lines left: %v, ran %d times", left, err, ran)
		}
	}
}

func TestWrapBatch(t *testing.T) {
	var b bytes.Buffer
	h := NewJournal(&b, nil).WrapBatch(func(context.Context, *engine.Batch) []error { return nil }, "m1.1")
	batch := &engine.Batch{Topic: "t", Records: []*engine.Record{aRecord(0), aRecord(1), aRecord(2)}}
	if err := h.HandleBatch(t.Context(), batch); err != nil {
		t.Error(err)
	}
	if got := words(t, &b); got != "baaeee" {
		t.Error(got)
	}
}

// The last line of a torture: its fields, and their order.
func TestVerdictJSON(t *testing.T) {
	var v Verdict
	v.Add(&Verdict{Rounds: 1, Records: 2, Lost: 3, CommittedPastUnfinished: 4, OrderViolations: 5, Overlaps: 6, OverlapsAllowed: 7, Redone: 8, RedoneAllowed: 9,
		BusinessDuplicates: 10, Stuck: 11, Findings: []Finding{{}}})
	v.Seed, v.Seconds = 12, 13.5
	got, err := json.Marshal(&v)
	want := `{"rounds":1,"records":2,"lost":3,"committed_past_unfinished":4,"order_violations":5,"overlaps":6,"overlaps_allowed":7,"redone":8,"redone_allowed":9,"business_duplicates":10,"stuck":11,"seed":12,"seconds":13.5}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if v.OK() || len(v.Findings) != 1 {
		t.Error("it is not well, and says so")
	}
	if all := (Verdict{Rounds: 1, Overlaps: 2, OverlapsAllowed: 2, Redone: 1, RedoneAllowed: 1}); !all.OK() {
		t.Error("what is allowed is well")
	}
}
