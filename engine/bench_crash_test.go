//go:build unix

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// What a crash costs: a child process consumes, is killed with SIGKILL, and a second one goes on. Parent and child share a book, a
// file that both have mapped, with a byte for each record. To write in it costs a handler about as much as to look at its record, and
// what is in it outlives the process. So what was in flight, what had ended and what was handled again is counted from outside.

// crashEnv holds what a child is to do.
const crashEnv = "GAPLESS_BENCH_CRASH"

func init() {
	if os.Getenv(crashEnv) != "" {
		childMain = runCrashChild
	}
}

type crashOrder struct {
	Addr, Group, Topic string
	Dir                string // of the store; empty: none
	Book               string
	Task               crashTask
}

// crashTask is what the handler does.
type crashTask string

const (
	taskPlain crashTask = "plain" // nothing
	taskStuck crashTask = "stuck" // nothing, but never ends the record at offset 0
	taskHalf  crashTask = "half"  // fails the first time with a random half of the records
)

const (
	bookHeader = 4096
	bookPer    = 4 << 20 // records of a partition that it has room for; beyond it handlers stand still
	isBegun    = 1
	isEnded    = 2
)

// book is the account of a life: a word that the parent may set, and a byte for each record.
type book struct {
	mem   []byte
	parts int
}

func openBook(path string, parts int) (*book, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := bookHeader + parts*bookPer
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return &book{mem, parts}, err
}

func (k *book) close() { _ = syscall.Munmap(k.mem) }

// still is set when nothing more is to succeed at a later attempt.
func (k *book) still() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&k.mem[0])) }

func (k *book) of(p int) []byte { return k.mem[bookHeader+p*bookPer:][:bookPer] }

// count is how many records are in that very state.
func (k *book) count(state byte) (n int) { return bytes.Count(k.mem[bookHeader:], []byte{state}) }

// each calls f with all records that have begun.
func (k *book) each(f func(p int, offset int64, ended bool)) {
	for p := range k.parts {
		for o, state := range k.of(p) {
			if state != 0 {
				f(p, int64(o), state&isEnded != 0)
			}
		}
	}
}

// runCrashChild is the child's main function.
func runCrashChild() {
	var o crashOrder
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "the child:", err)
		os.Exit(1)
	}
	if err := json.Unmarshal([]byte(os.Getenv(crashEnv)), &o); err != nil {
		fail(err)
	}
	go func() { // the parent is gone, however it ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	k, err := openBook(o.Book, benchPartitions)
	if err != nil {
		fail(err)
	}
	e, err := New(Config{
		Brokers: []string{o.Addr}, Group: o.Group, Topics: []string{o.Topic}, Workers: 8, Order: OrderUnordered,
		InstanceID: "one", // so that the second one need not wait for the first one's session to end
		Handler:    HandlerFunc(func(_ context.Context, r *Record) error { return k.handle(r, o.Task) }),
		Retry:      Retry{Attempts: 1000},
		DeadLetter: DeadLetter{GiveUp: GiveUpSkip},
		Dedupe:     Dedupe{Dir: o.Dir},
	})
	if err != nil {
		fail(err)
	}
	fail(e.Run(context.Background()))
}

func (k *book) handle(r *Record, task crashTask) error {
	if r.Offset >= bookPer || task == taskStuck && r.Offset == 0 {
		if r.Offset == 0 {
			k.of(int(r.Partition))[0] |= isBegun
		}
		select {} // to be killed here
	}
	at := &k.of(int(r.Partition))[r.Offset]
	*at |= isBegun
	if task == taskHalf && uint64(r.Offset)*0x9e3779b97f4a7c15>>63 == 0 {
		switch {
		case k.still().Load() != 0:
			return RetryAfter(5*time.Minute, errBoom)
		case r.Attempt == 1:
			return RetryAfter(time.Second, errBoom)
		}
	}
	*at |= isEnded
	return nil
}

// victim is a child that consumes.
type victim struct {
	*book
	cmd *exec.Cmd
	in  io.Closer
}

func startVictim(b *testing.B, o crashOrder) *victim {
	b.Helper()
	o.Book = b.TempDir() + "/book"
	k, err := openBook(o.Book, benchPartitions)
	if err != nil {
		b.Fatal(err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		b.Fatal(err)
	}
	l := &victim{book: k, cmd: exec.Command(os.Args[0])}
	l.cmd.Env = append(os.Environ(), crashEnv+"="+string(text))
	l.cmd.Stderr = os.Stderr
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.kill)
	return l
}

