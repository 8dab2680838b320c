package main

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"github.com/twmb/franz-go/pkg/kgo"
)

// FuzzResetPlace: what --to and --by of "gapless offsets reset" are given is refused in words, or it means the same once it is written
// the plain way. Where it leads to lies within the log, and it is said whenever that is not where it was to lead to. A time is none
// that Kafka takes for something else.
func FuzzResetPlace(f *testing.F) {
	for _, s := range []string{
		"earliest", "latest", "Earliest", "", "0", "-0", "+0", "007", "1200", "-100", "+100", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e3", "0x10", "1_000", " 1", "１",
		"2026-01-31T12:00:00Z", "2026-01-31t12:00:00z", "2026-01-31T12:00:00.999999999+23:59", "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59-23:59",
		"2026-01-31", "90m", "2d", "-2d", "100000d", "100001d", "2562047h47m16.854775807s", "1ns", "1.5h", "d", "-1h", "NaN", "\x00", "\xff",
	} {
		f.Add(s, uint32(2), uint32(8), uint64(10))
	}
	for _, s := range []string{"-1", "1", "9223372036854775807", "-9223372036854775808"} {
		f.Add(s, uint32(0), uint32(0), uint64(1<<64-1))
	}
	now := time.Date(2026, time.January, 31, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string, from, length uint32, commit uint64) {
		start, committed := int64(from), int64(commit>>1)
		end := start + int64(length)
		var to, by place
		for name, set := range map[string]struct {
			set   func(string) error
			place *place
		}{"--to": {toFlag{&to}.Set, &to}, "--by": {byFlag{&by}.Set, &by}} {
			err, p := set.set(text), *set.place
			if err != nil {
				if p != (place{}) || err.Error() == "" || !utf8.ValidString(err.Error()) && utf8.ValidString(text) {
					t.Fatalf("%s %q is refused with %q, and sets %+v", name, text, err, p)
				}
				continue
			}
			var plain string
			switch p.kind {
			case placeOffset, placeBy:
				plain = strconv.FormatInt(p.n, 10)
			case placeTime:
				plain = p.at.Format(time.RFC3339Nano)
			case placeAgo:
				plain = p.ago.String()
			default:
				plain = p.text
			}
			if err := set.set(plain); err != nil || set.place.kind != p.kind || set.place.n != p.n || !set.place.at.Equal(p.at) || set.place.ago != p.ago || p.text != text {
				t.Fatalf("%s %q means %+v; written as %q it means %+v, %v", name, text, p, plain, *set.place, err)
			}
			if at, ok := p.moment(now); ok {
				if p.ago < 0 || at.UnixMilli() < 0 {
					t.Fatalf("%s %q is the time %v", name, text, at)
				}
				continue
			}
			got, remark, err := resolved{place: p}.in(&partitionStatus{Topic: "t", Start: &start, End: &end, Committed: &committed})
			if err != nil || got < start || got > end {
				t.Fatalf("%s %q leads to %d (%v) in a log of %d to %d", name, text, got, err, start, end)
			}
			want := big.NewInt(p.n)
			switch p.kind {
			case placeEarliest:
				want.SetInt64(start)
			case placeLatest:
				want.SetInt64(end)
			case placeBy:
				want.Add(want, big.NewInt(committed))
			}
			if reached := want.Cmp(big.NewInt(got)) == 0; reached == (remark != "") || want.Cmp(big.NewInt(start)) < 0 && got != start || want.Cmp(big.NewInt(end)) > 0 && got != end {
				t.Fatalf("%s %q leads to %d (%q), not to %s, in a log of %d to %d", name, text, got, remark, want, start, end)
			}
		}
	})
}

// FuzzJSONPath: a path is refused in words, or it leads where it leads a walk with encoding/json, in every value: to the same key,
// or to none.
func FuzzJSONPath(f *testing.F) {
	object := `{"id":1,"id":2,"i\u0064":"x","order":{"id":"A"},"lines":[{"sku":1e3},{"sku":"\u0041"}],"a.b":[{}],"a":{"b":2},"0":"zero","00":"two","-1":1,"+1":2,":1":3,"a:1":4," ":5,"ä":6,"\\":8,"^":9,"#":10}`
	for _, path := range []string{"id", "order.id", "lines.0.sku", "lines.01", "0", "00", "-1", "+1", `a\.b`, `\id`, `\#`, "a..b", "", "*", "@this", ":1", "a:1", " ", "ID", "ä", `\\`, "^"} {
		f.Add(path, object)
	}
	for _, path := range []string{"0.0.0", "00.0", "-1", "18446744073709551616", "2", ":1"} {
		f.Add(path, `[[["a"]],1]`)
	}
	for _, value := range []string{`{"id":null}`, `{"id":""}`, `{"id":{"\u00e4":"\ud800"}}`, "{\"\xff\":1,\"id\":2}", `{"id":`, `"id"`, "1", ""} {
		f.Add("id", value)
	}
	f.Fuzz(func(t *testing.T, path, value string) {
		key, err := parseDedupeKey("json:" + path)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("refused without words")
			}
			return
		}
		got := key(nil, &kgo.Record{Value: []byte(value)})
		if !utf8.ValidString(path) || !utf8.ValidString(value) {
			return // encoding/json mends it
		}
		var want []byte
		if raw, found := walk([]byte(value), names(path)); found {
			want = keyOfValue(t, raw)
		}
		if !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Fatalf("%q in %q is the key %q, want %q", path, value, got, want)
		}
	})
}

// names are the steps of a path, without the backslashes.
func names(path string) (steps []string) {
	var step []byte
	for i := 0; i < len(path); i++ {
		switch path[i] {
		case '.':
			steps, step = append(steps, string(step)), nil
			continue
		case '\\':
			i++
		}
		step = append(step, path[i])
	}
	return append(steps, string(step))
}

// walk follows a path through a value. Of members of one name the first counts; an index may have zeros before it.
func walk(value json.RawMessage, steps []string) (found json.RawMessage, ok bool) {
	if !json.Valid(value) {
		return nil, false
	}
	for _, step := range steps {
		dec := json.NewDecoder(bytes.NewReader(value))
		open, _ := dec.Token()
		ok = false
		for i := uint64(0); dec.More() && !ok && (open == json.Delim('{') || open == json.Delim('[')); i++ {
			if open == json.Delim('{') {
				name, _ := dec.Token()
				ok = name == step
			} else {
				n, err := strconv.ParseUint(step, 10, 64)
				ok = err == nil && n == i
			}
			if dec.Decode(&found) != nil {
				return nil, false
			}
		}
		if !ok {
			return nil, false
		}
		value = bytes.Clone(found)
	}
	return value, true
}

// keyOfValue is the key of what a path leads to.
func keyOfValue(t *testing.T, raw json.RawMessage) []byte {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		if v == "" || !utf8.Valid(raw) {
			return nil
		}
		return []byte(v)
	}
	if !within(raw, deepestKey, longestExponent) {
		return nil
	}
	key, _ := appendCanonical(nil, gjson.ParseBytes(raw))
	return key
}
