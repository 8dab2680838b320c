package virtual

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/integration/proof"
)

// storeDir is where a host's store is, on its own disk.
const storeDir = "/dedupe"

// disk is a host's. It can be cloned while a log file is used again, which MemFS locks twice for.
type disk struct{ *vfs.MemFS }

func newDisk() disk { return disk{vfs.NewCrashableMem()} }

// ReuseForWrite implements vfs.FS.
func (d disk) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return d.OpenReadWrite(newname, c)
}

// left is what an end at this instant leaves, with so many percent of what was not synced.
func (d disk) left(percent int) disk {
	return disk{d.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 1))})}
}

// marks are the business keys of these that a copy of the store has marks for.
func (d disk) marks(host, scope string, ids map[string]bool) (marks []proof.Mark, err error) {
	at := time.Now()
	copied := d.left(100)
	if _, err := copied.Stat(storeDir); err != nil || len(ids) == 0 {
		return nil, nil
	}
	s, err := dedupe.Open(storeDir, dedupe.Options{FS: copied})
	if err != nil {
		return nil, fmt.Errorf("a copy of the store of %s: %w", host, err)
	}
	defer func() {
		if cerr := s.Close(); err == nil && cerr != nil && !strings.Contains(cerr.Error(), "closed") {
			err = cerr
		}
	}()
	in := s.Scope(scope)
	for id := range ids {
		_, found, err := s.Get(in.Key([]byte(id)))
		if err != nil {
			return nil, fmt.Errorf("key %q in a copy of the store of %s: %w", id, host, err)
		}
		if found {
			marks = append(marks, proof.Mark{Host: host, ID: id, At: at})
		}
	}
	return marks, nil
}
