package engine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaplesshq/gapless/dedupe"
	"github.com/gaplesshq/gapless/engine/window"
)

// marks is the engine's side of the dedupe store: what of it is open, and who waits for it.
type marks struct {
	store *dedupe.Store                // nil where there is none; set before anything is consumed
	shown atomic.Pointer[dedupe.Store] // the same, for who may ask at any time

	ill atomic.Pointer[error] // why it can't write, if so

	// The store's committer's.
	rows snapshotter
	row  []byte
	put  []*epoch // whose rows went with the last group that was tried
	seq  uint64   // of that group

	mu      sync.Mutex
	dirty   []*epoch               // whose row has changed
	owners  map[uint64]*epoch      // by the sequence of their assignment
	waiting map[uint64]*retryState // for a key that another record holds
	waiters uint64
	last    dedupe.Stats  // as last seen
	looking chan struct{} // closed when the look under way has ended; nil = none is

	duplicates, differing, waits, unkeyed atomic.Int64
}

// ErrStore wraps what ends the engine because its dedupe store can't be used or repaired in this process. The next start repairs
// it, or says what to do.
var ErrStore = errors.New("gapless: the dedupe store can't go on in this process")

// enabled says whether the configuration asks for a store.
func (d *Dedupe) enabled() bool { return d.Enable || d.Dir != "" || d.Base != "" || d.Key != nil }

// base is the directory that the stores of this group lie in.
func (d *Dedupe) base(group string) (string, error) {
	base := d.Base
	if base == "" {
		if base = os.Getenv("XDG_STATE_HOME"); base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", &ConfigError{"Dedupe.Base", "there is no home directory for the default; name a directory that survives restarts"}
			}
			base = filepath.Join(home, ".local", "state")
		}
		base = filepath.Join(base, "gapless", "dedupe")
	}
	return filepath.Join(base, fileName(group)), nil
}

// fileName makes a file name of a group id, which may hold anything.
func fileName(group string) string {
	name := url.PathEscape(group)
	if strings.Trim(name, ".") == "" {
		name = strings.ReplaceAll(name, ".", "%2E")
	}
	return name
}

// openStore opens the dedupe store, if one is configured. It fails closed: without the store that was asked for nothing is
// consumed.
func (e *Engine) openStore() error {
	d := &e.cfg.Dedupe
	if !d.enabled() {
		return nil
	}
	o := dedupe.Options{
		Retention: d.Retention, MaxDelay: d.MaxDelay, MaxGroup: d.MaxGroup, MaxPending: d.MaxPending, FS: d.FS, Log: e.log,
		OnDurable: e.marked, OnFree: e.freed, Rows: e.writeRows, OnState: e.storeState,
		OnFatal: func(err error) { e.fail(fmt.Errorf("%w: %w", ErrStore, err)) },
	}
	begun := time.Now()
	s, err := e.openStoreDir(o)
	if err != nil {
		return fmt.Errorf("gapless: open the dedupe store: %w", err)
	}
	e.marks.store = s
	e.marks.shown.Store(s)
	st := s.Stats()
	e.emit(Event{Name: EventStoreOpened, Partition: -1, Count: st.Keys, Took: time.Since(begun),
		Hint: fmt.Sprintf("dedupe store %s: %d keys, %s of disk, %s of memory", s.Dir(), st.Keys, inBytes(st.DiskBytes), inBytes(st.MemoryBytes))})
	return nil
}

// closeStore ends the store after the last record has ended.
func (e *Engine) closeStore() {
	if e.marks.store == nil {
		return
	}
	if err := e.marks.store.Close(); err != nil {
		e.emit(Event{Name: EventStoreFailed, Partition: -1, Err: err, Hint: "the next start recovers what was durable"})
	}
}

// Store is the dedupe store while the engine runs; nil where none is configured.
func (e *Engine) Store() *dedupe.Store { return e.marks.shown.Load() }

// storeState hears that the store can't write, or can again. Until it can nothing starts and nothing is committed: a record that
// runs meanwhile could not be marked, and would be handled again.
func (e *Engine) storeState(err error) {
	if err == nil {
		e.marks.ill.Store(nil)
		e.health.set("dedupe store", nil)
		e.emit(Event{Name: EventStoreRecovered, Partition: -1})
		for _, ep := range e.allEpochs() {
			e.resume(ep, stopStore)
		}
		e.wakeCommit()
		return
	}
	e.marks.ill.Store(&err)
	e.health.set("dedupe store", err)
	e.emit(Event{Name: EventStoreFailed, Partition: -1, Err: err, Hint: "nothing starts and nothing is committed until the store can write again; look at its disk"})
	for _, ep := range e.allEpochs() {
		e.stop(ep, stopStore, err)
	}
}

// storeErr is why nothing may be committed now.
func (e *Engine) storeErr() error {
	if err := e.marks.ill.Load(); err != nil {
		return fmt.Errorf("gapless: not committed: the dedupe store can't write: %w", *err)
	}
	return nil
}

// own lets completions find their epoch.
func (m *marks) own(ep *epoch) {
	if m.store == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owners == nil {
		m.owners = map[uint64]*epoch{}
	}
	m.owners[ep.owner.Sequence] = ep
}

func (m *marks) disown(ep *epoch) {
	if m.store == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.owners, ep.owner.Sequence)
}

// rowKey names the row of a partition in the store.
func rowKey(ep *epoch) []byte {
	return append(append(make([]byte, 0, 20), ep.topicID[:]...), byte(ep.partition>>24), byte(ep.partition>>16), byte(ep.partition>>8), byte(ep.partition))
}

