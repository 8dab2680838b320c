package dedupe

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logFS stands between Pebble and the files of its log. Pebble panics when it cannot begin a new log file or end the old one,
// and does so with a mutex in a state that makes the Go runtime end the process: a disk that is full at the wrong moment
// would kill the service. So a log that cannot be written is not reported but waited for, while the database is in use:
// what failed is tried again until it succeeds. The store counts as unable to write meanwhile.
//
// A sync that failed must not be tried again: the system may have dropped what it could not write, and the next
// sync would succeed. In the middle of a log, Pebble reports it to the commit, and the store is reopened; until it is, nobody
// ends that log (Store.endLog). At the end of one, or where Pebble notes a table in one, it would end the process, so the
// goroutine stops there, and the process is told to end (fatalf).
type logFS struct {
	vfs.FS
	s      *Store
	in     atomic.Bool // the database is in use
	failed atomic.Bool // a sync failed since it was opened
	closed chan struct{}
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

func (f *logFS) Unwrap() vfs.FS { return f.FS }

// insist does something until it succeeds, or Pebble can take an error.
func (f *logFS) insist(do func() error) error {
	err := do()
	if err == nil || !f.in.Load() {
		return err
	}
	return f.again(err, do, f.in.Load)
}

// again does what failed again and again, as long as it may.
func (f *logFS) again(err error, do func() error, may func() bool) error {
	f.s.health.set(causeLog, err)
	for pause := min(firstPause, f.s.o.pause); err != nil && may(); pause = min(2*pause, f.s.o.pause) {
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-f.closed:
			f.s.stopHere(err)
		}
		t.Stop()
		err = do()
	}
	if err == nil {
		f.s.health.set(causeLog, nil)
	}
	return err
}

func (f *logFS) Create(name string, c vfs.DiskWriteCategory) (file vfs.File, err error) {
	if !isLog(name) {
		return f.FS.Create(name, c)
	}
	err = f.insist(func() (err error) { file, err = f.FS.Create(name, c); return err })
	return f.wrap(file), err
}

func (f *logFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (file vfs.File, err error) {
	err = f.insist(func() (err error) {
		if file, err = f.FS.ReuseForWrite(oldname, newname, c); err != nil {
			// Half of it may have been done.
			if _, err2 := f.Stat(newname); err2 == nil {
				file, err = f.FS.Create(newname, c)
			}
		}
		return err
	})
	return f.wrap(file), err
}

// OpenDir returns a directory whose sync is tried again: it makes names durable, and there is no data that a failed one
// could have dropped. Pebble panics, on whatever goroutine it is, when it cannot sync a directory after moving a marker; that
// also happens while the database is being opened or closed, so the sync is tried a few times then, too.
func (f *logFS) OpenDir(name string) (vfs.File, error) {
	d, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &logDir{d, f, name}, nil
}

type logDir struct {
	vfs.File
	fs   *logFS
	name string
}

func (d *logDir) Sync() error {
	err := d.File.Sync()
	if err == nil {
		return nil
	}
	tries := 50
	return d.fs.again(err, func() error { return syncDir(d.fs.FS, d.name) }, func() bool {
		tries--
		return tries > 0 || d.fs.in.Load()
	})
}

func (f *logFS) wrap(file vfs.File) vfs.File {
	if file == nil {
		return nil
	}
	return &logFile{File: file, fs: f}
}

type logFile struct {
	vfs.File
	fs       *logFS
	poisoned atomic.Pointer[error]
}

func (f *logFile) Write(b []byte) (n int, err error) {
	err = f.fs.insist(func() error {
		m, err := f.File.Write(b[n:])
		n += max(0, m)
		return err
	})
	return n, err
}

// Preallocate only makes syncs cheaper.
func (f *logFile) Preallocate(offset, length int64) error {
	_ = f.File.Preallocate(offset, length)
	return nil
}

func (f *logFile) Sync() error { return f.sync(f.File.Sync) }

func (f *logFile) SyncData() error { return f.sync(f.File.SyncData) }

// SyncTo starts writing without waiting. Its failure is the next sync's: the system reports it only once.
func (f *logFile) SyncTo(length int64) (full bool, err error) {
	if full, err = f.File.SyncTo(length); err != nil {
		f.poisoned.CompareAndSwap(nil, &err)
		f.fs.failed.Store(true)
		return false, nil
	}
	return full, nil
}

func (f *logFile) sync(do func() error) error {
	err := do()
	if p := f.poisoned.Load(); err == nil && p != nil {
		err = *p
	}
	if err != nil {
		f.poisoned.CompareAndSwap(nil, &err)
		f.fs.failed.Store(true)
		f.stopAtEnd(err)
	}
	return err
}

// stopAtEnd stops the goroutine that ends a log whose sync failed. It is one of ours: Pebble's own only write and sync.
func (f *logFile) stopAtEnd(err error) {
	if at, ours := f.fs.s.health.owners.Load(goroutine()); ours && at != atDoor && f.fs.in.Load() {
		f.fs.s.stopHere(err)
	}
}

// Close comes after the last sync. Where that was done, and where an earlier one failed, on another goroutine, Pebble knows
// whether the log is whole; an error of closing is no news, and would be taken for one.
func (f *logFile) Close() error {
	err := f.File.Close()
	if p := f.poisoned.Load(); p != nil {
		f.stopAtEnd(*p)
	}
	if f.fs.in.Load() {
		return nil
	}
	return err
}

// Stat is asked of a log that is used again, before it is begun.
func (f *logFile) Stat() (info vfs.FileInfo, err error) {
	err = f.fs.insist(func() (err error) { info, err = f.File.Stat(); return err })
	return info, err
}
