package bench

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"image/png"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// madeUp is a report of a case at several worker counts, with the rates that are given for the engine.
func madeUp(t *testing.T, rates map[int]float64, pairs ...string) *Report {
	t.Helper()
	r := &Report{Machine: Machine{Cores: 2, System: "test", Go: "go"}, Broker: "embedded", Rounds: 3, Seconds: 1}
	for _, workers := range []int{1, 4, 16, 64, 256} {
		rate, ok := rates[workers]
		if !ok {
			continue
		}
		c := with(t, append([]string{"handler", "sleep:2ms"}, pairs...)...)
		c.Workers = workers
		r.Cases = append(r.Cases, c)
		ideal := float64(workers) * 500
		bound := Bound{Rate: min(ideal, 10_000), By: "workers", Workers: ideal, Fetch: 3e6, CPU: 10_000}
		if ideal > 10_000 {
			bound.By = "cpu"
		}
		for _, a := range []Arm{ArmBare, ArmGoroutines, ArmEngine} {
			m := Measurement{Records: int64(rate), Seconds: 1, Rate: rate, CPUPerRecord: 1000, HandlerNanos: 2e6, SlotsFull: rate / ideal, PeakInFlight: workers, PeakRSS: 1e8, Ended: true,
				Series: []Moment{{At: 0.1, RSS: 5e7}, {At: 0.2, RSS: 9e7}, {At: 1.2, RSS: 1e8}}}
			low, high := m, m
			low.Rate, high.Rate = rate*0.98, rate*1.02
			one := resultOf(a, c, []Measurement{low, m, high})
			one.Bound = bound
			one.note()
			r.Results = append(r.Results, one)
		}
	}
	return r
}

// TestRecommend: the fewest workers that reach nearly the most, with the figures that say so; or enough for a target.
func TestRecommend(t *testing.T) {
	knee := map[int]float64{1: 400, 4: 1_600, 16: 6_000, 64: 9_700, 256: 10_000}
	for _, c := range []struct {
		target float64
		rates  map[int]float64
		want   int
		says   []string
	}{
		{0, knee, 64, []string{"97% of the most that was measured (10,000, with 256)", "16 would lose 38%", "256 change the rate by +3%", "192 more records in flight", "within the spread", "What bounds it are the cores"}},
		{1_000, knee, 4, []string{"You need 1,000 records/s", "1,300"}},
		{9_000, knee, 64, []string{"No count that was measured reaches the 9,000 records/s"}},
		{0, map[int]float64{4: 1_900, 16: 7_900, 64: 10_000, 256: 6_000}, 64, []string{"the most of all counts", "-40%"}},
		{0, map[int]float64{1: 490, 4: 1_950}, 4, []string{"highest count that was measured", "in the handler 98% of the time", "What bounds it are the workers"}},
		{0, map[int]float64{16: 7_000}, 16, []string{"Only 16 workers were measured"}},
	} {
		r := madeUp(t, c.rates)
		all := r.Recommend(c.target)
		if len(all) != 1 || all[0].Workers != c.want || all[0].Rate != c.rates[c.want] {
			t.Fatalf("target %v: %+v, not %d", c.target, all, c.want)
		}
		for _, s := range c.says {
			if !strings.Contains(all[0].String(), s) {
				t.Errorf("target %v: %q does not say %q", c.target, all[0], s)
			}
		}
	}
}

// TestNotes: a run that does not reach its concurrency says so, and why, and so does a log that was not finished.
func TestNotes(t *testing.T) {
	c := with(t, "handler", "sleep:2ms", "workers", "100", "records", "10")
	one := resultOf(ArmEngine, c, []Measurement{{Rate: 1, PeakInFlight: 40}})
	one.Bound = Bound{By: "order", Rate: 1}
	one.note()
	if s := strings.Join(one.Notes, "; "); !strings.Contains(s, "reached 40 of 100 at once: the order allows no more") || !strings.Contains(s, "not handled to its end") {
		t.Errorf("%q", s)
	}
}

// TestBound: the least of what fetching, workers, cores and order allow.
func TestBound(t *testing.T) {
	bare := &Result{Rate: Spread{Median: 1e6}, CPUPerRecord: Spread{Median: 200}}
	idle := &Result{CPUPerRecord: Spread{Median: 800}, HandlerNanos: Spread{Median: 2.2e6}}
	for _, b := range []struct {
		by    string
		rate  float64
		pairs []string
	}{
		{"workers", 5_000, []string{"handler", "sleep:2ms", "workers", "10", "keys", "none"}},
		{"workers", 500_000, []string{"handler", "sleep:2ms", "workers", "10", "batch", "100", "keys", "none"}},
		{"order", 1_500, []string{"handler", "sleep:2ms", "workers", "100", "order", "partition", "partitions", "3"}},
		{"order", 1_000, []string{"handler", "sleep:2ms", "workers", "100", "keys", "hot:10:0.5", "partitions", "1", "records", "100"}},
		{"fetch", 1e6, []string{"handler", "none"}},
		{"rate", 300, []string{"handler", "sleep:2ms", "rate", "300"}},
	} {
		s := &sweep{cfg: &Config{}}
		if got := s.bound(with(t, b.pairs...), bare, idle); got.By != b.by || got.Rate != b.rate {
			t.Errorf("%v: %+v, not %v by %s", b.pairs, got, b.rate, b.by)
		}
	}
}

