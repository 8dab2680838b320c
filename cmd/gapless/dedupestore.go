package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/engine/admin"
)

// dedupeStore is a store: one that this command has opened, or that of a running process.
type dedupeStore interface {
	stats(ctx context.Context) (admin.StoreStats, error)
	get(ctx context.Context, scope scopeOf, key []byte) (admin.StoreKey, error)
	forget(ctx context.Context, scope scopeOf, keys [][]byte) (admin.Forgotten, error) // no keys = all of the scope
	verify(ctx context.Context, progress func(admin.VerifyProgress)) (admin.Verified, error)
	compact(ctx context.Context) (admin.Compacted, error)
	close() error
}

// open finds the store.
func (c *storeCommand) open(ctx context.Context) (dedupeStore, error) {
	if err := c.settle(); err != nil {
		return nil, err
	}
	if c.admin != "" {
		return newLiveStore(c.admin)
	}
	dir, err := c.find()
	if err != nil {
		return nil, err
	}
	return openClosed(ctx, dir)
}

// find is the directory of a store that is there: nothing here makes one.
func (c *storeCommand) find() (string, error) {
	if c.dir != "" {
		if !isStore(c.dir) {
			return "", unreachable(fmt.Errorf("there is no dedupe store in %s", c.dir))
		}
		return c.dir, nil
	}
	if c.group == "" {
		return "", usageError("--dir: name the store's directory, or its --group (with --base where it is not the default), or the --admin address of the process that has it open")
	}
	dir, err := engine.DedupeDir(c.base, c.group)
	if err != nil {
		return "", usageError("--base: %s", trimPrefix(err.Error()))
	}
	var slots []int
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", unreachable(err)
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n >= 0 && isStore(filepath.Join(dir, e.Name())) {
			slots = append(slots, n)
		}
	}
	slices.Sort(slots)
	switch {
	case len(slots) == 0:
		return "", unreachable(fmt.Errorf("group %s has no dedupe store on this host: there is none in %s%s", printable(c.group), dir, othersThan(dir)))
	case c.slot >= 0 && !slices.Contains(slots, c.slot):
		return "", usageError("--slot: group %s has no store %d in %s; it has %s", printable(c.group), c.slot, dir, listed(slots))
	case c.slot >= 0:
		return filepath.Join(dir, strconv.Itoa(c.slot)), nil
	case len(slots) > 1:
		return "", usageError("--slot: group %s has %d stores in %s, of as many processes: %s; say which", printable(c.group), len(slots), dir, listed(slots))
	}
	return filepath.Join(dir, strconv.Itoa(slots[0])), nil
}

func listed(slots []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(slots), " ", ", "), "[]")
}

// othersThan names the groups that have something beside dir.
func othersThan(dir string) string {
	entries, _ := os.ReadDir(filepath.Dir(dir)) // nobody has a store there
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != filepath.Base(dir) {
			names = append(names, e.Name())
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) > 10:
		names = append(names[:10], "...")
	}
	return "; others have: " + strings.Join(names, ", ")
}

// isStore says whether a directory holds a store, or what is left of one. Opening would make one.
func isStore(dir string) bool {
	entries, _ := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "marker.") || strings.HasPrefix(e.Name(), "MANIFEST-") || strings.HasSuffix(e.Name(), ".sst")
	})
}

// closedStore is one that this command has opened.
type closedStore struct {
	s         *dedupe.Store
	info      dedupe.Info
	retention time.Duration // of the newest keys
}

// openClosed opens a store that nobody has open. It is looked at first without a change: marks that are forgotten are covered by
// an entry with the retention that the store is opened with, which must not end before that of the marks.
func openClosed(ctx context.Context, dir string) (*closedStore, error) {
	info, err := dedupe.Inspect(dir, nil)
	if err != nil {
		return nil, storeRefusal(dir, err)
	}
	c := &closedStore{info: info, retention: dedupe.DefaultRetention}
	longest := time.Duration(0)
	for i, b := range info.Buckets {
		if i == 0 {
			c.retention = b.Retention
		}
		longest = max(longest, b.Retention)
	}
	if c.s, err = dedupe.Open(dir, dedupe.Options{Retention: longest, MaxDelay: -1}); err != nil {
		return nil, storeRefusal(dir, err)
	}
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), c.close())
	}
	return c, nil
}

// storeRefusal says what to do about a store that does not open.
func storeRefusal(dir string, err error) error {
	switch {
	case errors.Is(err, dedupe.ErrLocked):
		return unreachable(fmt.Errorf("%s is open in a running process. Ask that one, with --admin and the address that it was started with (--admin-addr, or GAPLESS_ADMIN_ADDR), such as --admin localhost:8080; or stop it first", dir))
	case errors.Is(err, dedupe.ErrDamaged):
		return fmt.Errorf("%w: gapless run --dedupe-quarantine moves it aside", err)
	}
	return unreachable(err)
}

func (c *closedStore) close() error { return c.s.Close() }

func (c *closedStore) stats(context.Context) (admin.StoreStats, error) {
	st := admin.StatsOf(c.s, c.retention)
	st.Created = c.info.Created
	for _, b := range c.info.Buckets {
		end := b.Start.Add(b.Width)
		st.Spans = append(st.Spans, admin.StoreSpan{Start: b.Start, End: end, Expired: end.Add(b.Retention), RetentionSeconds: b.Retention.Seconds(), Parts: b.Parts, Bytes: b.Bytes})
	}
	return st, nil
}

func (c *closedStore) get(_ context.Context, scope scopeOf, key []byte) (admin.StoreKey, error) {
	return admin.LookUp(c.s, scope.id(), key)
}

func (c *closedStore) forget(ctx context.Context, scope scopeOf, keys [][]byte) (admin.Forgotten, error) {
	return admin.Forget(ctx, c.s, scope.id(), keys)
}

func (c *closedStore) verify(ctx context.Context, progress func(admin.VerifyProgress)) (admin.Verified, error) {
	return admin.Verify(ctx, c.s, progress)
}

func (c *closedStore) compact(ctx context.Context) (admin.Compacted, error) {
	return admin.Compact(ctx, c.s)
}
