package demo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/engine/window"
	"github.com/twmb/franz-go/pkg/kadm"
)

// kill is what is known of the moment at which a process was killed, gathered right after it had ended and before anybody
// went on with its work.
type kill struct {
	life      string
	clock     int64         // by the journal's clock: all lines of that life lie below
	at        time.Duration // since the demo's start
	committed map[int32]commit
	gap       time.Duration // the longest between two looks at the group's offsets of late: how busy the machine is
	copied    string        // a copy of the store, as the process left it; empty: there is none
	durable   map[int32]bool
}

// commit is what the group holds for a partition: all that the next owner will know, unless it has the store.
type commit struct {
	offset  int64
	window  *window.Window // what it says of the work beyond it; nil = nothing
	bytes   int            // of its metadata
	badness error          // its metadata is no window
}

func commitOf(o kadm.Offset) commit {
	c := commit{offset: o.At, bytes: len(o.Metadata)}
	w, err := window.Decode(o.Metadata)
	switch {
	case errors.Is(err, window.ErrNone):
	case err != nil:
		c.badness = err
	default:
		c.window = &w
	}
	return c
}

// says is whether a commit has an offset finished.
func (c *commit) says(offset int64) bool {
	return offset < c.offset || c.window != nil && c.window.Frontier == c.offset && c.window.Done(offset)
}

// shortenedFrom is the least length of a window that may say of itself that it was shortened.
const shortenedFrom = 3000

// dropped is whether an offset is beyond what a shortened window had room for.
func (c *commit) dropped(offset int64) bool {
	return c.window != nil && c.window.Cut && c.bytes >= shortenedFrom && offset > c.window.Highest
}

// strike kills a member in the middle of its work, and notes how it left things.
func (d *demo) strike(m *member) (*kill, error) {
	if err := d.kill(m); err != nil {
		return nil, err
	}
	k := &kill{life: m.life, at: time.Since(d.journal.begun)}
	var err error
	if k.clock, err = d.journal.killed(m.life); err != nil {
		return nil, err
	}
	w := d.witness.Load()
	k.gap = w.longestGap()
	if k.committed, err = w.committed(d.ctx); err != nil {
		return nil, fmt.Errorf("read what was committed when %s was killed: %w", m.name, err)
	}
	if !d.o.broken.NoStore {
		k.copied = filepath.Join(d.dir, "killed-"+m.life)
		if err := copyDir(k.copied, m.store); err != nil {
			return nil, fmt.Errorf("copy the store of %s: %w", m.name, err)
		}
	}
	d.mu.Lock()
	d.kills = append(d.kills, k)
	d.mu.Unlock()
	return k, nil
}

// isKilled says whether a member's last life was killed, and it has not been started again.
func (d *demo) isKilled(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.kills)
	return n > 0 && d.kills[n-1].life == fmt.Sprint(name, d.lives[name])
}

// ask finds which orders had a durable mark, in the copy of the store. The copy is opened as the process itself will open its
// store again, by recovery from the log; so what the store's own process had in memory has no say in it.
func (k *kill) ask(orders int) error {
	k.durable = map[int32]bool{}
	if k.copied == "" {
		return nil
	}
	s, err := dedupe.Open(k.copied, dedupe.Options{})
	if err != nil {
		return fmt.Errorf("open the store that %s left: %w", k.life, err)
	}
	scope := s.Scope(topic)
	for order := range int32(orders) {
		c, v, err := s.Claim(scope.Key(strconv.AppendInt(nil, int64(order), 10)), 0, dedupe.Tag{})
		if err != nil {
			return errors.Join(fmt.Errorf("ask the store that %s left: %w", k.life, err), s.Close())
		}
		s.Release(c)
		if v != dedupe.Mine { // a mark, of whatever payload
			k.durable[order] = true
		}
	}
	return s.Close()
}

func copyDir(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	err := os.CopyFS(to, os.DirFS(from))
	if errors.Is(err, fs.ErrNotExist) { // killed before it had a store
		return nil
	}
	return err
}
