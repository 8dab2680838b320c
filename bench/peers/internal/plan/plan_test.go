package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/bench/peers/internal/catalogue"
	"github.com/gaplesshq/gapless/bench/peers/internal/report"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

var sizes = catalogue.Sizes{Records: 1000, SleepRecords: 1000, Partitions: 12, Size: 100, Mean: 2 * time.Millisecond}

func names(cells []*Cell) string {
	var all []string
	for _, c := range cells {
		all = append(all, c.Name())
	}
	return strings.Join(all, ", ")
}

func TestRoundsGoForthAndBack(t *testing.T) {
	p, err := New(sizes, []string{"gapless/key", "sarama", "aiokafka"}, []string{"noop", "fixed-100"})
	if err != nil {
		t.Fatal(err)
	}
	p.All()[1].Missing = "not here"
	if got := names(p.Round(0)); got != "noop gapless/key, noop aiokafka/getmany, fixed-100 gapless/key, fixed-100 aiokafka/gather" {
		t.Errorf("forth: %s", got)
	}
	if got := names(p.Round(1)); got != "noop aiokafka/getmany, noop gapless/key, fixed-100 aiokafka/gather, fixed-100 gapless/key" {
		t.Errorf("back: %s", got)
	}
}

func TestWrongNamesAreRefused(t *testing.T) {
	for word, names := range map[string][2]string{
		"--libraries: there is no library": {"kafka", "noop"},
		"--workloads: there is no":         {"sarama", "no-op"},
		"none of these libraries":          {"sarama", "fixed-100"},
	} {
		if _, err := New(sizes, []string{names[0]}, []string{names[1]}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestRowsAreThereWhateverHappened(t *testing.T) {
	p, err := New(sizes, []string{"gapless/key", "sarama", "kafka-java/poll-loop", "aiokafka"}, []string{"noop"})
	if err != nil {
		t.Fatal(err)
	}
	cells := p.All()
	cells[0].Runs = []report.Run{{Outcome: task.Outcome{Distinct: 1000, Seconds: 1}}}
	cells[1].Runs = []report.Run{{Err: errors.New("it fell over")}}
	cells[2].Missing = "there is no java command"
	s := p.Sections()
	if len(s) != 1 || len(s[0].Rows) != 4 {
		t.Fatalf("%+v", s)
	}
	for i, want := range []struct {
		arm, why          string
		complete, missing bool
	}{
		{"noop/key", "", true, false},
		{"noop/group", "it fell over", false, false},
		{"noop/poll-loop", "there is no java command", false, true},
		{"noop/getmany", "interrupted before its first run", false, true},
	} {
		if row := s[0].Rows[i]; row.Arm != want.arm || row.Why != want.why || row.Complete != want.complete || row.Missing != want.missing {
			t.Errorf("row %d: %+v", i, row)
		}
	}
}