// TestOutputs: the table, JSON lines, CSV, the page and the picture hold what was measured, and the page needs nothing from elsewhere.
func TestOutputs(t *testing.T) {
	r := madeUp(t, map[int]float64{1: 400, 16: 6_000, 64: 9_700})
	r.Command = "gapless bench --x <&>"
	var b bytes.Buffer
	if err := r.WriteTable(&b); err != nil || strings.Count(b.String(), "gapless") != 3 || !strings.Contains(b.String(), "9,700") {
		t.Errorf("%v\n%s", err, b.String())
	}
	b.Reset()
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	var one struct {
		Arm    string
		Params map[string]string
		Rate   Spread
	}
	if err := json.Unmarshal([]byte(lines[8]), &one); err != nil || len(lines) != 9 || one.Arm != "gapless" || one.Params["workers"] != "64" || one.Rate.Median != 9_700 {
		t.Errorf("%v, %+v", err, one)
	}
	b.Reset()
	if err := r.WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	if rows, err := csv.NewReader(&b).ReadAll(); err != nil || len(rows) != 10 || rows[0][0] != "workers" || rows[9][0] != "64" {
		t.Errorf("%v, %q", err, rows)
	}
	b.Reset()
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{"<svg", "knee of gapless: 64", "Memory in time", "CPU a record", "Use 64 workers", "--x &lt;&amp;&gt;"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(page, "<svg"); n != 3 {
		t.Errorf("%d pictures", n)
	}
	own := strings.NewReplacer(`xmlns="http://www.w3.org/2000/svg"`, "", `xmlns:xlink="http://www.w3.org/1999/xlink"`, "").Replace(page)
	if found := regexp.MustCompile(`https?://|@import|src=|href=`).FindString(own); found != "" {
		t.Errorf("the page refers to something else: %q", found)
	}
	b.Reset()
	if err := r.WritePNG(&b); err != nil {
		t.Fatal(err)
	}
	if img, err := png.Decode(&b); err != nil || img.Bounds().Dx() < 500 {
		t.Errorf("%v", err)
	}
	empty := &Report{Cases: r.Cases}
	b.Reset()
	if err := empty.WriteTable(&b); err != nil || !strings.Contains(b.String(), "nothing was measured") {
		t.Errorf("%v, %s", err, b.String())
	}
}

// TestPicturesOfAnything: pictures are drawn along whatever differs, numbers or not, with latencies where there are some.
func TestPicturesOfAnything(t *testing.T) {
	r := &Report{}
	for _, order := range []string{"key", "unordered"} {
		for _, rate := range []string{"100", "0"} {
			c := with(t, "order", order, "rate", rate)
			r.Cases = append(r.Cases, c)
			m := Measurement{Rate: 100, CPUPerRecord: 10}
			if rate != "0" {
				m.Latency = &Percentiles{P50: 1, P90: 2, P99: 3, P999: 40, Max: 50, Count: 9}
			}
			r.Results = append(r.Results, resultOf(ArmEngine, c, []Measurement{m}))
		}
	}
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil || strings.Count(b.String(), "Latency from") != 1 {
		t.Errorf("%v, %d pictures of latencies", err, strings.Count(b.String(), "Latency from"))
	}
}

// TestPicturesOfNothing: a run that is too short, or a machine that is too busy, measures 0, which has no place on a logarithmic axis.
func TestPicturesOfNothing(t *testing.T) {
	for _, rates := range [][]float64{{100, 0, 300}, {0, 0, 0}, {math.NaN(), math.Inf(1), 7}} {
		r := &Report{}
		for i, rate := range rates {
			c := with(t, "workers", strconv.Itoa(i+1))
			r.Cases = append(r.Cases, c)
			r.Results = append(r.Results, resultOf(ArmEngine, c, []Measurement{{Rate: rate, CPUPerRecord: rate}}))
		}
		var b bytes.Buffer
		if err := r.WriteHTML(&b); err != nil || !strings.Contains(b.String(), "Throughput") {
			t.Errorf("%v: %v", rates, err)
		}
		if rates[0] == 100 && !strings.Contains(b.String(), "gapless, without some that are 0") {
			t.Error("nobody is told that a point is missing")
		}
	}
}
