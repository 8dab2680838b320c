package crashfs

import (
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestAPowerLossAtAnyMoment: a disk is copied over and over while files are linked, locked and used again. With a MemFS as it is, this
// never ends.
func TestAPowerLossAtAnyMoment(t *testing.T) {
	f := New()
	var g sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		g.Go(func() {
			file, err := f.Create(name, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Error(err)
				return
			}
			_ = file.Close()
			for range 2000 {
				if err := f.Link(name, name+"2"); err != nil {
					t.Error(err)
				}
				file, err := f.ReuseForWrite(name+"2", name+"3", vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Error(err)
					return
				}
				_ = file.Close()
				l, err := f.Lock(name + "3")
				if err != nil {
					t.Error(err)
					return
				}
				_ = l.Close()
			}
		})
	}
	for i := range 2000 {
		f.AfterPowerLoss(50, uint64(i))
	}
	g.Wait()
}

// TestAPowerLossKeepsWhatWasSynced, and with nothing else surviving, no more.
func TestAPowerLossKeepsWhatWasSynced(t *testing.T) {
	f := New()
	file, err := f.Create("log", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := f.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range []func() error{
		func() error { _, err := file.Write([]byte("one")); return err },
		file.Sync, dir.Sync,
		func() error { _, err := file.Write([]byte("two")); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	for percent, want := range map[int]int64{0: 3, 100: 6} {
		info, err := f.AfterPowerLoss(percent, 1).Stat("log")
		if err != nil || info.Size() != want {
			t.Errorf("%d%%: %v, %v; want %d bytes", percent, info, err, want)
		}
	}
}

// TestLogsThatAreUsedAgainAreAskedAbout: every write and sync of theirs.
func TestLogsThatAreUsedAgainAreAskedAbout(t *testing.T) {
	asked := map[errorfs.OpKind]int{}
	f := Asking(New(), errorfs.InjectorFunc(func(op errorfs.Op) error { asked[op.Kind]++; return nil }))
	for _, open := range []func() (vfs.File, error){
		func() (vfs.File, error) { return f.Create("1", vfs.WriteCategoryUnspecified) },
		func() (vfs.File, error) { return f.ReuseForWrite("1", "2", vfs.WriteCategoryUnspecified) },
	} {
		file, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
	}
	if asked[errorfs.OpFileWrite] != 2 || asked[errorfs.OpFileSync] != 2 {
		t.Errorf("asked %v", asked)
	}
}
