package jsonl_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/cmd/gapless/internal/jsonl"
	"github.com/twmb/franz-go/pkg/kgo"
)

func roundTrip(t *testing.T, r *kgo.Record) string {
	t.Helper()
	var buf bytes.Buffer
	if err := jsonl.Append(&buf, r); err != nil {
		t.Fatal(err)
	}
	s := buf.String()
	if !json.Valid(buf.Bytes()) || strings.Count(s, "\n") != 1 || !strings.HasSuffix(s, "\n") {
		t.Fatalf("not one line of JSON: %q", s)
	}
	back, err := jsonl.Parse(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	want := &kgo.Record{Key: r.Key, Value: r.Value, Headers: r.Headers}
	if !reflect.DeepEqual(back, want) {
		t.Fatalf("%s came back as %+v, want %+v", s, back, want)
	}
	return s
}

func TestRoundTrip(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 5e6, time.FixedZone("", 3600))
	s := roundTrip(t, &kgo.Record{Topic: "t", Partition: 1, Offset: 7, Timestamp: at, Key: []byte("k<&>"), Value: []byte("v\n\u2028")})
	if want := `{"topic":"t","partition":1,"offset":7,"timestamp":"2026-01-31T11:00:00.005Z","key":"k<&>","value":"v\n\u2028"}` + "\n"; s != want {
		t.Errorf("got %s, want %s", s, want)
	}
	s = roundTrip(t, &kgo.Record{Key: []byte{}, Value: nil})
	if !strings.Contains(s, `"key":"","value":null`) {
		t.Errorf("empty and nil: %s", s)
	}
	s = roundTrip(t, &kgo.Record{
		Key: []byte{0xff, 0}, Value: []byte{0xfe},
		Headers: []kgo.RecordHeader{{Key: "h", Value: nil}, {Key: "h", Value: []byte{0x80}}, {Key: "\xff", Value: []byte("x")}},
	})
	if !strings.Contains(s, `"key":"/wA=","key_encoding":"base64"`) {
		t.Errorf("not UTF-8: %s", s)
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("k"), []byte("v"), "h", []byte("x"))
	f.Add([]byte{0xff}, []byte{}, "\xff", []byte{0xed, 0xa0, 0x80})
	f.Fuzz(func(t *testing.T, key, value []byte, h string, hv []byte) {
		roundTrip(t, &kgo.Record{Key: key, Value: value, Headers: []kgo.RecordHeader{{Key: h, Value: hv}}})
	})
}

func TestRefusals(t *testing.T) {
	for line, want := range map[string]string{
		`{"val":"x"}`:                             "unknown field",
		`{"value":{"a":1}}`:                       "the value is a JSON object; it has to be a string",
		`{"value":"x"} {}`:                        "more on the line",
		`{"value":"?","value_encoding":"base64"}`: "not base64",
		`{"key":"?","key_encoding":"hex"}`:        `"hex"`,
		`x`:                                       "not a record as JSON",
	} {
		if _, err := jsonl.Parse([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}
