// Package crashfs is a file system in memory for tests that lose power: it can be copied, as a disk would be found after a power
// loss, at any moment, while others write to it; and each operation can be made to fail, or be preceded by something.
//
// It is Pebble's MemFS and errorfs with three holes filled. A MemFS takes a lock twice when it links a file, locks one or takes one
// for use again, and a copy that is asked for in between waits for ever. errorfs gives out the file of a log that is used again
// as it is, so its writes and syncs are never asked about.
package crashfs

import (
	"io"
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// FS is a disk in memory.
type FS struct {
	*vfs.MemFS
	copying sync.RWMutex
}

// New returns an empty disk.
func New() *FS { return &FS{MemFS: vfs.NewCrashableMem()} }

// AfterPowerLoss returns a disk as it is found after a power loss at this moment: what was synced is there, and so many per cent of
// what was not, which the seed draws.
func (f *FS) AfterPowerLoss(percent int, seed uint64) *FS {
	f.copying.Lock()
	defer f.copying.Unlock()
	return &FS{MemFS: f.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 2))})}
}

func (f *FS) Link(oldname, newname string) error {
	f.copying.RLock()
	defer f.copying.RUnlock()
	return f.MemFS.Link(oldname, newname)
}

func (f *FS) Lock(name string) (io.Closer, error) {
	f.copying.RLock()
	defer f.copying.RUnlock()
	return f.MemFS.Lock(name)
}

func (f *FS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return reuse(f, oldname, newname, c)
}

// Asking returns fs with a question to inj before each operation, those on logs that are used again included.
func Asking(fs vfs.FS, inj errorfs.Injector) vfs.FS { return asking{errorfs.Wrap(fs, inj)} }

type asking struct{ *errorfs.FS }

func (f asking) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return reuse(f, oldname, newname, c)
}

func reuse(fs vfs.FS, oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return fs.OpenReadWrite(newname, c)
}
