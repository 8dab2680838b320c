package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// quick are the flags of a sweep that takes as little time as may be.
var quick = []string{"--rounds=1", "--duration=20ms", "--warm=1ms", "--partitions=2"}

func TestBench(t *testing.T) {
	dir := t.TempDir()
	page, figures, lines := filepath.Join(dir, "p.html"), filepath.Join(dir, "f.csv"), filepath.Join(dir, "l.json")
	out := must(t, "", append([]string{"bench", "--synthetic", "--handler=none,sleep:1ms", "--workers=1,4", "--html=" + page, "--csv=" + figures, "--json-file=" + lines}, quick...)...)
	if strings.Count(out, "pipeline") != 4 || !strings.Contains(out, "slots full") {
		t.Errorf("the table:\n%s", out)
	}
	for path, want := range map[string]string{page: "gapless bench --synthetic=true --handler none,sleep:1ms --workers 1,4", figures: "records_per_second", lines: `"arm":"pipeline"`} {
		if b, err := os.ReadFile(path); err != nil || !bytes.Contains(b, []byte(want)) {
			t.Errorf("%s has no %q: %v", path, want, err)
		}
	}
	out = must(t, "", append([]string{"bench", "--handler=none", "--workers=2", "--json"}, quick...)...)
	if n := strings.Count(strings.TrimSpace(out), "\n") + 1; n != 3 {
		t.Errorf("%d lines: %s", n, out)
	}
}

func TestBenchRecommend(t *testing.T) {
	args := append([]string{"bench", "recommend", "--synthetic", "--handler=sleep:1ms", "--workers=1,8", "--target=1"}, quick...)
	if out := must(t, "", args...); !strings.Contains(out, "Use ") || !strings.Contains(out, " 1 records/s") {
		t.Errorf("%s", out)
	}
	var all []struct {
		Workers int
		Reasons []string
	}
	if out := must(t, "", append(args, "--json")...); json.Unmarshal([]byte(out), &all) != nil || len(all) != 1 || all[0].Workers < 1 || len(all[0].Reasons) < 2 {
		t.Errorf("%s", out)
	}
}

func TestBenchGoals(t *testing.T) {
	results := filepath.Join(t.TempDir(), "goals.json")
	out := must(t, "", "bench", "goals", "--only=P5,P9", "--rounds=1", "--json", "--results="+results)
	var goals []map[string]any
	if err := json.Unmarshal([]byte(out), &goals); err != nil || len(goals) < 20 {
		t.Fatalf("%v: %s", err, out)
	}
	for _, g := range goals {
		for _, field := range []string{"id", "what", "goal", "value", "ok"} {
			if _, has := g[field]; !has {
				t.Errorf("%v has no %s", g, field)
			}
		}
		if g["id"] == "P9" && (g["ok"] != false || g["value"] != "not run") {
			t.Errorf("%v", g)
		}
	}
	if page := must(t, "", "bench", "docs", "--results="+results); !strings.Contains(page, "# Benchmarks") || !strings.Contains(page, "## P5") {
		t.Errorf("%s", page)
	}
}

// TestBenchRefusals: wrong flags are refused with a word on what to write instead.
func TestBenchRefusals(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"bench --workers=0", `--workers "0": write a whole number from 1`}, {"bench --workers=1,,2", `--workers "": write`}, {"bench --handler=nap", "sleep:2ms"},
		{"bench --rounds=0", "write 1 or more"}, {"bench --duration=0s", "write 10ms or more"}, {"bench --warm=0s", "write 1ms or more"},
		{"bench --synthetic --rate=10", "need a broker"}, {"bench --arm=kafka-go", "gapless or errgroup"}, {"bench --topic=t", "on which brokers"},
		{"bench --brokers=localhost:1", "set records"}, {"bench t", "unexpected argument"}, {"bench goals --only=P3", "P1, P2, P4"}, {"bench goals --rounds=0", "write 1 or more"},
		{"bench goals --peers=/nowhere.json", "go run ./bench/peers"}, {"bench docs", "--results is missing"}, {"bench recommend --target=-1", "write how many"},
	} {
		if r := command(t, "", nil, strings.Fields(c.args)...); r.code != exitUsage || !strings.Contains(r.err, c.want) {
			t.Errorf("%s: exit code %d, %q does not say %q", c.args, r.code, r.err, c.want)
		}
	}
	if r := command(t, "", nil, "bench", "--brokers="+freeAddr(t), "--records=10", "--start-timeout=1s"); r.code != exitUnreachable {
		t.Errorf("nobody at the address: exit code %d, %s", r.code, r.err)
	}
}
