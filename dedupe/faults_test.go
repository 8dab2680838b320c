package dedupe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gaplesshq/gapless/internal/crashfs"
)

// fault makes writes of the file system fail, from the nth on for so many.
type fault struct {
	err   error
	from  int64
	count int64
	ops   atomic.Int64
	hits  atomic.Int64
	off   atomic.Bool
	first atomic.Pointer[string]
}

func (f *fault) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	if n := f.ops.Add(1); f.off.Load() || n < f.from || n >= f.from+f.count {
		return nil
	}
	if f.hits.Add(1) == 1 {
		s := fmt.Sprintf("%v %s", op.Kind, op.Path)
		f.first.Store(&s)
	}
	return f.err
}

func (f *fault) String() string { return "fault" }

// TestAFailedWriteIsNeverAcknowledged (C5): every so often another write operation fails, once or for a while, and in the end
// what was acknowledged is there, and nothing else is seen. The store goes on by itself, or says that it cannot.
func TestAFailedWriteIsNeverAcknowledged(t *testing.T) {
	r := random(t)
	samples := 24
	if testing.Short() {
		samples = 15
	}
	count := func() int64 {
		f := &fault{}
		faultRun(t, rand.New(rand.NewPCG(1, 1)), f)
		return f.ops.Load()
	}()
	if everyOperation() {
		samples = int(count - 20)
	}
	fatal := 0
	for i := range samples {
		f := &fault{err: syscall.ENOSPC, from: 20 + r.Int64N(count-20), count: []int64{1, 3, 30}[r.IntN(3)]}
		if everyOperation() {
			f.from = 20 + int64(i)
		}
		if i%2 == 0 {
			f.err = syscall.EIO
		}
		if faultRun(t, rand.New(rand.NewPCG(r.Uint64(), 1)), f) {
			fatal++
		}
		if t.Failed() {
			at := "never"
			if p := f.first.Load(); p != nil {
				at = *p
			}
			t.Fatalf("sample %d: %v from operation %d on, %d of them, first %s", i, f.err, f.from, f.count, at)
		}
	}
	t.Logf("%d samples of %d operations; %d were fatal", samples, count, fatal)
}

// faultRun runs a script on a store whose file system has a fault, then opens what a power loss leaves of it.
func faultRun(t *testing.T, r *rand.Rand, f *fault) (fatal bool) {
	h := newHands()
	mem := crashfs.New()
	c := newScript(t, r, h)
	o := crashOptions(h, crashfs.Asking(mem, f))
	o.CloseTimeout = time.Second
	o.Rows = c.row
	var died atomic.Bool
	o.OnFatal = func(error) { died.Store(true) }
	run := func() error {
		s, err := Open("store", o)
		if err != nil {
			return err
		}
		defer s.Close()
		if err := c.run(s, 15); err != nil {
			return err
		}
		return nil
	}
	for range 2 {
		if err := run(); err != nil {
			if f.hits.Load() == 0 {
				t.Errorf("without a fault: %v", err)
			}
			fatal = fatal || errors.Is(err, ErrFatal)
			if errors.Is(err, ErrDamaged) {
				t.Errorf("a failed write counts as damage: %v", err)
			}
		}
	}
	f.off.Store(true)
	for _, percent := range []int{0, 100} {
		fs := mem.AfterPowerLoss(percent, 1)
		s, err := Open("store", crashOptions(h, fs))
		if err != nil {
			t.Errorf("%d%%: %v", percent, err)
			continue
		}
		c.verify(t, s, "opened again")
		s.Close()
	}
	return fatal
}