// writeRows is asked by the store for what goes with the next group: the windows that have changed. They are fresher than the
// commit's by its interval.
func (e *Engine) writeRows(put func(key, value []byte)) {
	m := &e.marks
	m.mu.Lock()
	eps := m.dirty
	m.dirty = nil
	m.mu.Unlock()
	store := m.shown.Load()
	if store == nil { // it is being opened
		return
	}
	next := store.Seq() + 1
	if m.seq == next { // the last group was not written after all, and this is its next try
		eps = append(eps, m.put...)
	}
	m.put, m.seq = m.put[:0], next
	for _, ep := range eps {
		ep.rowDirty.Store(false)
		if p := phase(ep.phase.Load()); p != phaseActive && p != phaseDraining || ep.topicID == [16]byte{} {
			continue
		}
		w := m.rows.window(ep, rowListMax)
		if w.Frontier < 0 {
			continue
		}
		rowFrontier(w, ep.before.Load())
		m.row = w.AppendBinary(m.row[:0])
		put(rowKey(ep), m.row)
		m.put = append(m.put, ep)
		if at := ep.rowSeq.Load(); at == 0 || at >= next {
			ep.rowSeq.Store(next)
		}
	}
}

// rowListMax bounds the offsets that a row lists: what a partition may hold, at most, and more.
const rowListMax = 1 << 17

// rowFrontier lets a row keep the frontier of the row before it while nothing above the committed offset has been delivered: it
// may lie above the offset, where a commit's may not.
func rowFrontier(w, before *window.Window) {
	if before == nil || before.Frontier <= w.Frontier || len(w.Undone) == 0 || w.Undone[0] != w.Frontier {
		return
	}
	if len(w.Undone) > 1 && w.Undone[1] < before.Frontier {
		return
	}
	w.Frontier = before.Frontier
	w.Undone = w.Undone[1:]
}

// touchRow says that there is something to write of a partition.
func (e *Engine) touchRow(ep *epoch) {
	if e.marks.store == nil || ep.rowDirty.Load() {
		return
	}
	if ep.rowDirty.Swap(true) {
		return
	}
	e.marks.mu.Lock()
	e.marks.dirty = append(e.marks.dirty, ep)
	e.marks.mu.Unlock()
	e.marks.store.Touch()
}

// rowSaid says whether the row of a partition is durable, so that a commit may name the store.
func (e *Engine) rowSaid(ep *epoch) bool {
	at := ep.rowSeq.Load()
	return at > 0 && e.marks.store.Seq() >= at
}

// findRow looks for a fresher window in the store. The row counts only where the commit names this very store: then no other owner
// and no operator has moved the group since.
func (e *Engine) findRow(ep *epoch, w *window.Window) *window.Window {
	s := e.marks.store
	if s == nil || w.Store != s.ID() {
		return nil
	}
	if w.StoreSeq > s.Seq() {
		err := fmt.Errorf("the group's commit is from its group %d, and the store is at %d", w.StoreSeq, s.Seq())
		e.health.set("dedupe store rolled back", err)
		e.emit(Event{Name: EventStoreRolledBack, Topic: ep.topic, Partition: ep.partition, Offset: w.Frontier, Err: err,
			Hint: "the dedupe store has lost writes: it was restored from a copy, or its disk does not keep what it syncs. Marks that are missing let duplicates through; check the disk under " + s.Dir()})
		return nil
	}
	raw, ok, err := s.Row(rowKey(ep))
	if err != nil {
		e.emit(Event{Name: EventWindowIgnored, Topic: ep.topic, Partition: ep.partition, Offset: w.Frontier, Err: err, Hint: "the store's row can't be read; the commit's window is used"})
		return nil
	}
	if !ok {
		return nil
	}
	row, err := window.DecodeBinary(raw)
	if err != nil || !row.Same(ep.topicID) || row.Frontier < w.Frontier {
		return nil
	}
	if a, b := reachOf(&row), reachOf(w); row.Frontier == w.Frontier && a < b {
		return nil
	}
	return &row
}

// reachOf is how many offsets a window settles beyond its frontier.
func reachOf(w *window.Window) int64 {
	settled, _ := w.Counts()
	return settled
}

// flushStore makes durable what handlers have finished, so that the last commit of a drain includes it. It returns how many finished
// records are not durable.
func (e *Engine) flushStore(ctx context.Context, timeout time.Duration) int64 {
	if e.marks.store == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := e.marks.store.Flush(ctx)
	if err == nil {
		return 0
	}
	pending := e.marks.store.Pending()
	e.emit(Event{Name: EventStoreFailed, Partition: -1, Count: pending, Err: err, Hint: "what finished last may be handled again"})
	return pending
}

// stats is the state of the store, or that of a moment ago where the store hangs: neither a status nor a stop waits for a disk.
func (m *marks) stats() dedupe.Stats {
	m.mu.Lock()
	done := m.looking
	if done == nil {
		done = make(chan struct{})
		m.looking = done
		go func() {
			st := m.shown.Load().Stats()
			m.mu.Lock()
			defer m.mu.Unlock()
			m.last, m.looking = st, nil
			close(done)
		}()
	}
	m.mu.Unlock()
	late, stop := after(100 * time.Millisecond)
	defer stop()
	select {
	case <-done:
	case <-late:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// scopeOf is the namespace of a topic's business keys.
func (c *Config) scopeOf(topic string) string {
	if c.Dedupe.Scope != "" {
		return c.Dedupe.Scope
	}
	return DedupeScope(c.Group, topic)
}
