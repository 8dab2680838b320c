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

func (f *failingFile) Close() error { return nil }

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

// worn is a file whose closing and first Stat fail, as a network's file system may let them.
type worn struct {
	vfs.File
	stats int
}

func (f *worn) Close() error { return syscall.ENOSPC }

func (f *worn) Stat() (vfs.FileInfo, error) {
	if f.stats++; f.stats == 1 {
		return nil, syscall.EIO
	}
	return nil, nil
}

// TestTheEndOfALogIsNoPanic (C5): Pebble would panic at an error of what it does to begin and to end a log. While the database is in
// use it sees none: Stat is tried again, and closing what was synced cannot lose anything. While it is opened and closed, it does.
func TestTheEndOfALogIsNoPanic(t *testing.T) {
	o, err := options(newHands()).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore("d", o)
	if err := s.logs.wrap(&worn{}).Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("not in use: closing says %v", err)
	}
	if _, err := s.logs.wrap(&worn{}).Stat(); !errors.Is(err, syscall.EIO) {
		t.Errorf("not in use: Stat says %v", err)
	}
	s.logs.in.Store(true)
	if err := s.logs.wrap(&worn{}).Close(); err != nil {
		t.Errorf("in use: closing says %v", err)
	}
	file := &worn{}
	if _, err := s.logs.wrap(file).Stat(); err != nil || file.stats != 2 {
		t.Errorf("in use: Stat says %v after %d", err, file.stats)
	}
}

// TestALogWhoseSyncFailedIsNotEnded (C5): should one of ours come to its end all the same, it stops there, and the process is told.
func TestALogWhoseSyncFailedIsNotEnded(t *testing.T) {
	o, err := options(newHands()).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore("d", o)
	s.logs.in.Store(true)
	log := s.logs.wrap(&failingFile{})
	if err := log.Sync(); !errors.Is(err, syscall.EIO) { // Pebble's goroutine
		t.Fatal(err)
	}
	wentOn := make(chan struct{})
	go func() {
		defer s.health.own(atTables)()
		_ = log.Close()
		close(wentOn)
	}()
	select {
	case <-s.health.dead:
	case <-wentOn:
		t.Fatal("it went on")
	}
	if err := *s.health.fatal.Load(); !errors.Is(err, ErrFatal) || !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	left.Add(-1) // it holds nothing that others wait for
}
