package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/pflag"
)

// fields are the paths of all fields of engine.Config, down to the ones that are not a struct of its own package.
func fields(t reflect.Type, prefix string) []string {
	var paths []string
	for f := range t.Fields() {
		path := prefix + f.Name
		inner := f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == t.PkgPath() && f.Type != reflect.TypeFor[engine.Start]()
		if inner {
			paths = append(paths, fields(f.Type, path+".")...)
		} else {
			paths = append(paths, path)
		}
	}
	return paths
}

// Every field of Config is a flag, or on the list of those that are not, with its reason.
func TestEveryFieldIsAFlag(t *testing.T) {
	flagOf := map[string]string{}
	seen := map[string]bool{}
	for _, s := range settingTable {
		if flagOf[s.field] != "" || seen[s.flag] {
			t.Errorf("%s / --%s stands twice in the table", s.field, s.flag)
		}
		flagOf[s.field], seen[s.flag] = s.flag, true
	}
	known := map[string]bool{}
	for _, path := range fields(reflect.TypeFor[engine.Config](), "") {
		known[path] = true
		switch reason := notFlags[path]; {
		case flagOf[path] == "" && reason == "":
			t.Errorf("Config.%s has no flag: add it to the table, or to notFlags with the reason", path)
		case flagOf[path] != "" && reason != "":
			t.Errorf("Config.%s has the flag --%s, and stands in notFlags", path, flagOf[path])
		}
	}
	for path := range notFlags {
		if !known[path] {
			t.Errorf("notFlags has %s, which Config has not", path)
		}
	}
}

// Every flag of the table sets its own field and no other.
func TestFlagsSetTheirFields(t *testing.T) {
	for _, s := range settingTable {
		var got, untouched engine.Config
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		register(flags, &got)
		text, want := sample(s, fieldOf(&untouched, s.field))
		if err := flags.Parse([]string{"--" + s.flag + "=" + text}); err != nil {
			t.Errorf("--%s=%s: %v", s.flag, text, err)
			continue
		}
		f := fieldOf(&got, s.field)
		if !reflect.DeepEqual(f.Interface(), want) {
			t.Errorf("--%s=%s set Config.%s to %v, want %v", s.flag, text, s.field, f.Interface(), want)
		}
		f.SetZero()
		if !reflect.DeepEqual(got, untouched) {
			t.Errorf("--%s changed more than Config.%s: %+v", s.flag, s.field, got)
		}
	}
}

// sample is a text for a flag, and what the field is then.
func sample(s setting, field reflect.Value) (text string, want any) {
	if s.choices != nil {
		last := s.choices[len(s.choices)-1]
		return last, reflect.ValueOf(last).Convert(field.Type()).Interface()
	}
	switch field.Interface().(type) {
	case []string:
		return "a:1,b:2", []string{"a:1", "b:2"}
	case bool:
		return "true", true
	case time.Duration:
		return "7s", 7 * time.Second
	case float64:
		return "0.25", 0.25
	case int32:
		return "2KiB", int32(2048)
	case int64:
		return "2KiB", int64(2048)
	case int16:
		return "3", int16(3)
	case int:
		return "5", 5
	case engine.Start:
		at := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
		return "2026-01-31T00:00:00Z", engine.StartAt(at)
	}
	return "text", "text"
}

// The engine takes 0 for "the default". A flag that was given means what it says, or is refused.
func TestExplicitZero(t *testing.T) {
	for _, s := range settingTable {
		var cfg engine.Config
		f := fieldOf(&cfg, s.field)
		if f.Kind() == reflect.String || f.Kind() == reflect.Bool || f.Kind() == reflect.Slice || f.Kind() == reflect.Struct {
			continue
		}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		register(flags, &cfg)
		err := flags.Parse([]string{"--" + s.flag + "=0"})
		switch s.zero {
		case zeroRefused:
			if err == nil || !strings.Contains(err.Error(), "is not allowed to be 0") {
				t.Errorf("--%s=0: %v, want a refusal", s.flag, err)
			}
		case zeroIsNone:
			if err != nil || f.CanInt() && f.Int() != -1 || f.CanFloat() && f.Float() != -1 {
				t.Errorf("--%s=0 became %v (%v), want -1", s.flag, f.Interface(), err)
			}
		case zeroIsZero:
			if err != nil || !f.IsZero() {
				t.Errorf("--%s=0 became %v (%v), want 0", s.flag, f.Interface(), err)
			}
		}
	}
}

