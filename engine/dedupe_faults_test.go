package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gaplesshq/gapless/dedupe"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// write makes a file.
func write(t *testing.T, f vfs.FS, name, content string) {
	t.Helper()
	file, err := f.Create(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = file.Write([]byte(content))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// C5, section 6: a store that was asked for and can't be opened keeps the engine from starting. The error says what to do, and nothing
// was consumed: this process was never a member.
func TestStoreCanNotBeOpened(t *testing.T) {
	cases := map[string]struct {
		prepare func(t *testing.T, m *machine) (after func())
		is      error
		says    string
	}{
		"locked": {func(t *testing.T, m *machine) func() {
			s, err := dedupe.Open("/dedupe", dedupe.Options{FS: m.disk})
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = s.Close() }
		}, dedupe.ErrLocked, "a directory of its own"},
		"newer": {func(t *testing.T, m *machine) func() {
			_ = m.mem.MkdirAll("/dedupe", 0o755)
			write(t, m.mem, "/dedupe/marker.format-version.000001.999", "")
			return nil
		}, dedupe.ErrNewer, "use the version that wrote it"},
		"no permission": {func(_ *testing.T, m *machine) func() {
			m.breaks(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpLock {
					return &fs.PathError{Op: "open", Path: op.Path, Err: syscall.EACCES}
				}
				return nil
			})
			return nil
		}, fs.ErrPermission, "right to write there"},
		"a file": {func(t *testing.T, m *machine) func() {
			write(t, m.mem, "/dedupe", "hello")
			return nil
		}, nil, "a store needs a directory"},
		"damaged": {func(t *testing.T, m *machine) func() {
			_ = m.mem.MkdirAll("/dedupe", 0o755)
			write(t, m.mem, "/dedupe/000007.sst", "rubbish")
			return nil
		}, dedupe.ErrDamaged, "quarantine it"},
		"full": {func(_ *testing.T, m *machine) func() {
			m.full()
			return nil
		}, syscall.ENOSPC, "no space left"},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(w *world) {
				m := w.machine(nil)
				if after := x.prepare(t, m); after != nil {
					defer after()
				}
				w.produce(0, "v")
				tr := w.trace()
				mb := w.launch(m.once(byValue, m.effect))
				err := <-mb.done
				if err == nil || x.is != nil && !errors.Is(err, x.is) || !strings.Contains(err.Error(), x.says) || !strings.Contains(err.Error(), "/dedupe") {
					t.Errorf("Run: %v", err)
				}
				if n := len(tr.of(kmsg.JoinGroup, "")) + len(tr.of(kmsg.OffsetCommit, "")); n > 0 || len(m.effects.all()) > 0 {
					t.Errorf("%d group requests, %v", n, m.effects.all())
				}
			})
		})
	}
}

