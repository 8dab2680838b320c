package settings_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/settings"
	"github.com/spf13/pflag"
)

type values struct {
	workers int
	name    string
	topics  []string
	tls     bool
	size    settings.Bytes
	wait    settings.Duration
}

func flagSet(v *values) *pflag.FlagSet {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f.IntVar(&v.workers, "workers", 64, "")
	f.StringVar(&v.name, "client-id", "gapless", "")
	f.StringSliceVar(&v.topics, "topic", nil, "")
	f.BoolVar(&v.tls, "tls", false, "")
	f.Var(&v.size, "max-bytes", "")
	f.Var(&v.wait, "retry-max", "")
	f.String("config", "", "")
	f.Bool("help", false, "")
	return f
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gapless.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func foreign(key string) bool { return key == "watch" }

func TestPrecedence(t *testing.T) {
	defaults := values{workers: 64, name: "gapless"}
	for _, c := range []struct {
		name, file string
		args, env  []string
		want       func(v *values)
	}{
		{name: "defaults", want: func(*values) {}},
		{name: "file", file: "workers: 1", want: func(v *values) { v.workers = 1 }},
		{name: "environment over file", file: "workers: 1", env: []string{"GAPLESS_WORKERS=2"}, want: func(v *values) { v.workers = 2 }},
		{name: "flag over both", file: "workers: 1", env: []string{"GAPLESS_WORKERS=2"}, args: []string{"--workers=3"}, want: func(v *values) { v.workers = 3 }},
		{name: "a flag at its default still wins", file: "workers: 1", args: []string{"--workers=64"}, want: func(*values) {}},
		{name: "an empty variable is unset", file: "workers: 1", env: []string{"GAPLESS_WORKERS="}, want: func(v *values) { v.workers = 1 }},
		{name: "other variables don't matter", env: []string{"WORKERS=2", "GAPLESS_OTHER=1"}, want: func(*values) {}},
		{name: "lists", file: "topic: [a, \"b,c\"]", want: func(v *values) { v.topics = []string{"a", "b,c"} }},
		{name: "a list in the environment", file: "topic: [a]", env: []string{"GAPLESS_TOPIC=b,c"}, want: func(v *values) { v.topics = []string{"b", "c"} }},
		{name: "one value for a list", file: "topic: a", want: func(v *values) { v.topics = []string{"a"} }},
		{name: "as written", file: "client-id: 007", want: func(v *values) { v.name = "007" }},
		{name: "a date is no time", file: "client-id: 2026-01-31", want: func(v *values) { v.name = "2026-01-31" }},
		{name: "yes is a word", file: "client-id: yes", want: func(v *values) { v.name = "yes" }},
		{name: "nested keys", file: "retry:\n  max: 1m\nmax:\n  bytes: 1MiB", want: func(v *values) { v.wait = settings.Duration(time.Minute); v.size = 1 << 20 }},
		{name: "another command's key", file: "watch: true\ntls: true", want: func(v *values) { v.tls = true }},
		{name: "an empty file", file: "# nothing\n", want: func(*values) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got values
			f := flagSet(&got)
			if err := f.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			path := ""
			if c.file != "" {
				path = write(t, c.file)
			}
			if _, err := settings.Apply(f, c.env, path, foreign); err != nil {
				t.Fatal(err)
			}
			want := defaults
			c.want(&want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct{ name, file, env, want string }{
		{"unknown key", "tls: true\nworkres: 3", "", `gapless.yaml:2: unknown key "workres"; did you mean "workers"?`},
		{"unknown nested key", "retry:\n  often: 3", "", `gapless.yaml:2: unknown key "retry-often"`},
		{"wrong value in the file", "workers: many", "", `gapless.yaml:1: workers: "many"`},
		{"wrong value in the environment", "workers: 3", "GAPLESS_WORKERS=many", `GAPLESS_WORKERS: "many"`},
		{"a list for one value", "workers: [1, 2]", "", "workers: takes one value, not a list"},
		{"given twice", "retry-max: 1s\nretry: {max: 2s}", "", "retry-max is given twice"},
		{"no value", "workers:", "", "workers has no value"},
		{"a secret", "sasl-password: x", "", "secrets have no place among settings"},
		{"not settings", "- a\n- b", "", "is not a list of `name: value` lines"},
		{"not YAML", "workers: [", "", "gapless.yaml"},
		{"config itself", "config: other.yaml", "", `unknown key "config"`},
		{"an alias within itself", "retry: &a\n  max: *a", "", "nested more than 10 deep"},
		{"help", "help: true", "", `unknown key "help"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var v values
			_, err := settings.Apply(flagSet(&v), []string{c.env}, write(t, c.file), foreign)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	var v values
	if _, err := settings.Apply(flagSet(&v), nil, filepath.Join(t.TempDir(), "missing.yaml"), foreign); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestOrigins(t *testing.T) {
	var v values
	f := flagSet(&v)
	if err := f.Parse([]string{"--tls"}); err != nil {
		t.Fatal(err)
	}
	path := write(t, "workers: 1\nclient-id: x\ntls: false")
	o, err := settings.Apply(f, []string{"GAPLESS_CLIENT_ID=y"}, path, foreign)
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"workers": path + ":1: workers", "client-id": "GAPLESS_CLIENT_ID", "tls": "--tls", "max-bytes": "--max-bytes",
	} {
		if got := o.Of(flag); got != want {
			t.Errorf("%s came from %q, want %q", flag, got, want)
		}
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]settings.Bytes{"0": 0, "17": 17, "64k": 64 << 10, "1MiB": 1 << 20, "2 GB": 2 << 30, "512KiB": 512 << 10, "9b": 9} {
		var b settings.Bytes
		if err := b.Set(text); err != nil || b != want {
			t.Errorf("%q is %d, %v; want %d", text, b, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1.5MiB", "9999999999999GiB", "MiB"} {
		if err := new(settings.Bytes).Set(text); err == nil {
			t.Errorf("size %q was accepted", text)
		}
	}
	for text, want := range map[string]time.Duration{"250ms": 250 * time.Millisecond, "14d": 14 * 24 * time.Hour, "0": 0, "1m30s": 90 * time.Second} {
		if d, err := settings.ParseDuration(text); err != nil || d != want {
			t.Errorf("%q is %v, %v; want %v", text, d, err, want)
		}
	}
	for _, text := range []string{"", "5", "-1s", "-1d", "d", "1.5d", "999999999999d"} {
		if d, err := settings.ParseDuration(text); err == nil {
			t.Errorf("time span %q was accepted as %v", text, d)
		}
	}
}
