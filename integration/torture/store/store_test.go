package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/engine/window"
)

// openCopy opens what a killed child has left of its store, without touching it: the next child is to find it as it was. There is
// none where the child did not get that far.
func openCopy(dir, to string) (*dedupe.Store, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err := os.RemoveAll(to); err != nil {
		return nil, err
	}
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		return nil, err
	}
	return dedupe.Open(to, dedupe.Options{})
}

// row is the window that the store has of a partition, if the next owner will use it in place of the commit's.
func (o *oracle) row(store *dedupe.Store, p int, commit *window.Window) *window.Window {
	raw, found, err := store.Row(append(commit.TopicID[:], 0, 0, 0, byte(p)))
	if err != nil {
		o.fault("durable: the row of partition %d can't be read: %v", p, err)
	}
	if !found || err != nil {
		return nil
	}
	row, err := window.DecodeBinary(raw)
	if err != nil {
		o.fault("durable: the row of partition %d: %v", p, err)
		return nil
	}
	beyondRow, _ := row.Counts()
	beyondCommit, _ := commit.Counts()
	if !row.Same(commit.TopicID) || row.Frontier < commit.Frontier || row.Frontier == commit.Frontier && beyondRow < beyondCommit {
		return nil
	}
	return &row
}

// bytesIn is the size of a directory.
func bytesIn(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			if info, err := d.Info(); err == nil && !d.IsDir() {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