// C5, C9: while the store can't write nothing starts and nothing is committed, and everybody who looks is told. When it can again,
// everything is there and nothing is done twice.
// Seen at cockroachdb/pebble#270.
func TestDiskIsFull(t *testing.T) {
	for _, keyed := range []bool{true, false} {
		t.Run(fmt.Sprint("keyed ", keyed), func(t *testing.T) {
			inWorld(t, 2, func(w *world) {
				m := w.machine(nil)
				g := w.shut("0", "1")
				var begun atomic.Int64
				c := m.once(byValue, func(ctx context.Context, r *Record) error {
					begun.Add(1)
					if err := g.pass(ctx, r); err != nil {
						return err
					}
					return m.effect(ctx, r)
				})
				if !keyed {
					c.Dedupe.Key = nil
				}
				mb := m.start(c)
				w.produce(0, numbered("", 10)...)
				w.eventually("in the middle", func() bool { return len(m.effects.all()) == 8 && g.isAt("0") && g.isAt("1") })
				time.Sleep(time.Second)
				free := m.full()
				g.openAll() // what is running ends, and can't be marked
				mb.awaitName(EventStoreFailed)
				w.eventually("done", func() bool { return len(m.effects.all()) == 10 })
				tr := w.trace()
				began := begun.Load()
				w.produce(0, numbered("more", 20)...)
				w.produce(1, numbered("other", 20)...)
				for range 30 {
					time.Sleep(time.Second)
					s := mb.e.Status()
					if s.Healthy || s.Problems["dedupe store"] == "" || s.Dedupe.WriteError == "" {
						t.Fatalf("healthy %v, %v, %q", s.Healthy, s.Problems, s.Dedupe.WriteError)
					}
				}
				if n := begun.Load() - began; n > 0 {
					t.Errorf("%d handlers began", n)
				}
				if sent := tr.of(kmsg.OffsetCommit, ""); len(sent) > 0 {
					t.Errorf("committed: %v", sent)
				}
				if err := mb.e.Commit(context.Background()); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("Commit: %v", err)
				}
				free()
				mb.awaitName(EventStoreRecovered)
				w.eventually("all", func() bool { return w.committed("t", 0) == 30 && w.committed("t", 1) == 20 })
				if more := m.effects.more(); len(more) > 0 || len(m.effects.all()) != 50 {
					t.Errorf("again %v, %d in all", more, len(m.effects.all()))
				}
				if s := mb.e.Status(); !s.Healthy || s.Dedupe.WriteError != "" {
					t.Errorf("%v %q", s.Problems, s.Dedupe.WriteError)
				}
				mb.stop()
			})
		})
	}
}

// C5: a store that can't be repaired in this process ends it, with an error that says so.
func TestStoreFailsForGood(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		m := w.machine(nil)
		mb := m.start(m.once(byValue, m.effect))
		w.produce(0, "first")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 1 })
		hold := make(chan struct{})
		m.closing.Store(&hold)
		m.failSyncs(1) // and then the log can't be closed
		w.produce(0, "x")
		select {
		case err := <-mb.done:
			if !errors.Is(err, ErrStore) || !errors.Is(err, dedupe.ErrFatal) {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("Run goes on")
		}
		if at := w.committed("t", 0); at != 1 {
			t.Errorf("committed %d", at)
		}
		close(hold)
	})
}

// C5: where the store can't be read, nobody knows whether a record was handled: its partition holds, and the others go on. Unhold tries
// it again.
func TestStoreCanNotBeRead(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		m := w.machine(nil)
		c := m.once(byValue, m.effect)
		c.Dedupe.Retention, c.Dedupe.Scope = 4*time.Minute, "all"
		mb := m.start(c)
		w.produce(0, numbered("old", 50)...)
		w.eventually("marked", func() bool { return w.committed("t", 0) == 50 })
		time.Sleep(90 * time.Second) // in another bucket the old marks are on the disk only
		w.produce(0, "new")
		w.eventually("marked", func() bool { return w.committed("t", 0) == 51 && mb.e.Store().Stats().Seals > 0 })
		var reads atomic.Int64
		m.breaks(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
				reads.Add(1)
				return syscall.EIO
			}
			return nil
		})
		w.produce(0, "old7", "later")
		ev := mb.awaitName(EventHeld)
		if ev.Partition != 0 || ev.Offset != 51 || !errors.Is(ev.Err, syscall.EIO) {
			t.Errorf("%+v", ev)
		}
		w.produce(1, "elsewhere", "new")
		w.eventually("the other partition goes on", func() bool { return w.committed("t", 1) == 2 })
		if ok, problems := mb.e.Healthy(); ok || w.committed("t", 0) != 51 {
			t.Errorf("healthy %v %v, committed %d", ok, problems, w.committed("t", 0))
		}
		mb.e.Unhold("t", 0)
		w.eventually("it fails again", func() bool { return mb.count(EventHeld) == 2 })
		m.breaks(nil)
		if !mb.e.Unhold("t", 0) {
			t.Error("nothing to unhold")
		}
		w.eventually("all", func() bool { return w.committed("t", 0) == 53 })
		if more := m.effects.more(); len(more) > 0 || reads.Load() == 0 || m.effects.of("later") != 1 {
			t.Errorf("again %v, %d reads failed", more, reads.Load())
		}
		mb.stop()
	})
}
