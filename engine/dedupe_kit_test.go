package engine

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gaplesshq/gapless/engine/window"
	"github.com/gaplesshq/gapless/internal/crashfs"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// machine is what a member with a store runs on. It can die at any instant: then nothing that the member does counts any more, its
// network is gone, and what a power loss leaves of its disk is that of another machine.
type machine struct {
	w       *world
	mem     *crashfs.FS
	disk    vfs.FS
	effects *effects
	fault   atomic.Pointer[func(errorfs.Op) error]
	closing atomic.Pointer[chan struct{}] // until it is closed, no log can be

	mu     sync.Mutex
	dead   bool
	conns  []net.Conn
	member *member
}

// effects are what handlers have done, over all machines.
type effects struct {
	mu   sync.Mutex
	done map[string]int
}

// machine makes a machine with an empty disk; like, if any, is one that it shares the effects with.
func (w *world) machine(like *machine) *machine {
	m := &machine{w: w, mem: crashfs.New(), effects: &effects{done: map[string]int{}}}
	if like != nil {
		m.effects = like.effects
	}
	m.mount()
	return m
}

// mount makes a file system of what is on the disk.
func (m *machine) mount() {
	m.disk = crashfs.Asking(hanging{m.mem, m}, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if f := m.fault.Load(); f != nil {
			return (*f)(op)
		}
		return nil
	}))
}

// hanging is a disk on which closing a log can take for ever.
type hanging struct {
	*crashfs.FS
	m *machine
}

func (f hanging) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return f.wrap(file, name, err)
}

func (f hanging) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	return f.wrap(file, name, err)
}

func (f hanging) wrap(file vfs.File, name string, err error) (vfs.File, error) {
	if err == nil && strings.HasSuffix(name, ".log") {
		file = logFile{file, f.m}
	}
	return file, err
}

// logFile can hang when it is closed.
type logFile struct {
	vfs.File
	m *machine
}

func (f logFile) Close() error {
	if hang := f.m.closing.Load(); hang != nil {
		<-*hang
	}
	return f.File.Close()
}

// config is the start of a configuration for a member on this machine.
func (m *machine) config(h HandlerFunc) Config {
	c := brisk(m.w.config(h))
	c.KgoOpts = append(c.KgoOpts, kgo.Dialer(m.dial))
	c.Dedupe = Dedupe{Dir: "/dedupe", FS: m.disk}
	return c
}

func (m *machine) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := m.w.net.DialContext(ctx, network, addr)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		if err == nil {
			_ = conn.Close()
		}
		return nil, errDead
	}
	if err == nil {
		m.conns = append(m.conns, conn)
	}
	return conn, err
}

func (m *machine) start(c Config) *member {
	m.w.Helper()
	m.member = m.w.start(c)
	return m.member
}

var errDead = errors.New("the machine is dead")

// did notes an effect; where the machine is dead it has none.
func (m *machine) did(v string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	m.effects.mu.Lock()
	defer m.effects.mu.Unlock()
	m.effects.done[v]++
	return nil
}

// crash ends the machine, keeping so many percent of what was not synced, and returns the one that goes on with what is left of the
// disk. The group does not know yet.
func (m *machine) crash(percent int) *machine {
	next := m.w.machine(m)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return next
	}
	m.dead = true
	for _, c := range m.conns { // first: a commit that came later would speak of more than the disk has
		_ = c.Close()
	}
	next.mem = m.mem.AfterPowerLoss(percent, 1)
	next.mount()
	return next
}

// bury has the group forget a member whose machine is dead.
func (m *machine) bury() {
	m.w.Helper()
	m.w.expel(m.member.id())
	m.member.cancel()
}

// dies is a crash that the group hears of.
func (m *machine) dies() *machine {
	m.w.Helper()
	next := m.crash(0)
	m.bury()
	return next
}

// breaks makes operations of the disk fail, or wait; nil heals it.
func (m *machine) breaks(f func(op errorfs.Op) error) {
	if f == nil {
		m.fault.Store(nil)
		return
	}
	m.fault.Store(&f)
}

// isLogSync says that the store's log is about to be synced: what is being written is durable after it.
func isLogSync(op errorfs.Op) bool {
	return strings.HasSuffix(op.Path, ".log") && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo)
}

// stuckSyncs make syncs of the log wait until release.
func (m *machine) stuckSyncs() (release func()) {
	hold := make(chan struct{})
	release = sync.OnceFunc(func() {
		m.breaks(nil)
		close(hold)
	})
	m.w.ends = append(m.w.ends, release)
	m.breaks(func(op errorfs.Op) error {
		if isLogSync(op) {
			<-hold
		}
		return nil
	})
	return release
}

// of is how often a value was handled.
func (e *effects) of(v string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done[v]
}

func (e *effects) all() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.done)
}

// times are the values that were handled so often.
func (e *effects) times(n int) (values []string) {
	for v, c := range e.all() {
		if c == n {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return values
}

// more are the values that were handled more often than once.
func (e *effects) more() (values []string) {
	for v, c := range e.all() {
		if c > 1 {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return values
}

// saved is what the group has committed for partition 0 of "t", with its metadata.
func (w *world) saved() (offset int64, metadata string, win window.Window) {
	w.Helper()
	resp, err := w.adm.FetchOffsets(context.Background(), testGroup)
	if err != nil {
		w.Fatal(err)
	}
	o, ok := resp.Lookup("t", 0)
	if !ok {
		return -1, "", window.Window{}
	}
	win, _ = window.Decode(o.Metadata)
	return o.At, o.Metadata, win
}

// save commits for partition 0 of "t" as another program does, once the group has no members.
func (w *world) save(offset int64, metadata string) {
	w.Helper()
	var os kadm.Offsets
	os.Add(kadm.Offset{Topic: "t", At: offset, LeaderEpoch: -1, Metadata: metadata})
	w.eventually("the group has no members", func() bool { return w.adm.CommitAllOffsets(context.Background(), testGroup, os) == nil })
}

// assigned is the event of partition 0's assignment to a member.
func (m *member) assigned() Event {
	m.w.Helper()
	return m.await("assigned", func(ev Event) bool { return ev.Name == EventAssigned && ev.Partition == 0 })
}

// failSyncs makes the next n syncs of the log fail, and drops what they were to write, as systems do.
func (m *machine) failSyncs(n int64) {
	var left atomic.Int64
	left.Store(n)
	synced := map[string]int{}
	names, _ := m.mem.List("/dedupe")
	for _, name := range names {
		if b, err := m.mem.UnsafeGetFileDataBuffer("/dedupe/" + name); err == nil && strings.HasSuffix(name, ".log") {
			synced["/dedupe/"+name] = len(b)
		}
	}
	m.breaks(func(op errorfs.Op) error {
		if isLogSync(op) && left.Add(-1) >= 0 {
			if b, err := m.mem.UnsafeGetFileDataBuffer(op.Path); err == nil && len(b) > synced[op.Path] {
				clear(b[synced[op.Path]:])
			}
			return syscall.EIO
		}
		return nil
	})
}

// full makes the disk take nothing more, until free.
func (m *machine) full() (free func()) {
	m.breaks(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpReuseForWrite, errorfs.OpMkdirAll:
			return syscall.ENOSPC
		}
		return nil
	})
	free = func() { m.breaks(nil) }
	m.w.ends = append(m.w.ends, free)
	return free
}

// whenOpened is a log that calls f when the store has been opened, before anything is consumed.
func whenOpened(f func()) zerolog.Logger {
	return zerolog.New(io.Discard).Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, message string) {
		if message == string(EventStoreOpened) {
			f()
		}
	}))
}
