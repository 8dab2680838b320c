package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/gaplesshq/gapless/dedupe"
	"github.com/twmb/franz-go/pkg/kgo"
)

// spoil takes away what says which files belong to a store.
func spoil(t *testing.T, disk vfs.FS, dir string) {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "marker.") {
			if err := disk.Remove(disk.PathJoin(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// C5: a store that can't be read is refused, and nothing is consumed without it; moved away only where that was asked for, and
// then an empty one takes its place, in the very directory.
// Seen at rudderlabs/rudder-server#5678.
func TestUnreadableStore(t *testing.T) {
	for _, slots := range []bool{false, true} {
		inWorld(t, 1, func(w *world) {
			var log callLog
			disk := vfs.NewMem()
			c := w.stored(func(_ context.Context, r *Record) error { log.add(r); return nil }, disk)
			dir := "/dedupe"
			if slots {
				c.Dedupe.Dir, c.Dedupe.Base = "", "/base"
				dir = "/base/" + testGroup + "/0"
			}
			w.produce(0, "a=1", "b=1", "a=1")
			m := w.start(c)
			if ev := m.awaitName(EventStoreOpened); ev.Count != 0 || !strings.Contains(ev.Hint, dir+": 0 keys") {
				t.Errorf("%+v", ev)
			}
			w.eventually("committed", func() bool { return w.committed("t", 0) == 3 })
			m.stop()
			spoil(t, disk, dir)
			w.produce(0, "a=1", "c=1")

			m = w.launch(c)
			if err := <-m.done; !errors.Is(err, dedupe.ErrDamaged) || !strings.Contains(err.Error(), "Dedupe.Quarantine") {
				t.Errorf("Run returned %v", err)
			}
			if n := log.len(); n != 2 || w.committed("t", 0) != 3 {
				t.Errorf("consumed without the store: %v", log.all())
			}

			c.Dedupe.Quarantine = true
			m = w.start(c)
			ev := m.awaitName(EventStoreQuarantined)
			if !errors.Is(ev.Err, dedupe.ErrDamaged) || !strings.Contains(ev.Hint, dir+".bad-") {
				t.Errorf("%+v", ev)
			}
			if st := m.e.Status().Dedupe; st.Dir != dir {
				t.Errorf("the store is %s, want %s", st.Dir, dir)
			}
			w.eventually("committed", func() bool { return w.committed("t", 0) == 5 })
			m.stop()
			got := log.all()
			slices.Sort(got)
			if strings.Join(got, " ") != "a=1 a=1 b=1 c=1" { // a again: its mark is gone
				t.Errorf("handled %s", got)
			}
		})
	}
}

// A quarantine was asked for an unreadable store: others are good, and in somebody else's hands.
// Seen at rudderlabs/rudder-server#5678.
func TestQuarantineLeavesOthersAlone(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		disk := vfs.NewMem()
		c := w.stored(func(context.Context, *Record) error { return nil }, disk)
		c.Dedupe.Quarantine = true
		first := w.start(c)
		m := w.launch(c)
		if err := <-m.done; !errors.Is(err, dedupe.ErrLocked) || !strings.Contains(err.Error(), "Dedupe.Base") || m.count(EventStoreQuarantined) > 0 {
			t.Errorf("Run returned %v", err)
		}
		first.stop()
	})
}

// Records without a business key are handled, counted, and spoken of once a topic.
func TestRecordsWithoutBusinessKey(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		c := w.stored(func(context.Context, *Record) error { return nil }, vfs.NewMem())
		m := w.start(c)
		w.produce(0, "a=1", "no key", "no key", "=empty")
		w.produce(1, "no key")
		w.eventually("committed", func() bool { return w.committed("t", 0) == 4 && w.committed("t", 1) == 1 })
		if s := m.e.Status().Dedupe; s.Unkeyed != 4 || s.Keys != 1 || m.count(EventUnkeyed) != 1 {
			t.Errorf("%+v, %d events", s, m.count(EventUnkeyed))
		}
		m.stop()
	})
	key := HeaderKey("id")
	for _, c := range []struct {
		headers []kgo.RecordHeader
		want    string
		none    bool
	}{
		{none: true},
		{headers: []kgo.RecordHeader{{Key: "other", Value: []byte("x")}}, none: true},
		{headers: []kgo.RecordHeader{{Key: "id", Value: []byte("x")}, {Key: "id", Value: []byte("y")}}, want: "y"},
		{headers: []kgo.RecordHeader{{Key: "id", Value: []byte("x")}, {Key: "id"}}, none: true},
	} {
		if got := key(nil, &kgo.Record{Headers: c.headers}); string(got) != c.want || (got == nil) != c.none {
			t.Errorf("%v: %q", c.headers, got)
		}
	}
}

// smallDisk has so much space free.
type smallDisk struct {
	vfs.FS
	free uint64
}

func (d smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free, TotalBytes: 1 << 40}, nil
}

// What the store will need is said once, from the rate that was observed, and compared with what the disk has free.
func TestStoreSizing(t *testing.T) {
	for free, want := range map[uint64]EventName{1 << 39: EventStoreSizing, 100 << 20: EventStoreSpace} {
		inWorld(t, 1, func(w *world) {
			c := w.stored(func(context.Context, *Record) error { return nil }, smallDisk{vfs.NewMem(), free})
			m := w.start(c)
			for i := range 5 {
				w.produce(0, numbered(string(rune('a'+i))+"=", 1)...)
				time.Sleep(sizingAfter / 3)
			}
			ev := m.awaitName(want)
			if ev.Count < 1000 || !strings.Contains(ev.Hint, "a retention of 24h0m0s") || strings.Contains(ev.Hint, "only 100.0 MiB is free under /dedupe") != (want == EventStoreSpace) {
				t.Errorf("%+v", ev)
			}
			if n := m.count(EventStoreSizing) + m.count(EventStoreSpace); n != 1 {
				t.Errorf("said %d times", n)
			}
			m.stop()
		})
	}
}
