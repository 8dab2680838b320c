package dedupe

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Info is what Inspect finds.
type Info struct {
	ID      [16]byte
	Created time.Time
	Seq     uint64    // of the last group
	Time    time.Time // by which marks age, as of the last group
	Stream  time.Time // the latest stream time; zero if none was observed
	Buckets []BucketInfo
	Bytes   int64 // on disk, in tables
}

// BucketInfo is what Inspect finds of a bucket, the newest first.
type BucketInfo struct {
	Start     time.Time
	Width     time.Duration
	Retention time.Duration
	Parts     int
	Bytes     int64
}

// Inspect reads what a store is without changing it, while no other process has it open. A nil FS is the machine's. The
// errors are those of Open.
func Inspect(dir string, f vfs.FS) (info Info, err error) {
	s, err := offline(dir, f)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, s.lock.Close()) }()
	o, _ := s.pebbleOptions()
	o.ReadOnly = true
	err = guard(func() error {
		defer s.health.own(atDoor)()
		if err := s.check(); err != nil {
			return err
		}
		db, err := pebble.Open(dir, o)
		if err != nil {
			return err
		}
		return errors.Join(info.read(db, dir), db.Close())
	})
	if err != nil {
		return info, s.openError(err)
	}
	return info, nil
}

func (i *Info) read(db *pebble.DB, dir string) error {
	l := loaded{db: db, generations: map[string]uint64{}}
	if err := l.meta(dir); err != nil {
		return err
	}
	i.ID, i.Seq = l.schema.id, l.state.seq
	i.Created, i.Time = time.UnixMilli(l.schema.created), time.UnixMilli(l.state.time)
	if l.state.stream > 0 {
		i.Stream = time.UnixMilli(l.state.stream)
	}
	i.Bytes = int64(db.Metrics().DiskSpaceUsage())
	for _, b := range l.buckets {
		c := BucketInfo{
			Start: time.UnixMilli(b.start), Width: time.Duration(b.width) * time.Millisecond,
			Retention: time.Duration(b.retention) * time.Millisecond,
		}
		for _, prefix := range []byte{sealedPrefix, arrivalPrefix} {
			err := eachPart(db, prefix, func(bucket, part uint32) {
				if bucket == b.serial {
					c.Parts++
				}
			})
			if err != nil {
				return err
			}
			span := bucketSpan(prefix, b.serial)
			n, err := db.EstimateDiskUsage(span.Start, span.End)
			if err != nil {
				return err
			}
			c.Bytes += int64(n)
		}
		i.Buckets = append(i.Buckets, c)
	}
	return nil
}

// offline takes a directory without opening what is in it.
func offline(dir string, f vfs.FS) (*Store, error) {
	o, err := Options{FS: f}.withDefaults()
	if err != nil {
		return nil, err
	}
	s := newStore(dir, o)
	info, err := s.fs.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("dedupe: %s: %w", dir, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("dedupe: %s is a file, not a store", dir)
	}
	if s.lock, err = lockDirectory(dir, s.fs); err != nil {
		return nil, err
	}
	return s, nil
}

// Quarantine moves a store that cannot be opened out of the way and returns where it is now: next to where it was, with the
// time in its name. Nothing is deleted. The next Open starts with an empty store, and what the old one remembered runs
// again where it comes again. It does not ask what is wrong with the store, but refuses one that is in use (ErrLocked). A nil
// FS is the machine's.
func Quarantine(dir string, f vfs.FS) (path string, err error) {
	s, err := offline(dir, f)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.lock.Close()) }()
	base := fmt.Sprintf("%s.bad-%s", dir, time.Now().UTC().Format("20060102T150405"))
	path = base
	for i := 1; ; i++ {
		if _, err := s.fs.Stat(path); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return "", fmt.Errorf("dedupe: %s: %w", path, err)
		}
		path = fmt.Sprintf("%s-%d", base, i)
	}
	if err := s.fs.Rename(dir, path); err != nil {
		return "", fmt.Errorf("dedupe: %s cannot be moved: %w", dir, err)
	}
	if err := syncDir(s.fs, s.fs.PathDir(dir)); err != nil {
		return path, fmt.Errorf("dedupe: %s was moved to %s, but that is not durable: %w", dir, path, err)
	}
	return path, nil
}
