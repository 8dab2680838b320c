package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// PeerRow is a line of what the peers' command (bench/peers, --json) writes: one library in one workload on a real Kafka. Other fields
// are ignored.
type PeerRow struct {
	// Library is whose consumer it is: gapless, franz-go, sarama, ...
	Library string `json:"library"`
	// Arm is the workload and the library's mode, "noop/unordered": the workloads are noop, fixed-100, fixed-1000 (2 ms, so many
	// at once, one partition), pareto-100 and pareto-1000.
	Arm     string  `json:"arm"`
	Records int64   `json:"records"`
	Seconds float64 `json:"seconds"` // from the first record to the last
	// CPUPerRecord is the whole process's, in nanoseconds.
	CPUPerRecord float64 `json:"cpu_ns_per_record"`
	// Complete says that every record was handled once and committed. A row that is not counts as not run.
	Complete bool `json:"complete"`
}

// ReadPeers reads such lines, one object each.
func ReadPeers(r io.Reader) (rows []PeerRow, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for n := 1; s.Scan(); n++ {
		text := strings.TrimSpace(s.Text())
		if text == "" {
			continue
		}
		var row PeerRow
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			return nil, fmt.Errorf("line %d is not a row of the peers' command (its --json): %w", n, err)
		}
		if row.Library == "" || !strings.Contains(row.Arm, "/") {
			return nil, fmt.Errorf(`line %d has no library, or no arm such as "noop/unordered": is it written by the peers' command (its --json)?`, n)
		}
		rows = append(rows, row)
	}
	return rows, s.Err()
}

// against is a comparison of P9: ours over theirs.
type against struct {
	library, arm string
	own          string  // our arm
	rate, cpu    float64 // least ratio of the rates, most of the CPU; 0 = no goal
	ifRun        bool    // no goal where the row is missing
}

var peerGoals = []against{
	{"kafka-java", "noop/perf-tool", "noop/unordered", 1.6, 0.35, false},
	{"sarama", "noop/group", "noop/unordered", 1.9, 0.5, false},
	{"kafka-go", "noop/reader", "noop/unordered", 4.8, 0.5, false},
	{"confluent-kafka-go", "noop/backoff10", "noop/unordered", 6, 0.5, false},
	{"aiokafka", "noop/getmany", "noop/unordered", 8, 0.15, false},
	{"aiokafka", "fixed-100/gather", "fixed-100/unordered", 1.7, 0, false},
	{"share-group", "noop/java-perf-tool", "noop/unordered", 28, 0.08, false},
	{"share-group", "fixed-100/java-executor", "fixed-100/unordered", 1.5, 0, true},
	{"share-group", "fixed-1000/java-executor", "fixed-1000/unordered", 1.5, 0, true},
	{"parallel-consumer", "noop/unordered", "noop/unordered", 55, 0.02, false},
	{"parallel-consumer", "noop/key", "noop/key", 80, 0.02, false},
	{"parallel-consumer", "fixed-100/unordered", "fixed-100/unordered", 1.55, 0, false},
	{"parallel-consumer", "fixed-1000/unordered", "fixed-1000/unordered", 10, 0, false},
	{"parallel-consumer", "fixed-100/key", "fixed-100/key", 2.6, 0, false},
	{"franz-go", "fixed-100/errgroup", "fixed-100/unordered", 0.98, 0.7, false},
	{"franz-go", "fixed-1000/errgroup", "fixed-1000/unordered", 1.25, 0.7, false},
	{"franz-go", "pareto-100/errgroup", "pareto-100/unordered", 2, 0, false},
	{"franz-go", "pareto-1000/errgroup", "pareto-1000/unordered", 2, 0, false},
}

// peers is P9, from what the peers' command measured.
func (g *goals) peers(context.Context) error {
	if g.cfg.Peers == "" {
		for _, a := range peerGoals {
			g.compare(a, nil)
		}
		return nil
	}
	f, err := os.Open(g.cfg.Peers)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	rows, err := ReadPeers(f)
	if err != nil {
		return fmt.Errorf("%s: %w", g.cfg.Peers, err)
	}
	for _, a := range peerGoals {
		g.compare(a, rows)
	}
	return nil
}

func (g *goals) compare(a against, rows []PeerRow) {
	own, theirs := middle(rows, "gapless", a.own), middle(rows, a.library, a.arm)
	if a.ifRun && theirs == nil {
		return
	}
	one := func(what, goal string, value func() (float64, bool)) {
		d := Goal{ID: "P9", What: fmt.Sprintf("%s, %s over %s (%s): %s", strings.Split(a.arm, "/")[0], strings.Split(a.own, "/")[1], a.library, strings.Split(a.arm, "/")[1], what), Goal: goal, Value: notRun}
		if own != nil && theirs != nil {
			x, ok := value()
			d.Value, d.OK = ratio(x)+" x", ok
		}
		g.add(d)
	}
	if a.rate > 0 {
		one("records/s", ">= "+ratio(a.rate)+" x", func() (float64, bool) { x := own.rate / theirs.rate; return x, x >= a.rate })
	}
	if a.cpu > 0 {
		one("CPU a record", "<= "+ratio(a.cpu)+" x", func() (float64, bool) { x := own.cpu / theirs.cpu; return x, x > 0 && x <= a.cpu })
	}
}

type peerFigures struct{ rate, cpu float64 }

// middle are the medians of a library's rows for an arm; nil where there is none, or one is not complete.
func middle(rows []PeerRow, library, arm string) *peerFigures {
	var rates, cpus []float64
	for _, r := range rows {
		if r.Library != library || r.Arm != arm {
			continue
		}
		if !r.Complete || r.Seconds <= 0 {
			return nil
		}
		rates, cpus = append(rates, float64(r.Records)/r.Seconds), append(cpus, r.CPUPerRecord)
	}
	if rates == nil {
		return nil
	}
	return &peerFigures{spreadOf(rates).Median, spreadOf(cpus).Median}
}
