package bench

import (
	"slices"
	"strings"
	"testing"
)

// TestSetAndGet: what Get gives, Set takes, for every parameter and form.
func TestSetAndGet(t *testing.T) {
	forms := map[string][]string{
		"workers": {"1", "1000"}, "order": {"key", "unordered", "partition"}, "batch": {"0", "100"}, "fail": {"0", "0.25"}, "stuck": {"0", "3"},
		"handler":      {"none", "sleep:2ms", "exp:1.5ms", "pareto:2ms:1.5", "bykey:20ms", "cpu:10µs", "json", "http:0s", "http:5ms"},
		"record-bytes": {"1", "900"}, "partitions": {"1", "1000"}, "nulls": {"0", "1"}, "compression": {"none", "gzip", "snappy", "lz4", "zstd"},
		"keys": {"none", "uniform:1", "zipf:100:1.2", "hot:10:0.9"}, "rate": {"0", "0.5", "20000"}, "records": {"0", "1000000"},
		"commit": {"1s", "10ms", "records:100", "each"}, "dedupe": {"none", "windows", "store", "keys", "duplicates"}, "members": {"1", "2"},
	}
	for _, p := range Params() {
		if forms[p.Name] == nil {
			t.Errorf("%s is not tested", p.Name)
		}
		c := DefaultCase()
		if err := c.Set(p.Name, p.Default()); err != nil || c != DefaultCase() {
			t.Errorf("%s: its default %q makes another case (%v)", p.Name, p.Default(), err)
		}
		for _, form := range forms[p.Name] {
			if err := c.Set(p.Name, form); err != nil {
				t.Errorf("%s %s: %v", p.Name, form, err)
			} else if got := c.Get(p.Name); got != form || c.Values()[p.Name] != form {
				t.Errorf("%s: %q became %q", p.Name, form, got)
			}
		}
	}
	c := with(t, "handler", "pareto:2ms", "keys", "zipf:5")
	if c.Handler.Shape != 1.5 || c.Keys.Skew != 1.1 {
		t.Errorf("what is left out has no default: %v, %v", c.Handler, c.Keys)
	}
}

// TestRefusals: a wrong value is refused with a word on what to write instead.
func TestRefusals(t *testing.T) {
	for _, w := range []struct{ name, value, want string }{
		{"workers", "0", "from 1 to"}, {"workers", "many", "whole number"}, {"workers", "1e3", "whole number"}, {"order", "fifo", "key, unordered, partition"},
		{"handler", "sleep", "sleep:2ms"}, {"handler", "sleep:0s", "the time"}, {"handler", "sleep:2", "the time"}, {"handler", "nap:2ms", "none, sleep:2ms"},
		{"handler", "pareto:2ms:1", "the shape"}, {"handler", "json:2ms", "takes no time"}, {"handler", "cpu:2h", "at most 1m"}, {"handler", "own", "write none"},
		{"fail", "2", "from 0 to 1"}, {"nulls", "-1", "from 0 to 1"}, {"keys", "zipf:10:0.5", "the exponent"}, {"keys", "hot:10:2", "the hot key's share"},
		{"keys", "uniform:0", "the number of keys"}, {"keys", "gauss", "zipf:10000:1.1"}, {"keys", "none:3", "write none"}, {"compression", "brotli", "zstd"},
		{"commit", "often", "records:1000"}, {"commit", "records:0", "from 1"}, {"commit", "1ns", "at least 1ms"}, {"dedupe", "all", "windows"}, {"rate", "NaN", "number"},
		{"record-bytes", "1000000", "900000"}, {"members", "0", "from 1"}, {"worker", "1", "no parameter"},
	} {
		c := DefaultCase()
		if err := c.Set(w.name, w.value); err == nil || !strings.Contains(err.Error(), w.want) {
			t.Errorf("%s %q: %v, which does not say %q", w.name, w.value, err, w.want)
		}
	}
	for _, w := range []struct {
		want  string
		pairs []string
	}{
		{"exclude one another", []string{"rate", "10", "records", "10"}}, {"at most as many", []string{"stuck", "13"}},
		{"single record", []string{"handler", "bykey:2ms", "batch", "10"}}, {"nulls at 0", []string{"handler", "json", "nulls", "0.5"}},
		{"64 bytes", []string{"handler", "json", "record-bytes", "20"}},
	} {
		c := with(t, w.pairs...)
		if err := (Config{Cases: []Case{c}}).Check(); err == nil || !strings.Contains(err.Error(), w.want) {
			t.Errorf("%v: %v, which does not say %q", w.pairs, err, w.want)
		}
	}
}

// TestConfigRefusals: settings that contradict one another are refused.
func TestConfigRefusals(t *testing.T) {
	for want, c := range map[string]Config{
		"no case":               {},
		"exclude one another":   {Cases: []Case{DefaultCase()}, Synthetic: true, Brokers: []string{"b:9092"}},
		"need a broker":         {Cases: []Case{with(t, "records", "10")}, Synthetic: true},
		"without one":           {Cases: []Case{DefaultCase()}, Synthetic: true, Arms: []Arm{ArmEngine}},
		"with a broker":         {Cases: []Case{DefaultCase()}, Arms: []Arm{"sarama"}},
		"no log without end":    {Cases: []Case{DefaultCase()}, Brokers: []string{"b:9092"}},
		"say on which brokers":  {Cases: []Case{DefaultCase()}, Topic: "t"},
		"fail needs the engine": {Cases: []Case{with(t, "fail", "0.1")}, Synthetic: true},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestGrid: every combination, workers fastest, and the names of what differs.
func TestGrid(t *testing.T) {
	cases, err := Grid(DefaultCase(), map[string]string{"order": "key,unordered", "workers": "1, 16"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cases {
		got = append(got, describe(c, varied(cases)))
	}
	want := []string{"workers 1, order key", "workers 16, order key", "workers 1, order unordered", "workers 16, order unordered"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := Grid(DefaultCase(), map[string]string{"workers": "1,"}); err == nil {
		t.Error("an empty value in a list is taken")
	}
	if _, err := Grid(DefaultCase(), map[string]string{"wrokers": "1"}); err == nil {
		t.Error("an unknown name is taken")
	}
}
