package dedupe

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleFormat is the format of Pebble's files. It is pinned: the default format lets a flipped byte in the log pass for its
// end, and a higher one than this could not be opened by an older version.
const pebbleFormat = pebble.FormatValueSeparation

const blockSize = 4096

// comparer is Pebble's, by a name of our own: a Pebble database of something else is refused before anything is changed.
var comparer = func() pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "gapless.dedupe"
	return c
}()

// lockDirectory makes the directory, durably, and takes it for this Store.
func lockDirectory(dir string, f vfs.FS) (*pebble.Lock, error) {
	if err := makeDirectory(dir, f); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, f)
	if err == nil {
		return lock, nil
	}
	var p *fs.PathError
	if errors.As(err, &p) || errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EACCES) {
		return nil, fmt.Errorf("dedupe: %s cannot be written: %w; give this user the right to write there, or choose another directory", dir, err)
	}
	return nil, fmt.Errorf("%w: %s is held by this or another process (%w); each needs a directory of its own", ErrLocked, dir, err)
}

func makeDirectory(dir string, f vfs.FS) error {
	if dir == "" {
		return errors.New("dedupe: no directory was given")
	}
	var missing []string // innermost first
	for d := dir; ; {
		info, err := f.Stat(d)
		if err == nil {
			if !info.IsDir() {
				return fmt.Errorf("dedupe: %s is a file; a store needs a directory", d)
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			if errors.Is(err, syscall.ENOTDIR) {
				return fmt.Errorf("dedupe: %s lies under a file; a store needs a directory (%w)", dir, err)
			}
			return fmt.Errorf("dedupe: %s cannot be used: %w", dir, err)
		}
		missing = append(missing, d)
		up := f.PathDir(d)
		if up == d {
			break
		}
		d = up
	}
	if len(missing) == 0 {
		return nil
	}
	if err := f.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("dedupe: %s cannot be made: %w", dir, err)
	}
	// A directory that a power loss takes away takes the store with it.
	for _, d := range missing {
		if err := syncDir(f, f.PathDir(d)); err != nil {
			return fmt.Errorf("dedupe: %s cannot be made durable: %w", d, err)
		}
	}
	return nil
}

// check looks at the directory before Pebble does. A store that lost its markers, which say what belongs to it, looks like
// none to Pebble, which would start an empty one over it.
func (s *Store) check() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return s.openError(err)
	}
	var marked bool
	var data string
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "marker.format-version."):
			marked = true
			v, err := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
			if err == nil && v > int(pebbleFormat) {
				return fmt.Errorf("%w: %s has Pebble's format %d, known is %d; use the version that wrote it, or a new directory", ErrNewer, s.dir, v, pebbleFormat)
			}
		case strings.HasPrefix(name, "marker.manifest."):
			marked = true
		case strings.HasSuffix(name, ".sst"):
			data = name
		case strings.HasSuffix(name, ".log"):
			if info, err := s.fs.Stat(s.fs.PathJoin(s.dir, name)); err == nil && info.Size() > 0 {
				data = name
			}
		}
	}
	if !marked && data != "" {
		return s.openError(fmt.Errorf("%w: %s is there, but what says that it belongs to the store is gone", ErrDamaged, data))
	}
	return nil
}

// openError says what to do about a store that does not open.
func (s *Store) openError(err error) error {
	switch {
	case errors.Is(err, ErrNewer), errors.Is(err, ErrForeign):
		return err
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("dedupe: %s cannot be used: %w; give this user the right to read and write there", s.dir, err)
	}
	if strings.Contains(err.Error(), "comparer name") {
		return fmt.Errorf("%w: %s is a Pebble database of something else; choose another directory (%w)", ErrForeign, s.dir, err)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("dedupe: %s cannot be opened: %w", s.dir, err)
	}
	if !errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return fmt.Errorf("%s cannot be opened: %w; quarantine it to start with an empty store, which costs duplicates", s.dir, err)
}

// openAndLoad opens the database and reads what has to be in memory. Only the first opening may make a store. Pebble's Open
// waits for its background goroutines, so where one of those was stopped for good (fatalf), it is left behind.
func (s *Store) openAndLoad(first bool) (*loaded, error) {
	type result struct {
		l   *loaded
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer s.health.own(atDoor)()
		l, err := s.openNow(first)
		done <- result{l, err}
	}()
	select {
	case r := <-done:
		return r.l, r.err
	case <-s.health.dead:
		return nil, *s.health.fatal.Load()
	}
}

func (s *Store) openNow(first bool) (l *loaded, err error) {
	var db *pebble.DB
	err = guard(func() error {
		if err := s.check(); err != nil {
			return err
		}
		if err := s.removeLeftovers(); err != nil {
			return err
		}
		o, gate := s.pebbleOptions()
		if db, err = pebble.Open(s.dir, o); err != nil {
			return err
		}
		gate.open()
		if first {
			if err := s.create(db); err != nil {
				return err
			}
		}
		l, err = s.load(db)
		return err
	})
	if err == nil {
		return l, nil
	}
	if db != nil {
		// Whatever closing says, the first error is the one to know.
		_ = within(s.o.CloseTimeout, db.Close)
	}
	return nil, s.openError(err)
}

// removeLeftovers removes tables that were being written when the process died.
func (s *Store) removeLeftovers() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, sealingPrefix) {
			if err := s.fs.Remove(s.fs.PathJoin(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// create writes what makes a new database a store.
func (s *Store) create(db *pebble.DB) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	empty := !it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil || !empty {
		return err
	}
	c := schema{hash: hashSHA256, created: s.o.Now().UnixMilli()}
	_, _ = rand.Read(c.id[:]) // never fails
	_, _ = rand.Read(c.salt[:])
	b := db.NewBatch()
	st := state{}
	if err := errors.Join(b.Set([]byte(schemaKey), c.encode(), nil), b.Set([]byte(stateKey), st.encode(), nil),
		b.Set([]byte(bucketsKey), encodeSpans(0, nil), nil)); err != nil {
		return err
	}
	return b.Commit(pebble.Sync)
}

// pebbleOptions are what was measured to matter. Memtables are small, because they are replayed at open and charged to the
// cache. There are no filters in the tables, since ours answer before a table is asked, and no compression, since hashes do not
// shrink.
func (s *Store) pebbleOptions() (*pebble.Options, *gate) {
	o := &pebble.Options{
		FS:                          s.logs,
		Comparer:                    &comparer,
		Lock:                        s.lock,
		FormatMajorVersion:          pebbleFormat,
		CacheSize:                   s.o.cache,
		MemTableSize:                s.o.memtable,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                1000,
		DisableTableStats:           true,
		Logger:                      pebbleLog{s},
		EventListener:               s.events(),
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = blockSize
		o.Levels[i].IndexBlockSize = 256 << 10
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	}
	g := newGate()
	o.Experimental.CompactionScheduler = g
	return o, g
}

func (s *Store) tableOptions() sstable.WriterOptions {
	o, _ := s.pebbleOptions()
	o.EnsureDefaults()
	return o.MakeWriterOptions(6, pebbleFormat.MaxTableFormat())
}
