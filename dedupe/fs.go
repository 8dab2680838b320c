package dedupe

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// orderedFS makes directory changes durable in an order that survives a power loss. Pebble names its current files in
// marker files, whose names are the information. It creates the new marker, removes the old one and only then syncs the
// directory; a file system may keep the second change and lose the first, or keep the marker and lose the file that it
// names, and then the store does not open, or opens empty. Here the directory is synced before a marker appears, so what it
// names is there, and again before one is removed, so its successor is. That is a handful of syncs whenever the store opens.
type orderedFS struct {
	vfs.FS
	fresh *atomic.Bool // make new logs instead of using old ones again
}

// ReuseForWrite is how a log takes the place of an old one. The last log of a store that is being closed is a new one, which
// is empty, and not one that still takes the room of the old.
func (f orderedFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.fresh.Load() {
		return f.FS.Create(newname, c)
	}
	return f.FS.ReuseForWrite(oldname, newname, c)
}

// removeLogs removes all logs but the last one. Pebble keeps a few to use them again, up to 8 MB each. Only after a flush
// with nobody writing since, and a close, are they known to hold nothing.
func removeLogs(f vfs.FS, dir string) {
	names, err := f.List(dir)
	if err != nil {
		return // the next open removes them
	}
	last := uint64(0)
	number := func(name string) uint64 {
		digits, ok := strings.CutSuffix(name, ".log")
		n, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil {
			return 0
		}
		return n
	}
	for _, name := range names {
		last = max(last, number(name))
	}
	for _, name := range names {
		if n := number(name); n > 0 && n < last {
			_ = f.Remove(f.PathJoin(dir, name))
		}
	}
}

func (f orderedFS) Unwrap() vfs.FS { return f.FS }

func (f orderedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.settle(name); err != nil {
		return nil, err
	}
	return f.FS.Create(name, c)
}

func (f orderedFS) Remove(name string) error {
	if err := f.settle(name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f orderedFS) settle(name string) error {
	if !strings.HasPrefix(f.PathBase(name), "marker.") {
		return nil
	}
	return syncDir(f.FS, f.PathDir(name))
}

func syncDir(fs vfs.FS, name string) error {
	d, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if err2 := d.Close(); err == nil {
		err = err2
	}
	return err
}