// --workers takes a word, too.
func TestWorkersAuto(t *testing.T) {
	var cfg engine.Config
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	register(flags, &cfg)
	if err := flags.Parse([]string{"--workers=auto", "--workers-min=4", "--workers-max=99"}); err != nil || cfg.Workers != engine.Auto || cfg.MinWorkers != 4 || cfg.MaxWorkers != 99 {
		t.Errorf("%v: %d, %d to %d", err, cfg.Workers, cfg.MinWorkers, cfg.MaxWorkers)
	}
}

func TestWrongValues(t *testing.T) {
	for _, arg := range []string{
		"--workers=x", "--workers=-1", "--workers=1.5", "--retry-jitter=x", "--retry-jitter=NaN", "--retry-jitter=-1", "--order=kye", "--start=tomorrow",
		"--commit-interval=5", "--commit-interval=-5s", "--fetch-max-bytes=4GiB", "--max-bytes=x", "--dead-letter-replication=40000", "--tls=maybe",
	} {
		var cfg engine.Config
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		register(flags, &cfg)
		name, _, _ := strings.Cut(arg, "=")
		if err := flags.Parse([]string{arg}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want a refusal that names the flag", arg, err)
		}
	}
}

// What the engine says about its Config is put into the words of the command.
func TestRefusalsNameTheFlag(t *testing.T) {
	good := func() engine.Config {
		return engine.Config{Brokers: []string{"h:1"}, Group: "g", Topics: []string{"t"}, Handler: engine.HandlerFunc(nil)}
	}
	a := &app{origins: map[string]string{"retry-max": "GAPLESS_RETRY_MAX", "tls-cert-file": "gapless.yaml:4: tls-cert-file"}}
	for _, c := range []struct {
		spoil func(c *engine.Config)
		want  string
	}{
		{func(c *engine.Config) { c.Group = "" }, "--group: empty"},
		{func(c *engine.Config) { c.Brokers = nil }, "--brokers: none given"},
		{func(c *engine.Config) { c.Topics = nil }, "--topic: set exactly one of --topic and --topic-pattern"},
		{func(c *engine.Config) { c.Retry.Base, c.Retry.Max = 2, 1 }, "GAPLESS_RETRY_MAX: 1ns is below --retry-base (2ns)"},
		{func(c *engine.Config) { c.TLS.CertFile = "x" }, "gapless.yaml:4: tls-cert-file: --tls-cert-file and --tls-key-file go together"},
		{func(c *engine.Config) { c.SASL.Mechanism = "PLAIN" }, "--sasl-mechanism: PLAIN needs both --sasl-user and --sasl-password-file"},
		{func(c *engine.Config) { c.SASL.Mechanism = "OAUTHBEARER" }, "--sasl-token-file: OAUTHBEARER needs"},
		{func(c *engine.Config) { c.WorkersPerPartition = 65 }, "--workers-per-partition: 65 is above --workers (64)"},
		{func(c *engine.Config) { c.LeaveOnStop = true }, "set --instance-id, or drop it"},
	} {
		cfg := good()
		c.spoil(&cfg)
		_, err := engine.New(cfg)
		if err == nil {
			t.Errorf("want %q, got no error", c.want)
			continue
		}
		got := a.refusal(err)
		if !strings.Contains(got.Error(), c.want) || got.(*exitError).code != exitUsage {
			t.Errorf("got %q, want %q with exit code 2", got, c.want)
		}
	}
}
