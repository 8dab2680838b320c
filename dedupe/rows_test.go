package dedupe

import (
	"errors"
	"slices"
	"testing"
)

// TestRowsAreSummed (C5): a row of marks that differs in one bit, or stands under another key, is damage. Pebble has sums of its own;
// these go from the memory in which a row was made to that in which it is read.
func TestRowsAreSummed(t *testing.T) {
	key := arrivalKey(1, 2, 3)
	row := make([]byte, rowSize(2))
	for i := range 2 {
		k := Key{byte(i + 1)}
		entryAt(row[rowHeader:], i).set(&k, uint32(i), 7)
	}
	finishRow(key, row, flagLast)
	if entries, last, err := openRow(key, row); err != nil || !last || len(entries) != 2*entrySize {
		t.Fatalf("%d bytes, last %v, %v", len(entries), last, err)
	}
	for i := range row {
		for bit := range 8 {
			bad := slices.Clone(row)
			bad[i] ^= 1 << bit
			if _, _, err := openRow(key, bad); !errors.Is(err, ErrDamaged) && (i > 0 || !errors.Is(err, ErrNewer)) {
				t.Errorf("byte %d, bit %d: %v", i, bit, err)
			}
		}
	}
	if _, _, err := openRow(arrivalKey(1, 2, 4), row); !errors.Is(err, ErrDamaged) {
		t.Errorf("under another key: %v", err)
	}
	if _, _, err := openRow(key, row[:len(row)-1]); !errors.Is(err, ErrDamaged) {
		t.Errorf("cut off: %v", err)
	}
}
