package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/jsonl"
	"github.com/gaplesshq/gapless/engine"
)

// A value that is made to be slow, or to use up the stack, costs what its length does and has no business key. Each of these took
// minutes or ended the process before there were limits.
func TestDeepValuesHaveNoKey(t *testing.T) {
	nest := func(open, inner, shut string, n int) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	for name, v := range map[string]string{
		"arrays":         `{"id":` + nest("[", "", "]", 200_000) + `}`,
		"objects":        `{"id":` + nest(`{"a":`, "1", "}", 100_000) + `}`,
		"exponent":       `{"id":1e` + strings.Repeat("9", 1_000_000) + `}`,
		"deep elsewhere": `{"x":` + nest("[", "", "]", 2_000_000) + `,"id":1}`,
		"just too deep":  `{"id":` + nest("[", "", "]", deepestKey+1) + `}`,
		"unclosed":       strings.Repeat(`{"id":[`, 1_000_000),
		"quotes":         `{"id":` + strings.Repeat(`"\"`, 100_000),
	} {
		if _, has := keyOf(t, "json:id", v); has {
			t.Errorf("%s: has a key", name)
		}
	}
	for name, v := range map[string]string{
		"as deep as may be": `{"id":` + nest("[", "", "]", deepestKey) + `}`,
		"brackets in text":  `{"id":["` + strings.Repeat("[", 1000) + `\"[["]}`,
		"deep elsewhere":    `{"x":` + nest("[", "", "]", 1000) + `,"id":1}`,
		"exponent":          `{"id":1e` + strings.Repeat("9", longestExponent-1) + `}`,
		"long number":       `{"id":` + strings.Repeat("9", 100_000) + `}`,
		"long text":         `{"id":"` + strings.Repeat("e1", 100_000) + `"}`,
	} {
		if _, has := keyOf(t, "json:id", v); !has {
			t.Errorf("%s: has no key", name)
		}
	}
}

// FuzzDedupeKey: no path and no value harms, and the key of a value that is JSON does not depend on how it is written.
func FuzzDedupeKey(f *testing.F) {
	for _, path := range []string{"json:id", "json:order.id", "json:lines.0.sku", `json:a\.b`, "header:X", "key", "json:", "json:a..b", "json:*", "json:@this"} {
		for _, value := range []string{`{"id":1}`, `{"order":{"id":"A"}}`, `{"lines":[{"sku":1e3}]}`, `{"a.b":[{}]}`, `{"id":"\ud800"}`, "{\"id\":\"\xff\"}", `{"id":`, "", `{"id":{"b":1,"a":[1.0,-0,1e999]}}`} {
			f.Add(path, value)
		}
	}
	f.Fuzz(func(t *testing.T, path, value string) {
		key, err := parseDedupeKey(path)
		if err != nil {
			return
		}
		k := key(nil, &kgo.Record{Key: []byte("k"), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "X", Value: []byte("x")}}})
		if again := key(make([]byte, 0, 64), &kgo.Record{Key: []byte("k"), Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "X", Value: []byte("x")}}}); !bytes.Equal(k, again) {
			t.Fatalf("%q and %q", k, again)
		}
		if !strings.HasPrefix(path, "json:") || k == nil {
			return
		}
		var spaced bytes.Buffer
		if json.Indent(&spaced, []byte(value), " ", "\t") != nil {
			return // deeper than encoding/json goes
		}
		if other := key(nil, &kgo.Record{Value: spaced.Bytes()}); !bytes.Equal(k, other) {
			t.Fatalf("%q and, with spaces, %q", k, other)
		}
	})
}

// FuzzInput: what "gapless produce" reads from stdin, whatever it is, makes a record or an error; and what it makes of a JSON line is
// printed so that it can be produced again.
func FuzzInput(f *testing.F) {
	for _, s := range []string{"", "v", "k:v", ":", `{"key":"k","value":null}`, `{"key":"/w==","key_encoding":"base64"}`, `{"headers":[{"key":"","value":""}]}`,
		`{"offset":9223372036854775808}`, `{"value":"\ud800"}`, `{"value":1}`, `{} {}`, `{"nope":1}`, "{\"value\":\"\xff\"}", `{"headers":null,"topic":"t","partition":-1}`, "\x00", "{\"key\":\"k\"}\r\n{\"key\":\"j\"}"} {
		f.Add(s, true, "")
		f.Add(s, false, ":")
	}
	f.Fuzz(func(t *testing.T, in string, asJSON bool, separator string) {
		l := &lines{json: asJSON, separator: separator}
		err := l.read(context.Background(), strings.NewReader(in), func(r *kgo.Record) error {
			if !asJSON {
				return nil
			}
			var buf bytes.Buffer
			if err := jsonl.Append(&buf, r); err != nil {
				t.Fatalf("%+v can't be printed: %v", r, err)
			}
			if !utf8.Valid(buf.Bytes()) || bytes.Count(buf.Bytes(), []byte("\n")) != 1 {
				t.Fatalf("printed as %q", buf.Bytes())
			}
			again, err := jsonl.Parse(buf.Bytes())
			if err != nil || !bytes.Equal(again.Key, r.Key) || !bytes.Equal(again.Value, r.Value) || len(again.Headers) != len(r.Headers) || (again.Key == nil) != (r.Key == nil) {
				t.Fatalf("%+v was printed as %s and read as %+v, %v", r, buf.Bytes(), again, err)
			}
			return nil
		})
		if err != nil && !utf8.ValidString(err.Error()) {
			t.Fatalf("an error that is not text: %q", err.Error())
		}
	})
}

// FuzzFlags: no text of a setting harms, and what is refused is refused in words.
func FuzzFlags(f *testing.F) {
	for _, s := range settingTable {
		f.Add(s.flag, "1")
		f.Add(s.flag, "")
	}
	for _, v := range []string{"-1", "9223372036854775808", "1e999", "NaN", "14d", "99999999999d", "1MiB", "9999999PiB", "2026-01-31T00:00:00Z", "\x00", "a,b,\"", "\xff"} {
		f.Add("workers", v)
		f.Add("max-bytes", v)
		f.Add("start", v)
		f.Add("retry-max", v)
		f.Add("retry-jitter", v)
		f.Add("topic", v)
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		var cfg engine.Config
		flags := pflag.NewFlagSet("fuzz", pflag.ContinueOnError)
		register(flags, &cfg)
		if flags.Lookup(name) == nil {
			return
		}
		if err := flags.Set(name, value); err != nil {
			return
		}
		cfg.Handler = engine.HandlerFunc(func(context.Context, *engine.Record) error { return nil })
		cfg.TLS = engine.TLS{} // its files would be read
		_, _ = engine.New(cfg)
	})
}
