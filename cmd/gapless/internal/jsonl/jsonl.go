// Package jsonl is the form in which the command prints and reads records: one JSON object a line.
//
//	{"topic":"t","partition":0,"offset":7,"timestamp":"2026-01-31T12:00:00.000Z","key":"k","value":"v","headers":[{"key":"h","value":"x"}]}
//
// A key or value that is not UTF-8 is written as base64, and "key_encoding":"base64" (or value_encoding) says so. null is a
// record without a key, or a tombstone; it is not the same as "".
package jsonl

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

const base64Encoding = "base64"

type line struct {
	Topic         string   `json:"topic"`
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"`
	Timestamp     string   `json:"timestamp"`
	Key           *string  `json:"key"`
	KeyEncoding   string   `json:"key_encoding,omitempty"`
	Value         *string  `json:"value"`
	ValueEncoding string   `json:"value_encoding,omitempty"`
	Headers       []header `json:"headers,omitempty"`
}

type header struct {
	Key           string  `json:"key"`
	KeyEncoding   string  `json:"key_encoding,omitempty"`
	Value         *string `json:"value"`
	ValueEncoding string  `json:"value_encoding,omitempty"`
}

// timestamps are UTC with milliseconds, which is what Kafka keeps.
const timestampLayout = "2006-01-02T15:04:05.000Z"

// Append writes r as a line, with the line break, to buf.
func Append(buf *bytes.Buffer, r *kgo.Record) error {
	l := line{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UTC().Format(timestampLayout)}
	l.Key, l.KeyEncoding = encode(r.Key)
	l.Value, l.ValueEncoding = encode(r.Value)
	for _, h := range r.Headers {
		out := header{}
		k, enc := encode([]byte(h.Key))
		if k != nil {
			out.Key, out.KeyEncoding = *k, enc
		}
		out.Value, out.ValueEncoding = encode(h.Value)
		l.Headers = append(l.Headers, out)
	}
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return enc.Encode(&l)
}

func encode(b []byte) (text *string, encoding string) {
	if b == nil {
		return nil, ""
	}
	s := string(b)
	if !utf8.Valid(b) {
		s, encoding = base64.StdEncoding.EncodeToString(b), base64Encoding
	}
	return &s, encoding
}

// Parse reads a line as a record to produce: key, value and headers. Where it came from (topic, partition, offset, timestamp)
// is accepted, so that what was printed can be produced, and has no effect. Unknown fields are refused.
func Parse(b []byte) (*kgo.Record, error) {
	var l line
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return nil, explain(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more on the line than one JSON object")
	}
	r := &kgo.Record{}
	var err error
	if r.Key, err = decode("key", l.Key, l.KeyEncoding); err != nil {
		return nil, err
	}
	if r.Value, err = decode("value", l.Value, l.ValueEncoding); err != nil {
		return nil, err
	}
	for _, h := range l.Headers {
		k, err := decode("header key", &h.Key, h.KeyEncoding)
		if err != nil {
			return nil, err
		}
		v, err := decode("header "+h.Key, h.Value, h.ValueEncoding)
		if err != nil {
			return nil, err
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(k), Value: v})
	}
	return r, nil
}

func decode(what string, text *string, encoding string) ([]byte, error) {
	switch {
	case text == nil:
		return nil, nil
	case encoding == "":
		return []byte(*text), nil
	case encoding == base64Encoding:
		b, err := base64.StdEncoding.DecodeString(*text)
		if err != nil {
			return nil, fmt.Errorf("the %s is not base64: %w", what, err)
		}
		return b, nil
	}
	return nil, fmt.Errorf("the encoding of the %s is %q; only %q is known", what, encoding, base64Encoding)
}

func explain(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && (kind.Field == "value" || kind.Field == "key") {
		return fmt.Errorf("the %s is a JSON %s; it has to be a string (or null): write an object as a string that holds it", kind.Field, kind.Value)
	}
	return fmt.Errorf("not a record as JSON: %w", err)
}