// TestAFullDiskHoldsAndReleases (C5): while the log cannot be written, nothing becomes durable and Room waits; once it can,
// what was given to Mark becomes durable by itself.
// Seen at cockroachdb/pebble#270.
func TestAFullDiskHoldsAndReleases(t *testing.T) {
	for _, suffix := range []string{".log", ".sst"} {
		t.Run(suffix, func(t *testing.T) {
			h := newHands()
			mem := vfs.NewMem()
			var full atomic.Bool
			o := options(h)
			o.partSize, o.memtable = 1<<30, 64<<10
			o.FS = crashfs.Asking(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, suffix) {
					return syscall.ENOSPC
				}
				return nil
			}))
			states := make(chan error, 1000)
			var acked atomic.Int64
			o.OnState = func(err error) { states <- err }
			o.OnDurable = func(tags []Tag, err error) {
				if err != nil {
					t.Error(err)
				}
				acked.Add(int64(len(tags)))
			}
			s := open(t, "d", o)
			mark(t, s, key(s, -1), 1)
			full.Store(true)
			n := 0
			for s.health.writable() && n < 100_000 { // until the trouble shows
				var done []Completion
				for range 500 {
					done = append(done, Completion{Claim: claim(t, s, key(s, n), 1, Mine)})
					n++
				}
				s.Mark(done)
				if suffix == ".sst" && n < 20_000 {
					flush(t, s)
				}
			}
			if err := <-states; !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("the state is %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Room(ctx); err != context.Canceled {
				t.Errorf("there is room on a full disk: %v", err)
			}
			if _, v, err := s.Claim(key(s, n-1), 1, Tag{}); err == nil && v != Busy && suffix == ".log" {
				t.Errorf("a mark that is not durable: %v", v)
			}
			full.Store(false)
			if err := s.Room(t.Context()); err != nil {
				t.Fatal(err)
			}
			flush(t, s)
			if got := acked.Load(); got != int64(n)+1 {
				t.Errorf("%d acknowledged, want %d", got, n+1)
			}
			for i := -1; i < n; i++ {
				claim(t, s, key(s, i), 1, Seen)
			}
		})
	}
}

// TestASyncFailsBeforeTheLogEnds (C5): the log of a group fails to be synced just before something else ends that log: the sealer, who
// takes a table in, or an operator's Compact. Pebble panics at such an end in a way that no one can recover from, so it must not get
// there: the store is reopened, and goes on.
// Beside cockroachdb/pebble#270, where a full disk ended the process.
func TestASyncFailsBeforeTheLogEnds(t *testing.T) {
	for _, at := range []string{"ingest", "compact"} {
		t.Run(at, func(t *testing.T) {
			h := newHands()
			o := options(h)
			o.partSize = 500
			var failing atomic.Bool
			o.FS = crashfs.Asking(o.FS, failingSyncs(&failing))
			there, goOn := make(chan struct{}), make(chan struct{})
			var once sync.Once
			o.hook = func(point string) {
				if point == at {
					once.Do(func() {
						close(there)
						<-goOn
					})
				}
			}
			states := make(chan error, 1000)
			o.OnState = func(err error) { states <- err }
			s := open(t, "d", o)
			var done []Completion
			for i := range 500 {
				done = append(done, Completion{Claim: claim(t, s, key(s, i), 1, Mine)})
			}
			s.Mark(done)
			compacted := make(chan error, 1)
			if at == "compact" {
				flush(t, s)
				settle(s) // the sealer is at no end of a log
				go func() { compacted <- s.Compact(t.Context()) }()
			} else {
				compacted <- ErrUnavailable
			}
			<-there
			failing.Store(true)
			s.Mark([]Completion{{Claim: claim(t, s, key(s, 500), 1, Mine)}})
			if err := <-states; !errors.Is(err, syscall.EIO) {
				t.Fatalf("the state is %v", err)
			}
			failing.Store(false)
			close(goOn)
			if err := <-compacted; !errors.Is(err, ErrUnavailable) {
				t.Errorf("Compact says %v", err)
			}
			flush(t, s)
			settle(s)
			if got := s.Stats(); got.Reopened != 1 || got.Seals == 0 {
				t.Errorf("%d reopens, %d seals", got.Reopened, got.Seals)
			}
			for i := range 501 {
				claim(t, s, key(s, i), 1, Seen)
			}
		})
	}
}

// failingSyncs fails the syncs of logs while it is asked to.
func failingSyncs(failing *atomic.Bool) errorfs.Injector {
	return errorfs.InjectorFunc(func(op errorfs.Op) error {
		sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
		if sync && strings.HasSuffix(op.Path, ".log") && failing.Load() {
			return syscall.EIO
		}
		return nil
	})
}

