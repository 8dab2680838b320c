package dedupe

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestNothingIsReportedBeforeItsWrite (C5): a mark is reported as durable after its group was written, and not before.
func TestNothingIsReportedBeforeItsWrite(t *testing.T) {
	o := options(newHands())
	var s *Store
	var reported, before atomic.Int64 // before: the last durable group when the mark was given
	o.OnDurable = func(tags []Tag, err error) {
		if err != nil || int64(s.Seq()) <= before.Load() {
			t.Errorf("reported at group %d, which was the last one before it was given: %v", s.Seq(), err)
		}
		reported.Add(int64(len(tags)))
	}
	s = open(t, "d", o)
	for i := range 5 {
		before.Store(int64(s.Seq()))
		mark(t, s, key(s, i), 1)
	}
	if n := reported.Load(); n != 5 {
		t.Errorf("%d of 5 were reported", n)
	}
}

// failingFile is a file whose first sync fails, as it does where the disk has a fault: the system drops what it could not write, and
// the next sync succeeds.
type failingFile struct {
	vfs.File
	syncs int
}

func (f *failingFile) Sync() error {
	if f.syncs++; f.syncs == 1 {
		return syscall.EIO
	}
	return nil
}

// TestAFailedSyncIsNotTriedAgain (C5): what the log lost in a sync that failed is not there after one that succeeds, so the log takes
// no more: each later sync fails, too.
func TestAFailedSyncIsNotTriedAgain(t *testing.T) {
	o, err := options(newHands()).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	file := &failingFile{}
	log := newStore("d", o).logs.wrap(file)
	if err := log.Sync(); !errors.Is(err, syscall.EIO) || file.syncs != 1 {
		t.Errorf("%v after %d tries", err, file.syncs)
	}
	if err := log.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("a later sync: %v", err)
	}
}
