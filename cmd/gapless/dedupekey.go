package main

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gaplesshq/gapless/engine"
	"github.com/spf13/pflag"
	"github.com/tidwall/gjson"
	"github.com/twmb/franz-go/pkg/kgo"
)

// dedupeKeyFlag is --dedupe-key: where a record's business key is.
type dedupeKeyFlag struct{ text string }

func (f *dedupeKeyFlag) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.text, "dedupe-key", "", "what of a record is its business `key`, of which one is handled: key (the record's own), header:NAME, or json:PATH in its value, such as json:order.id")
	section(flags, secDedupe, "dedupe-key")
}

// fill puts the key function into cfg.
func (f *dedupeKeyFlag) fill(cfg *engine.Config, a *app) (err error) {
	if f.text == "" {
		return nil
	}
	if cfg.Dedupe.Key, err = parseDedupeKey(f.text); err != nil {
		return usageError("%s: %w", a.origins.Of("dedupe-key"), err)
	}
	return nil
}

// checkDedupe refuses settings of a store that nobody asked for: whoever sets a retention believes to have one.
func (a *app) checkDedupe(cfg *engine.Config) error {
	d := &cfg.Dedupe
	if d.Enable || d.Dir != "" || d.Base != "" || d.Key != nil {
		return nil
	}
	for _, s := range settingTable {
		if at, set := a.origins[s.flag]; set && s.section == secDedupe && !fieldOf(cfg, s.field).IsZero() {
			return usageError("%s: has an effect with a store only: add --dedupe-key, --dedupe, --dedupe-dir or --dedupe-base", at)
		}
	}
	return nil
}

type keyFunc = func(dst []byte, r *kgo.Record) []byte

func parseDedupeKey(text string) (keyFunc, error) {
	kind, rest, has := strings.Cut(text, ":")
	switch {
	case text == "key":
		return engine.RecordKey, nil
	case kind == "header" && rest != "":
		return engine.HeaderKey(rest), nil
	case kind == "json" && has:
		if err := checkPath(rest); err != nil {
			return nil, fmt.Errorf("%q: %w", rest, err)
		}
		return jsonKey(rest), nil
	}
	return nil, fmt.Errorf("%q is not key, header:NAME or json:PATH, such as header:Idempotency-Key or json:order.id", text)
}

// checkPath allows plain paths: names and indexes between dots. What the library knows beyond that (wildcards, counts, queries,
// several paths in one) may find the same in records that are different, and a wrong duplicate is a lost record.
func checkPath(path string) error {
	begun := false
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '\\' && i+1 < len(path):
			i++
			begun = true
		case c == '.' && !begun:
			return fmt.Errorf("a name is missing; write order.id, lines.0.sku, or a\\.b for a name with a dot")
		case c == '.':
			begun = false
		case strings.IndexByte(`*?#|@![]{}()"=<>%~\`, c) >= 0:
			return fmt.Errorf("%q is not allowed in a path, which is names and numbers with dots between them; write \\%c where it is part of a name", c, c)
		default:
			begun = true
		}
	}
	if !begun {
		return fmt.Errorf("a name is missing; write order.id, lines.0.sku, or a\\.b for a name with a dot")
	}
	return nil
}

// Values are written by strangers, and what reads them goes down level by level: deep ones would take minutes, or the whole stack.
const (
	deepestValue    = 10_000 // as encoding/json allows
	deepestKey      = 32
	longestExponent = 100 // digits
)

// jsonKey takes what lies at a path of the value. Values that are not JSON, and those with nothing, null or "" there, have no
// business key, nor have those that go too deep.
func jsonKey(path string) keyFunc {
	return func(dst []byte, r *kgo.Record) []byte {
		if !within(r.Value, deepestValue, len(r.Value)) || !gjson.ValidBytes(r.Value) {
			return nil
		}
		v := gjson.GetBytes(r.Value, path)
		if v.Type != gjson.String && !within([]byte(v.Raw), deepestKey, longestExponent) {
			return nil
		}
		key, ok := appendCanonical(dst, v)
		if !ok {
			return nil
		}
		return key
	}
}

// within says whether JSON is nested no deeper than depth, and no exponent in it has more digits than that.
func within(b []byte, depth, exponent int) bool {
	level, digits := 0, 0
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c >= '0' && c <= '9' || c == '+' || c == '-' {
			if digits > 0 {
				if digits++; digits > exponent {
					return false
				}
			}
			continue
		}
		digits = 0
		switch c {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			if level++; level > depth {
				return false
			}
		case ']', '}':
			level--
		case 'e', 'E': // of a number, or of true and false, which no digit follows
			digits = 1
		}
	}
	return true
}

// jsonMark begins the key of everything but a string. It is in no text, so 1 and "1" are two keys.
const jsonMark = 0xff

// appendCanonical writes a JSON value so that equal values are equal keys, and no others. A string is its text, so it is the
// same key as that text in a header or as a record's key. A number is its value, exactly, however it is written: 1, 1.0 and 1e0
// are one, and two ids that differ in the twentieth digit are two. Members of objects are sorted. ok is false where there is no key.
func appendCanonical(dst []byte, v gjson.Result) (key []byte, ok bool) {
	switch v.Type {
	case gjson.Null: // nothing is there, too
		return nil, false
	case gjson.String:
		if v.Str == "" || !utf8.ValidString(v.Str) {
			return nil, false
		}
		return append(dst, v.Str...), true
	default:
		return appendJSON(append(dst, jsonMark), v), true
	}
}

// appendJSON writes a value as JSON in its one form.
func appendJSON(dst []byte, v gjson.Result) []byte {
	switch {
	case v.IsObject():
		var members []string
		v.ForEach(func(name, value gjson.Result) bool {
			members = append(members, string(appendJSON(append(strconv.AppendQuote(nil, name.Str), ':'), value)))
			return true
		})
		slices.Sort(members)
		return append(append(append(dst, '{'), strings.Join(members, ",")...), '}')
	case v.IsArray():
		dst = append(dst, '[')
		first := true
		v.ForEach(func(_, value gjson.Result) bool {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = appendJSON(dst, value)
			return true
		})
		return append(dst, ']')
	case v.Type == gjson.String:
		return strconv.AppendQuote(dst, v.Str)
	case v.Type == gjson.Number:
		return appendNumber(dst, v.Raw)
	}
	return append(dst, v.Raw...) // true, false, null
}

// appendNumber writes a number as digits without zeros at their ends, and a power of ten.
func appendNumber(dst []byte, raw string) []byte {
	sign := strings.HasPrefix(raw, "-")
	mantissa, exponent := strings.TrimPrefix(raw, "-"), new(big.Int)
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		exponent.SetString(strings.TrimPrefix(mantissa[i+1:], "+"), 10)
		mantissa = mantissa[:i]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return append(dst, '0')
	}
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	short := strings.TrimRight(digits, "0")
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(short))))
	if sign {
		dst = append(dst, '-')
	}
	return append(append(append(dst, short...), 'e'), exponent.String()...)
}
