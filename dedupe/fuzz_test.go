package dedupe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// FuzzRows: whatever a row on the disk holds, it is taken or it is damaged, or newer than this program. Nothing is made of it that was not
// in it.
func FuzzRows(f *testing.F) {
	key := []byte("s\x00\x00\x00\x01")
	row := make([]byte, rowSize(2))
	finishRow(key, row, flagLast)
	f.Add(row)
	f.Add((&schema{hash: hashSHA256, created: 1}).encode())
	f.Add((&state{seq: 1, time: 2, stream: 3}).encode())
	f.Add(encodeSpans(3, nil))
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		known := func(err error) bool { return err == nil || errors.Is(err, ErrDamaged) || errors.Is(err, ErrNewer) }
		if len(b) >= rowHeader { // with a checksum that chance would not find
			sealed := bytes.Clone(b)
			binary.BigEndian.PutUint32(sealed[4:], rowSum(key, sealed))
			entries, _, err := openRow(key, sealed)
			if !known(err) || err == nil && len(entries) != len(b)-rowHeader {
				t.Fatalf("%x: %d bytes of entries, %v", sealed, len(entries), err)
			}
			var k Key
			copy(k[:], b)
			if e := search(entries, &k); e != nil && !bytes.Equal(e[:16], k[:]) {
				t.Fatalf("%x found %x", k, e[:])
			}
		}
		if _, _, err := openRow(key, b); !known(err) {
			t.Fatal(err)
		}
		for _, name := range []string{schemaKey, stateKey, bucketsKey} {
			for _, small := range [][]byte{b, wrap(name, b)} {
				var c schema
				var s state
				err := map[string]func() error{
					schemaKey: func() error { return c.decode(small) },
					stateKey:  func() error { return s.decode(small) },
					bucketsKey: func() error {
						_, spans, err := decodeSpans(small)
						if len(spans) > len(small) {
							t.Fatalf("%d spans of %d bytes", len(spans), len(small))
						}
						return err
					},
				}[name]()
				if !known(err) {
					t.Fatal(err)
				}
				if name == schemaKey && err == nil && !bytes.Equal(c.encode(), small) {
					t.Fatalf("%x was written back as %x", small, c.encode())
				}
				if name == stateKey && err == nil && !bytes.Equal(s.encode(), small) {
					t.Fatalf("%x was written back as %x", small, s.encode())
				}
			}
		}
	})
}