// kill ends the child as kill -9 does.
func (l *victim) kill() {
	if l.cmd.ProcessState == nil {
		_ = l.cmd.Process.Kill()
		_ = l.cmd.Wait()
		_ = l.in.Close()
	}
}

// rests waits until for a stretch of time nothing has begun, nothing has ended, and no commit has changed.
func (c *crash) rests(b *testing.B, l *victim, stretch time.Duration) {
	b.Helper()
	was, from := "", time.Now()
	for deadline := time.Now().Add(crashPatience); time.Since(from) < stretch; time.Sleep(stretch / 20) {
		now := fmt.Sprint(l.count(isBegun), l.count(isBegun|isEnded), c.commits(b))
		if now != was {
			was, from = now, time.Now()
		}
		if time.Now().After(deadline) {
			b.Fatal("it never comes to rest")
		}
	}
}

const crashPatience = 3 * time.Minute

func (l *victim) until(b *testing.B, what string, cond func() bool) {
	b.Helper()
	for deadline := time.Now().Add(crashPatience); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("never: %s (%d ended, %d under way)", what, l.count(isBegun|isEnded), l.count(isBegun))
		}
	}
}

// BenchmarkCrashQuiet kills a consumer that has handled 100,000 records behind a stuck one, after a second without any news, and counts
// the finished ones that its successor handles again. (goals: 0 from the commit's metadata alone, 0 with the store)
func BenchmarkCrashQuiet(b *testing.B) {
	const behind = 100_000
	for _, store := range []bool{false, true} {
		b.Run(armOf(store), func(b *testing.B) {
			c := newCrash(b, startBroker(b, "empty"), "one", 1, store)
			c.fill(b, behind+1)
			l := c.start(b, taskStuck)
			l.until(b, "all behind the stuck record", func() bool { return l.count(isBegun|isEnded) == behind })
			c.rests(b, l, time.Second) // one commit interval
			out := c.crash(b, l)
			if out.redone > 0 {
				b.Errorf("%d finished records were handled again", out.redone)
			}
			c.report(b, out)
		})
	}
}

// BenchmarkCrash kills a consumer of 12 partitions in the middle of full speed, with a handler that does nothing and the default
// of one commit a second. Its bound is, from the metadata alone, what was in flight and what had ended since the last acknowledged commit;
// with the store, what was in flight and what was not durable yet.
func BenchmarkCrash(b *testing.B) {
	for _, store := range []bool{false, true} {
		b.Run(armOf(store), func(b *testing.B) {
			addr := startBenchBroker(b)
			var all []outcome
			for range benchRounds() {
				c := newCrash(b, addr, "t", benchPartitions, store)
				l := c.start(b, taskPlain)
				l.until(b, "under way", func() bool { return l.count(isBegun|isEnded) > 0 })
				time.Sleep(time.Second + rand.N(time.Second)) // anywhere between two commits
				all = append(all, c.crash(b, l))
			}
			c := &crash{store: store}
			c.report(b, all...)
		})
	}
}

// BenchmarkCrashHalfFails fails a random half of the records the first time, to be tried again a second later, until none succeeds
// any more. Then more is unfinished than fits into a commit's metadata, so the windows are shortened. Work goes on while records wait, up to the
// bound of what a partition may hold; what the shortened windows have dropped is what a successor handles again beside the
// unfinished. With the store nothing is dropped.
func BenchmarkCrashHalfFails(b *testing.B) {
	for _, store := range []bool{false, true} {
		b.Run(armOf(store), func(b *testing.B) {
			c := newCrash(b, startBenchBroker(b), "t", benchPartitions, store)
			l := c.start(b, taskHalf)
			l.until(b, "under way", func() bool { return l.count(isBegun|isEnded) > 100_000 })
			before, from := l.count(isBegun|isEnded), time.Now()
			time.Sleep(4 * benchTime())
			b.ReportMetric(float64(l.count(isBegun|isEnded)-before)/time.Since(from).Seconds(), "ended/s")
			l.still().Store(1)
			c.rests(b, l, 3*time.Second)
			out := c.crash(b, l)
			switch {
			case !store && out.shortened == 0:
				b.Error("no window was shortened")
			case store && out.redone > 0:
				b.Errorf("%d finished records were handled again", out.redone)
			}
			b.ReportMetric(float64(out.shortened), "windows-shortened")
			c.report(b, out)
		})
	}
}

func armOf(store bool) string {
	if store {
		return "with=store"
	}
	return "with=metadata"
}
