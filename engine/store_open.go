package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/gaplesshq/gapless/dedupe"
)

// DedupeScope is the namespace of the business keys of a group's topic where Dedupe.Scope names none.
func DedupeScope(group, topic string) string { return group + "\x00" + topic }

// DedupeScope is the namespace of the business keys of a topic.
func (e *Engine) DedupeScope(topic string) string { return e.cfg.scopeOf(topic) }

// DedupeRetention is how long a business key is remembered from now on; keys that were marked before keep theirs.
func (e *Engine) DedupeRetention() time.Duration { return e.cfg.Dedupe.Retention }

// DedupeDir is the directory in which the stores of a group lie, one a process: 0, 1, 2 ... An empty base is the default one (see
// Dedupe.Base).
func DedupeDir(base, group string) (string, error) { return (&Dedupe{Base: base}).base(group) }

// mostSlots is where the search for a free directory ends, as in dedupe.OpenSlot.
const mostSlots = 1024

// openStoreDir opens the directory that was named, or the first free one of the group.
func (e *Engine) openStoreDir(o dedupe.Options) (*dedupe.Store, error) {
	d := &e.cfg.Dedupe
	if d.Dir != "" {
		s, err := e.openOrQuarantine(d.Dir, o)
		if errors.Is(err, dedupe.ErrLocked) {
			err = fmt.Errorf("%w. Dedupe.Base instead of Dedupe.Dir gives each process of a host the first free one", err)
		}
		return s, err
	}
	base, err := d.base(e.cfg.Group)
	if err != nil {
		return nil, err
	}
	join := filepath.Join
	if d.FS != nil {
		join = d.FS.PathJoin
	}
	// dedupe.OpenSlot does not say which directory can't be read, and that is the one to quarantine.
	for i := range mostSlots {
		s, err := e.openOrQuarantine(join(base, fmt.Sprint(i)), o)
		if !errors.Is(err, dedupe.ErrLocked) {
			return s, err
		}
	}
	return dedupe.OpenSlot(base, o)
}

// openOrQuarantine opens a store. One that can't be read is moved away where that was asked for, and only that: a newer one, a
// foreign one, or one that this user may not read is somebody's mistake, and its marks are good.
func (e *Engine) openOrQuarantine(dir string, o dedupe.Options) (*dedupe.Store, error) {
	s, err := dedupe.Open(dir, o)
	if !errors.Is(err, dedupe.ErrDamaged) {
		return s, err
	}
	if !e.cfg.Dedupe.Quarantine {
		return nil, fmt.Errorf("%w (Dedupe.Quarantine does that)", err)
	}
	to, moved := dedupe.Quarantine(dir, o.FS)
	if moved != nil {
		return nil, fmt.Errorf("%w; and it can't be quarantined: %w", err, moved)
	}
	e.emit(Event{Name: EventStoreQuarantined, Partition: -1, Err: err,
		Hint: "the dedupe store could not be read; it is now " + to + ", and an empty one takes its place: records whose keys it knew are handled again if they come again. Look at the disk; delete the copy when it is of no use"})
	if s, err = dedupe.Open(dir, o); err != nil {
		return nil, fmt.Errorf("%w (the unreadable store before it is %s)", err, to)
	}
	return s, nil
}

// diskSpace is what is free where the store lies, and how large that disk is; 0 where it is not known.
func (e *Engine) diskSpace() (free, total uint64) {
	disk := vfs.Default
	if e.cfg.Dedupe.FS != nil {
		disk = e.cfg.Dedupe.FS
	}
	u, err := disk.GetDiskUsage(e.marks.store.Dir())
	if err != nil {
		return 0, 0
	}
	return u.AvailBytes, u.TotalBytes
}
