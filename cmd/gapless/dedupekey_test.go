package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func keyOf(t *testing.T, where, value string) (key string, has bool) {
	t.Helper()
	f, err := parseDedupeKey(where)
	if err != nil {
		t.Fatal(err)
	}
	k := f(make([]byte, 0, 8), &kgo.Record{Value: []byte(value)})
	return string(k), k != nil
}

// Equal values are one key however they are written; all others are different ones.
func TestJSONKeys(t *testing.T) {
	same := [][]string{
		{`{"id":"A-1"}`, ` { "id" : "A-\u0031" } `, `{"x":1,"id":"A-1"}`},
		{`{"id":1}`, `{"id":1.0}`, `{"id":1e0}`, `{"id":10e-1}`, `{"id":0.1E+1}`},
		{`{"id":"1"}`},
		{`{"id":-1}`},
		{`{"id":0}`, `{"id":-0}`, `{"id":0.0e7}`},
		{`{"id":"0"}`},
		{`{"id":12345678901234567890}`},
		{`{"id":12345678901234567891}`},
		{`{"id":1e400}`, `{"id":10e399}`},
		{`{"id":1e99999999999999999999}`},
		{`{"id":true}`},
		{`{"id":"true"}`},
		{`{"id":false}`},
		{`{"id":{"a":1,"b":[1,"x"]}}`, `{"id":{"b":[1.0, "x"], "a":1}}`},
		{`{"id":{"a":"1","b":[1,"x"]}}`},
		{`{"id":[1,2]}`},
		{`{"id":[2,1]}`},
		{`{"id":[12]}`},
		{`{"id":["1,2"]}`},
		{`{"id":[]}`},
		{`{"id":{}}`},
		{`{"id":{"a":null}}`},
	}
	seen := map[string]string{}
	for _, values := range same {
		first, _ := keyOf(t, "json:id", values[0])
		if seen[first] != "" {
			t.Errorf("%s and %s are one key: %q", values[0], seen[first], first)
		}
		seen[first] = values[0]
		for _, v := range values {
			if k, has := keyOf(t, "json:id", v); !has || k != first {
				t.Errorf("%s is %q, and %s is %q", values[0], first, v, k)
			}
		}
	}
	if k, _ := keyOf(t, "json:id", `{"id":"A-1"}`); k != "A-1" {
		t.Errorf("a string is %q, not its text", k)
	}
	for _, v := range []string{``, `x`, `{"id":`, `{"id":1}x`, `{}`, `{"id":null}`, `{"id":""}`, `[1]`, `"id"`, `{"ID":1}`, "{\"id\":\"\xff\"}"} {
		if k, has := keyOf(t, "json:id", v); has {
			t.Errorf("%s has the key %q", v, k)
		}
	}
	for where, want := range map[string]string{"json:lines.1.sku": "b", `json:a\.b`: "dot", `json:x\#`: "hash", "json:lines.0.sku": "a"} {
		if k, _ := keyOf(t, where, `{"lines":[{"sku":"a"},{"sku":"b"}],"a.b":"dot","a":{"b":"no"},"x#":"hash"}`); k != want {
			t.Errorf("%s: %q, want %q", where, k, want)
		}
	}
}

func TestDedupeKeyRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"kye": "is not key", "header:": "is not key", "header": "is not key", "json": "is not key", "json:": "a name is missing", "json:a..b": "a name is missing",
		"json:.a": "a name is missing", "json:a.": "a name is missing", "json:a.#": `'#' is not allowed`, "json:a*": "not allowed", "json:a|b": "not allowed",
		"json:[a,b]": "not allowed", "json:@this": "not allowed", "json:a\\": "not allowed", "keys": "is not key", "key:x": "is not key",
	} {
		if _, err := parseDedupeKey(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