// TestNobodySawTheSyncFail (C5): a sync of the log failed, and no group waited for it. With nothing to write, or with so much that the
// committer waits for the sealer, who waits for another log, the store is reopened all the same.
func TestNobodySawTheSyncFail(t *testing.T) {
	for _, full := range []bool{false, true} {
		t.Run(fmt.Sprint("full=", full), func(t *testing.T) {
			h := newHands()
			o := options(h)
			o.partSize, o.MaxGroup = 100, 100
			there, goOn := make(chan struct{}), make(chan struct{})
			var once sync.Once
			o.hook = func(point string) {
				if point == "ingest" && full {
					once.Do(func() {
						close(there)
						<-goOn
					})
				}
			}
			s := open(t, "d", o)
			n := 0
			mark100 := func() {
				var done []Completion
				for range 100 {
					done = append(done, Completion{Claim: claim(t, s, key(s, n), 1, Mine)})
					n++
				}
				s.Mark(done)
			}
			for range mostUnsealed + 1 {
				mark100()
				flush(t, s)
				flush(t, s) // of nothing: it needs no room
			}
			if full {
				<-there
				mark100() // waits for room
			} else {
				settle(s)
			}
			s.logs.failed.Store(true)
			if full {
				close(goOn)
			} else {
				s.q.poke()
			}
			flush(t, s)
			settle(s)
			if got := s.Stats().Reopened; got != 1 {
				t.Errorf("%d reopens", got)
			}
			for i := range n {
				claim(t, s, key(s, i), 1, Seen)
			}
		})
	}
}

// TestAReadErrorIsNoAnswer (C5): a key whose rows cannot be read is neither seen nor new, and not held.
func TestAReadErrorIsNoAnswer(t *testing.T) {
	h := newHands()
	var broken atomic.Bool
	o := options(h)
	o.partSize, o.cache = 500, 1
	o.FS = crashfs.Asking(o.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
			return syscall.EIO
		}
		return nil
	}))
	s := open(t, "d", o)
	var done []Completion
	for i := range 1500 {
		done = append(done, Completion{Claim: claim(t, s, key(s, i), 1, Mine)})
		if len(done) == 500 {
			s.Mark(done)
			done = done[:0]
			flush(t, s)
		}
	}
	settle(s)
	broken.Store(true)
	failed := 0
	for i := range 1500 {
		c, v, err := s.Claim(key(s, i), 1, Tag{})
		switch {
		case err != nil && (v != 0 || c.Held() || !errors.Is(err, syscall.EIO)):
			t.Fatal(v, c.Held(), err)
		case err != nil:
			failed++
		case v != Seen:
			t.Fatal(v)
		}
	}
	if failed == 0 {
		t.Fatal("no read failed")
	}
	if held := s.Stats().Held; held != 0 {
		t.Errorf("%d keys are held", held)
	}
	s.Release(claim(t, s, key(s, 1e6), 1, Mine)) // a new key needs no read
	broken.Store(false)
	for i := range 1500 {
		claim(t, s, key(s, i), 1, Seen)
	}
	t.Logf("%d of 1500 reads failed", failed)
}

// TestDamageIsNamed: a byte that is turned over in a table is an error and no answer.
func TestDamageIsNamed(t *testing.T) {
	r := random(t)
	h := newHands()
	mem := vfs.NewMem()
	o := options(h)
	o.FS, o.partSize = mem, 1000
	s := open(t, "d", o)
	var done []Completion
	for i := range 3000 {
		done = append(done, Completion{Claim: claim(t, s, key(s, i), 1, Mine)})
		if len(done) == 500 {
			s.Mark(done)
			done = done[:0]
			flush(t, s)
		}
	}
	settle(s)
	s.Close()
	var mu sync.Mutex
	refused, served := 0, 0
	names, _ := mem.List("d")
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		for range 10 {
			fs := vfs.NewMem()
			if _, err := vfs.Clone(mem, fs, "d", "d"); err != nil {
				t.Fatal(err)
			}
			b, err := fs.UnsafeGetFileDataBuffer("d/" + name)
			if err != nil {
				t.Fatal(err)
			}
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			o.FS = fs
			s, err := Open("d", o)
			if err != nil {
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("%s: %v", name, err)
				}
				mu.Lock()
				refused++
				mu.Unlock()
				if _, err := Quarantine("d", fs); err != nil {
					t.Error(err)
				}
				s, err = Open("d", o)
				if err != nil {
					t.Fatal(err)
				}
				claim(t, s, key(s, 0), 1, Mine)
				s.Close()
				continue
			}
			served++
			for i := range 3000 {
				if _, v, err := s.Claim(key(s, i), 1, Tag{}); err == nil && v != Seen {
					t.Errorf("key %d: %v", i, v)
				}
				if _, v, err := s.Claim(key(s, i+3000), 1, Tag{}); err == nil && v != Mine {
					t.Errorf("key %d: %v", i+3000, v)
				}
			}
			s.Close()
		}
	}
	t.Logf("%d refused, %d opened", refused, served)
}
