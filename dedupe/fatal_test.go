package dedupe

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gaplesshq/gapless/internal/crashfs"
)

// TestNobodyWaitsForADeadStore (C5): the manifest cannot be written, so Pebble is stopped with its locks held. Whoever was looking a key
// up, and whoever asks anything afterwards, is told, and does not wait for a lock that nobody gives back.
func TestNobodyWaitsForADeadStore(t *testing.T) {
	o := options(newHands())
	o.partSize, o.CloseTimeout = 500, 100*time.Millisecond
	var failing atomic.Bool
	o.FS = crashfs.Asking(o.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, "MANIFEST") {
			return syscall.EIO
		}
		return nil
	}))
	fatal := make(chan error, 1)
	o.OnFatal = func(err error) { fatal <- err }
	s, err := Open("d", o)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	part := func() (done []Completion) { // it is sealed once it is marked
		for range 500 {
			done = append(done, Completion{Claim: claim(t, s, key(s, n), 1, Mine)})
			n++
		}
		return done
	}
	s.Mark(part())
	flush(t, s)
	settle(s)
	it, err := s.iters.get(s.db) // of somebody who is looking a key up
	if err != nil {
		t.Fatal(err)
	}
	s.Mark(part())
	flush(t, s)
	settle(s)
	last := part()
	failing.Store(true)
	s.Mark(last)
	if err := <-fatal; !errors.Is(err, ErrFatal) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("fatal is %v", err)
	}
	s.iters.put(it) // it is the last one that sees what was there
	if got := s.Stats(); !errors.Is(got.Err, ErrFatal) {
		t.Errorf("Stats says %v", got.Err)
	}
	for what, do := range map[string]func() error{
		"Claim":   func() error { _, _, err := s.Claim(key(s, 0), 1, Tag{}); return err },
		"Get":     func() error { _, _, err := s.Get(key(s, 0)); return err },
		"Row":     func() error { _, _, err := s.Row([]byte("x")); return err },
		"EachRow": func() error { return s.EachRow(nil, func(_, _ []byte) bool { return true }) },
		"Verify":  func() error { _, err := s.Verify(t.Context(), nil); return err },
		"Compact": func() error { return s.Compact(t.Context()) },
		"Flush":   func() error { return s.Flush(t.Context()) },
		"Room":    func() error { return s.Room(t.Context()) },
	} {
		if err := do(); !errors.Is(err, ErrFatal) {
			t.Errorf("%s says %v", what, err)
		}
	}
	if err := s.Close(); err != nil && !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
}

// TestTheStoreDiesWhileItIsAsked (C5): as above, of those who wait for the database already.
func TestTheStoreDiesWhileItIsAsked(t *testing.T) {
	s := open(t, "d", options(newHands()))
	inside, never, told := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := apart(s, func(*pebble.DB) (int, error) {
			close(inside)
			<-never // as one waits for a lock of Pebble's
			return 1, nil
		})
		told <- err
	}()
	<-inside
	_ = s.fail(syscall.EIO)
	if err := <-told; !errors.Is(err, ErrFatal) || !errors.Is(err, syscall.EIO) {
		t.Errorf("it says %v", err)
	}
	close(never)
}
