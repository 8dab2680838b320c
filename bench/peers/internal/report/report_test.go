package report

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

// good is a run of 1,000 records that took so many milliseconds and so many nanoseconds of CPU a record.
func good(ms, ns int) Run {
	return Run{
		Outcome: task.Outcome{Distinct: 1000, Seconds: float64(ms) / 1000, CPU: int64(ns) * 900, RSS: 20e6},
		Process: time.Duration(ns) * 1000,
	}
}

func TestEveryFlawIsFound(t *testing.T) {
	if r := good(1, 1); r.Flaw(1000) != "" {
		t.Errorf("a complete run: %s", r.Flaw(1000))
	}
	for word, spoil := range map[string]func(*Run){
		"1 of 1000 records were not handled": func(r *Run) { r.Outcome.Distinct-- },
		"2 records were handled again":       func(r *Run) { r.Outcome.Again = 2 },
		"3 records came that the topic":      func(r *Run) { r.Outcome.Strange = 3 },
		"4 records are not committed":        func(r *Run) { r.Unsettled = 4 },
		"-5 records are not committed":       func(r *Run) { r.Unsettled = -5 },
		"stalled":                            func(r *Run) { r.Outcome.Error = "stalled" },
		"no broker":                          func(r *Run) { r.Err = errors.New("no broker") },
	} {
		r := good(1, 1)
		spoil(&r)
		if why := r.Flaw(1000); !strings.Contains(why, word) {
			t.Errorf("%s: %q", word, why)
		}
	}
}

func TestRowIsOfTheCompleteRuns(t *testing.T) {
	bad := good(1, 1)
	bad.Outcome.Distinct = 7
	row := Row{Library: "x", Records: 1000}
	row.Add([]Run{good(40, 300), good(10, 100), bad, good(20, 200)})
	if row.Complete || row.Missing || row.Runs != 3 || row.Of != 4 || !strings.Contains(row.Why, "993 of 1000") {
		t.Errorf("one run of four is not complete: %+v", row)
	}
	if row.Seconds != 0.02 || row.SecondsMin != 0.01 || row.SecondsMax != 0.04 || row.Rate != 50_000 {
		t.Errorf("seconds: %+v", row)
	}
	if row.CPU != 200 || row.CPUMin != 100 || row.CPUMax != 300 || *row.CPUAfter != 180 || row.RSS != 20 {
		t.Errorf("CPU: %+v", row)
	}
}

func TestSlotsAreRateTimesHandlerTime(t *testing.T) {
	r := good(25, 100) // 40,000 records/s
	r.Outcome.HandlerNS, r.Outcome.Peak = 2_000_000*1000, 100
	row := Row{Records: 1000, InFlight: 100}
	row.Add([]Run{r})
	if row.HandlerMS != 2 || math.Abs(row.SlotsFull-0.8) > 1e-9 || row.Peak != 100 || !row.Complete {
		t.Errorf("%+v", row)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 5}, 5}} {
		if got := Median(c.of); got != c.want {
			t.Errorf("the median of %v is %v", c.of, got)
		}
	}
}

func sections() []Section {
	own := Row{Library: "gapless", Arm: "noop/unordered", Mode: "unordered", Order: "unordered", Records: 1000}
	own.Add([]Run{good(1, 400), good(2, 500), good(3, 600)})
	peer := Row{Library: "peer", Arm: "noop/loop", Mode: "loop", Order: "unordered", Records: 1000}
	peer.Add([]Run{good(8, 1000)})
	broken := Row{Library: "broken", Arm: "noop/loop", Mode: "loop", Order: "unordered", Records: 1000}
	r := good(1, 1)
	r.Unsettled = 12
	broken.Add([]Run{r})
	missing := Row{Library: "absent", Arm: "noop/loop", Mode: "loop", Order: "unordered", Records: 1000, Why: "there is no java command"}
	missing.Add(nil)
	return []Section{{Title: "noop", Rows: []Row{own, peer, broken, missing}}}
}

func TestTableShowsEveryRow(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, "a machine", sections()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"a machine",
		"gapless  unordered  1,000    500,000     (333,333 - 1,000,000)  500              (400 - 600)      450        20                      yes (3)",
		"peer     loop       1,000    125,000     (125,000 - 125,000)    1,000            (1,000 - 1,000)  900        20      4.00x, CPU 0.50x  yes (1)",
		"NO, 1 of 1 runs: 12 records are not committed",
		"not run: there is no java command",
	} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), strings.Join(strings.Fields(line), " ")) {
			t.Errorf("the table has no %q:\n%s", line, b.String())
		}
	}
}

func TestJSONIsALineARow(t *testing.T) {
	var b strings.Builder
	if err := JSON(&b, sections()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, want := range []struct {
		library, arm string
		seconds, cpu float64
		complete     bool
	}{{"gapless", "noop/unordered", 0.002, 500, true}, {"peer", "noop/loop", 0.008, 1000, true}, {"broken", "noop/loop", 0, 0, false}, {"absent", "noop/loop", 0, 0, false}} {
		var row map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &row); err != nil {
			t.Fatal(err)
		}
		if row["library"] != want.library || row["arm"] != want.arm || row["records"] != 1000.0 || row["seconds"] != want.seconds ||
			row["cpu_ns_per_record"] != want.cpu || row["complete"] != want.complete {
			t.Errorf("row %d is %s", i, lines[i])
		}
	}
}
