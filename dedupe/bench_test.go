package dedupe

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gaplesshq/gapless/internal/crashfs"
)

// benchKeys is how many keys the benchmarks have in the store: few unless GAPLESS_DEDUPE_KEYS says otherwise.
func benchKeys(few int) int {
	if n, err := strconv.Atoi(os.Getenv("GAPLESS_DEDUPE_KEYS")); err == nil {
		return n
	}
	return few
}

// load is what a benchmark drives the store with: chunks of 64 records from a few goroutines, a clock that goes on with the
// number of keys so that five buckets live at the end, and a count of what is durable.
type load struct {
	s       *Store
	h       *hands
	durable atomic.Int64
	next    atomic.Int64
	perKey  time.Duration // of the clock
}

func newLoad(b *testing.B, dir string, keys int, change func(o *Options)) *load {
	l := &load{h: newHands()}
	o := Options{Now: l.h.now, elapsed: l.h.elapsed, Retention: 24 * time.Hour}
	o.OnDurable = func(tags []Tag, err error) {
		if err != nil {
			b.Error(err)
		}
		l.durable.Add(int64(len(tags)))
	}
	if change != nil {
		change(&o)
	}
	l.perKey = o.Retention * 9 / 8 / time.Duration(keys)
	s, err := Open(dir, o)
	if err != nil {
		b.Fatal(err)
	}
	l.s = s
	return l
}

func benchKey(c Scope, i int64) Key {
	var raw [8]byte
	binary.BigEndian.PutUint64(raw[:], uint64(i))
	return c.Key(raw[:])
}

// mark claims and marks n new keys, or with a share of duplicates of what was marked before. It returns when all is durable.
func (l *load) mark(b *testing.B, n int, duplicates float64) {
	const chunk = 64
	var wg sync.WaitGroup
	var taken atomic.Int64
	c := l.s.Scope("bench")
	for w := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			done := make([]Completion, 0, chunk)
			for taken.Add(chunk) <= int64(n)+chunk-1 {
				if err := l.s.Room(context.Background()); err != nil {
					b.Error(err)
					return
				}
				done = done[:0]
				for range chunk {
					var i int64
					if duplicates > 0 && r.Float64() < duplicates {
						i = r.Int64N(max(1, l.next.Load()-4*DefaultMaxPending))
					} else {
						i = l.next.Add(1) - 1
					}
					k, v, err := l.s.Claim(benchKey(c, i), 1, Tag{})
					if err != nil {
						b.Error(err)
						return
					}
					if v == Mine {
						done = append(done, Completion{Claim: k})
					}
				}
				l.s.Mark(done)
				l.h.pass(time.Duration(len(done)) * l.perKey)
			}
		})
	}
	wg.Wait()
	if err := l.s.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func (l *load) close(b *testing.B) {
	if err := l.s.Close(); err != nil {
		b.Fatal(err)
	}
}

func (l *load) report(b *testing.B, dir string) {
	st := l.s.Stats()
	b.ReportMetric(float64(st.SlowestGroup.Milliseconds()), "slowest-ms")
	b.ReportMetric(float64(rss())/(1<<20), "rss-MB")
	b.ReportMetric(float64(diskUsage(dir))/(1<<20), "disk-open-MB")
	l.close(b)
	b.ReportMetric(float64(diskUsage(dir))/float64(st.Keys), "disk-B/key")
}

func diskUsage(dir string) (n int64) {
	_ = filepath.Walk(dir, func(_ string, i os.FileInfo, err error) error {
		if err == nil && !i.IsDir() {
			n += i.Size()
		}
		return nil
	})
	return n
}

// rss is the resident memory of the process, where that can be read.
func rss() (n int64) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	_, _ = fmt.Sscan(string(b), &size, &pages)
	return pages * int64(os.Getpagesize())
}

// BenchmarkMarkNew: claim and mark of new keys, with so many in the store at the end. One op is one key.
func BenchmarkMarkNew(b *testing.B) {
	keys := benchKeys(300_000)
	for _, live := range []int{0, keys} {
		b.Run(fmt.Sprintf("over=%d", live), func(b *testing.B) {
			dir := b.TempDir()
			l := newLoad(b, dir, live+b.N, nil)
			l.mark(b, live, 0)
			b.ResetTimer()
			cpu := cpuTime()
			l.mark(b, b.N, 0)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "marks/s")
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
			l.report(b, dir)
		})
	}
}

// BenchmarkHalfDuplicates: every second key was marked at some time before, anywhere in the store. One op is one record.
func BenchmarkHalfDuplicates(b *testing.B) {
	keys := benchKeys(600_000)
	dir := b.TempDir()
	l := newLoad(b, dir, keys+b.N, nil)
	l.mark(b, keys, 0)
	settle(l.s)
	reads := l.s.Stats().Reads
	b.ResetTimer()
	cpu := cpuTime()
	l.mark(b, b.N, 0.5)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(l.s.Stats().Reads-reads)/float64(b.N), "reads/op")
	l.report(b, dir)
}

// BenchmarkSlowSync: new keys on a disk whose log takes 20 ms to sync.
func BenchmarkSlowSync(b *testing.B) {
	dir := b.TempDir()
	l := newLoad(b, dir, 10*b.N, func(o *Options) {
		o.FS = crashfs.Asking(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
				time.Sleep(20 * time.Millisecond) // this is the disk, not a wait for something to happen
			}
			return nil
		}))
	})
	b.ResetTimer()
	l.mark(b, b.N, 0)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "marks/s")
	l.report(b, dir)
}

// BenchmarkOpenAfterKill: what a copy of the files of a running store takes to open. One op is one opening.
func BenchmarkOpenAfterKill(b *testing.B) {
	keys := benchKeys(600_000)
	dir := b.TempDir()
	l := newLoad(b, dir, keys, nil)
	l.mark(b, keys, 0)
	killed := float64(diskUsage(dir)) / float64(keys)
	copies := b.TempDir()
	if _, err := vfs.Clone(vfs.Default, vfs.Default, dir, filepath.Join(copies, "0"), vfs.CloneSync); err != nil {
		b.Fatal(err)
	}
	l.close(b)
	runtime.GC()
	b.ResetTimer() // all of the above is not opening
	for i := range b.N {
		b.StopTimer()
		from, to := filepath.Join(copies, fmt.Sprint(i)), filepath.Join(copies, fmt.Sprint(i+1))
		if _, err := vfs.Clone(vfs.Default, vfs.Default, from, to, vfs.CloneSync); err != nil { // or opening would wait for the copy to reach the disk
			b.Fatal(err)
		}
		b.StartTimer()
		s, err := Open(from, Options{Now: l.h.now, elapsed: l.h.elapsed})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if got := s.Stats().Keys; got != int64(keys) {
			b.Errorf("%d keys, want %d", got, keys)
		}
		b.ReportMetric(float64(rss())/(1<<20), "rss-MB")
		s.Close()
		os.RemoveAll(from)
	}
	b.ReportMetric(killed, "disk-killed-B/key")
}

// BenchmarkKey: one key of 16 bytes.
func BenchmarkKey(b *testing.B) {
	s := open(b, "k", options(newHands()))
	c := s.Scope("orders")
	raw := make([]byte, 16)
	b.ReportAllocs()
	for i := range b.N {
		raw[0] = byte(i)
		c.Key(raw)
	}
}
