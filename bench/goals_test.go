package bench

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestGoals: goals are measured, and told with what they are to be; what was not measured is not run, and not met.
func TestGoals(t *testing.T) {
	r, err := Goals(t.Context(), GoalsConfig{Only: []string{"P5", "P8", "P9", "P14"}, Rounds: 1, until: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string][]Goal{}
	for _, g := range r.Goals {
		byID[g.ID] = append(byID[g.ID], g)
		if g.What == "" || g.Goal == "" || g.Value == "" || g.Command == "" || g.Value == notRun && g.OK || g.Value == notRun != (g.ID == "P9") {
			t.Errorf("%+v", g)
		}
	}
	if len(byID["P5"]) != 1 || len(byID["P8"]) != 1 || len(byID["P14"]) != 1 || len(byID["P9"]) < 20 || len(byID) != 4 {
		t.Errorf("%v", r.Goals)
	}
	if _, err := Goals(t.Context(), GoalsConfig{Only: []string{"P3"}}); err == nil || !strings.Contains(err.Error(), "P1, P2, P4") {
		t.Errorf("an unknown goal: %v", err)
	}
}

// TestGoalsInterrupted: all goals are there, not run.
func TestGoalsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := Goals(ctx, GoalsConfig{})
	if err != nil || !r.Interrupted {
		t.Fatal(r, err)
	}
	var ids []string
	for _, g := range r.Goals {
		ids = append(ids, g.ID)
		if g.OK || g.Value != notRun {
			t.Errorf("%+v", g)
		}
	}
	if !slices.Equal(ids, GoalIDs()) {
		t.Errorf("%v", ids)
	}
}

// TestJudge: medians are compared, round by round, and a control that did nothing is no round.
func TestJudge(t *testing.T) {
	c := DefaultCase()
	rates := func(a Arm, xs ...float64) Result {
		var runs []Measurement
		for _, x := range xs {
			runs = append(runs, Measurement{Rate: x, CPUPerRecord: 100 + x})
		}
		return resultOf(a, c, runs)
	}
	r := &Report{Results: []Result{rates(ArmEngine, 95, 90, 99, 50), rates(ArmBare, 100, 100, 100, 0)}}
	if s := r.ratio(ArmEngine, c, ArmBare, c, rateOf); s.Median != 0.95 || s.Rounds != 3 || s.Least != 0.9 {
		t.Errorf("%+v", s)
	}
	if s := r.over(c, cpuOf); s.Median != -3 { // -5, -10, -1, +50
		t.Errorf("%+v", s)
	}
	g := &goals{}
	g.atLeast("P1", "x", 0.95, Spread{Median: 0.95, Rounds: 3})
	g.atLeast("P1", "x", 0.95, Spread{Median: 0.949, Rounds: 3})
	g.atMost("P10", "x", 60, Spread{Median: 61, Rounds: 1}, ns)
	g.atMost("P10", "x", 60, Spread{}, ns)
	var met []bool
	for _, d := range g.done {
		met = append(met, d.OK)
	}
	if !slices.Equal(met, []bool{true, false, false, false}) || g.done[3].Value != notRun {
		t.Errorf("%+v", g.done)
	}
}

// TestPeers: P9 comes from the peers' rows; a row that is missing or not complete is not run.
func TestPeers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers.json")
	rows := `{"library":"gapless","arm":"noop/unordered","records":4000000,"seconds":2,"cpu_ns_per_record":300,"complete":true,"more":1}

{"library":"sarama","arm":"noop/group","records":1000000,"seconds":1,"cpu_ns_per_record":900,"complete":true}
{"library":"kafka-go","arm":"noop/reader","records":1000000,"seconds":1,"cpu_ns_per_record":900,"complete":true}
{"library":"confluent-kafka-go","arm":"noop/backoff10","records":1000,"seconds":1,"cpu_ns_per_record":900,"complete":false}
`
	if err := os.WriteFile(path, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Goals(t.Context(), GoalsConfig{Only: []string{"P9"}, Peers: path})
	if err != nil {
		t.Fatal(err)
	}
	value := map[string]string{}
	for _, g := range r.Goals {
		value[g.What] = g.Value + " " + g.word()
		if strings.Contains(g.What, "java-executor") {
			t.Errorf("a goal for an arm that only counts where it runs: %s", g.What)
		}
	}
	for what, want := range map[string]string{
		"noop, unordered over sarama (group): records/s": "2 x met", "noop, unordered over sarama (group): CPU a record": "0.333 x met",
		"noop, unordered over kafka-go (reader): records/s":              "2 x MISSED",
		"noop, unordered over confluent-kafka-go (backoff10): records/s": "not run not run", "noop, key over parallel-consumer (key): records/s": "not run not run",
	} {
		if value[what] != want {
			t.Errorf("%s: %q, not %q", what, value[what], want)
		}
	}
	for _, bad := range []string{"nonsense", `{"library":"x"}`, `{"library":"x","arm":"noop"}`} {
		if _, err := ReadPeers(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestDocs: the page is made of the results that were kept, with the machine, and a command for every figure.
func TestDocs(t *testing.T) {
	r := &GoalReport{Machine: Machine{Cores: 2, CPU: "some", System: "test", Go: "go1"}, Rounds: 3, Seconds: 1, Began: time.Unix(0, 0)}
	g := &goals{}
	g.atLeast("P1", "a | b", 0.95, Spread{Median: 1, Least: 0.9, Most: 1.1, Rounds: 3})
	g.add(Goal{ID: "P9", What: "peers", Value: notRun})
	r.Goals = g.done
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	back, err := ReadGoals(&b)
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := back.WriteDocs(&b, "goals.json"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 cores of some", "1 of 2 are met", "## P1: Speed", `| a \| b | >= 0.95 | 1 | 0.9 to 1.1 | met |`, "`gapless bench goals --only P1`", "go run ./bench/peers --json", "| not run |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	for _, bad := range []string{"", "[]", "{}"} {
		if _, err := ReadGoals(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
	for _, id := range GoalIDs() {
		if about[id] == "" {
			t.Errorf("%s has no heading", id)
		}
	}
}

// TestSweepOfOwnHandler: Sweep logs what it measured and which count to use.
func TestSweepOfOwnHandler(t *testing.T) {
	l := &logged{TB: t}
	cfg := short(with(t, "partitions", "2", "workers", "2"), with(t, "partitions", "2", "workers", "4"))
	Sweep(l, cfg)
	if !strings.Contains(l.text, "records/s") || !strings.Contains(l.text, "Use ") {
		t.Errorf("logged: %s", l.text)
	}
}

type logged struct {
	testing.TB
	text string
}

func (l *logged) Logf(format string, args ...any) {
	l.text += format + strings.Join(stringsOf(args), "")
}

func stringsOf(args []any) (s []string) {
	for _, a := range args {
		if x, ok := a.(string); ok {
			s = append(s, x)
		}
	}
	return s
}
