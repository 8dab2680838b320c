package tracker

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// A source yields the choices of a random schedule: from a seed, or from the
// bytes of a fuzzer.
type source interface {
	n(below int) int // in [0, below)
	more() bool
}

type seeded struct {
	*rand.Rand
	left int
}

func (s *seeded) n(below int) int { return s.IntN(below) }
func (s *seeded) more() bool      { s.left--; return s.left >= 0 }

type scripted struct{ data []byte }

func (s *scripted) more() bool { return len(s.data) > 0 }
func (s *scripted) n(below int) int {
	v := 0
	for limit := 1; limit < below && len(s.data) > 0; limit <<= 8 {
		v = v<<8 | int(s.data[0])
		s.data = s.data[1:]
	}
	return v % below
}

// seeds returns the seed of GAPLESS_SEED, or n seeds that differ with each run.
func seeds(t *testing.T, n int) []uint64 {
	if text := os.Getenv("GAPLESS_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("GAPLESS_SEED: %v", err)
		}
		return []uint64{seed}
	}
	first := uint64(time.Now().UnixNano())
	all := make([]uint64, n)
	for i := range all {
		all[i] = first + uint64(i)
	}
	return all
}

// TestProperty runs random operations on a Tracker and on its twin; every answer
// must be the same (C1, C2, C3, C4).
func TestProperty(t *testing.T) {
	for _, seed := range seeds(t, 200) {
		src := &seeded{rand.New(rand.NewPCG(seed, 0)), 300}
		if err := compareWithTwin(src); err != nil {
			t.Fatalf("GAPLESS_SEED=%d: %v", seed, err)
		}
	}
}

// FuzzTwin is TestProperty with the schedule taken from the fuzzer.
func FuzzTwin(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18})
	f.Add([]byte("add done frontier rebase close snapshot"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := compareWithTwin(&scripted{data[:min(len(data), 1000)]}); err != nil {
			t.Fatal(err)
		}
	})
}

// pair is a Tracker and its twin under the same schedule.
type pair struct {
	source
	t      *Tracker
	m      *twin
	w      Window
	epoch  int32
	err    error
	holes  int // how many holes per 16 records
	lastC4 int64
}

func (p *pair) same(what string, got, want any) {
	if p.err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
		p.err = fmt.Errorf("%s = %v, want %v", what, got, want)
	}
}

func compareWithTwin(src source) error {
	span := []int{50, 3000, 20_000, DefaultMaxSpan}[src.n(4)]
	offset := []int64{0, 7, NoOffset, 1 << 40}[src.n(4)]
	p := &pair{source: src, t: New(offset, 3, Options{MaxSpan: span}), m: newTwin(offset, 3, span), epoch: 3, holes: src.n(17), lastC4: NoOffset}
	for i := 0; src.more() && p.err == nil; i++ {
		name := p.step()
		p.invariants()
		if p.err != nil {
			return fmt.Errorf("step %d, %s: %w", i, name, p.err)
		}
	}
	return p.err
}

// seq picks a number: mostly one that is delivered and not far from the head,
// sometimes any, sometimes one that does not exist.
func (p *pair) seq() Seq {
	total := len(p.m.all)
	switch p.n(16) {
	case 0:
		return Seq(p.n(total + 3))
	case 1, 2, 3, 4, 5, 6:
		return Seq(p.m.oldest())
	default:
		lo := p.m.oldest()
		return Seq(lo + p.n(total-lo+1))
	}
}

func (p *pair) step() string {
	switch op := p.n(32); op {
	case 0, 1, 2, 3:
		return p.add()
	case 4, 5:
		_, first := p.t.Next()
		if first = max(first, 0) + int64(p.n(3)-1); p.n(20) == 0 {
			first = 1<<63 - 1 - int64(p.n(10))
		}
		n := p.n([]int{2, 70, 3000}[p.n(3)])
		offsets := make([]int64, n)
		for i := range offsets {
			offsets[i] = first + int64(i)
		}
		s, err := p.t.AddRange(first, n, p.epoch)
		ms, merr := p.m.add(offsets, p.epoch)
		p.same("AddRange", fmt.Sprint(s, err), fmt.Sprint(ms, merr))
		return fmt.Sprintf("AddRange(%d, %d)", first, n)
	case 6, 7, 8, 9, 10, 11, 12, 13:
		s := p.seq()
		p.same("Done", p.t.Done(s), p.m.doneOne(s))
		return fmt.Sprintf("Done(%d)", s)
	case 14, 15, 16, 17:
		s, n := p.seq(), p.n([]int{3, 130, 3000}[p.n(3)])
		newly := 0
		for i := range n {
			if p.m.doneOne(s + Seq(i)) {
				newly++
			}
		}
		p.same("DoneRange", p.t.DoneRange(s, n), newly)
		return fmt.Sprintf("DoneRange(%d, %d)", s, n)
	case 18, 19:
		s, n := p.seq(), p.n(300)
		undone := 0
		for i := range n {
			if !p.m.isDone(s + Seq(i)) {
				undone++
			}
		}
		p.same("Undone", p.t.Undone(s, n), undone)
		return fmt.Sprintf("Undone(%d, %d)", s, n)
	case 20, 21, 22:
		s := p.seq()
		p.same("IsDone", p.t.IsDone(s), p.m.isDone(s))
		offset, ok := p.t.Offset(s)
		want, wantOK := int64(0), s >= Seq(p.m.frontier) && s < Seq(len(p.m.all))
		if wantOK {
			want = p.m.all[s].offset
		}
		p.same("Offset", fmt.Sprint(offset, ok), fmt.Sprint(want, wantOK))
		return fmt.Sprintf("IsDone, Offset(%d)", s)
	case 23, 24, 25, 26:
		return p.snapshot()
	case 27:
		p.epoch++
		return "new leader"
	case 28:
		_, next := p.t.Next()
		next += int64(p.n(5) - 1)
		p.t.Pass(next)
		p.m.pass(next)
		return fmt.Sprintf("Pass(%d)", next)
	case 29:
		p.holes = p.n(17)
		return "other holes"
	case 30:
		if p.n(4) > 0 {
			return "nothing"
		}
		offset := int64(p.n(1000) - 1)
		p.t.Rebase(offset, p.epoch)
		p.m.rebase(offset, p.epoch)
		p.lastC4 = NoOffset
		return fmt.Sprintf("Rebase(%d)", offset)
	default:
		if p.n(40) > 0 {
			return "nothing"
		}
		p.t.Close()
		p.m.close()
		return "Close"
	}
}

func (p *pair) add() string {
	_, next := p.t.Next()
	next = max(next, 0) + int64(p.n(4)-1)
	n := p.n([]int{3, 70, 3000}[p.n(3)])
	offsets := make([]int64, 0, n)
	for range n {
		offsets = append(offsets, next)
		next++
		if p.n(16) < p.holes {
			next += int64(p.n([]int{1, 4, 100_000}[p.n(3)] + 1))
		}
	}
	if n > 1 && p.n(30) == 0 {
		offsets[n-1] = offsets[n-2]
	}
	s, err := p.t.Add(offsets, p.epoch)
	ms, merr := p.m.add(offsets, p.epoch)
	p.same("Add", fmt.Sprint(s, err), fmt.Sprint(ms, merr))
	clear(offsets) // the tracker must have copied them
	return fmt.Sprintf("Add(%d records)", n)
}

func (p *pair) snapshot() string {
	p.w.Limit, p.w.Tail = []int{0, 0, 1, 5, 100}[p.n(5)], p.n(3) == 0
	p.t.Snapshot(&p.w)
	want := p.m.window(p.w.Limit, p.w.Tail)
	got := p.w
	got.Limit, got.base, got.places, got.words = 0, 0, nil, nil
	p.same("Snapshot", got, want)
	for range 8 {
		offset := want.Frontier + int64(p.n(100)-10)
		p.same("Window.Done", p.w.Done(offset), p.m.settledBy(&want, offset))
	}
	for _, r := range p.m.all[p.m.frontier:] {
		if epoch, ok := p.w.Epoch(r.offset); r.offset <= want.Highest && (!ok || epoch != r.epoch) {
			p.same("Window.Epoch", epoch, r.epoch)
		}
	}
	return fmt.Sprintf("Snapshot, limit %d, tail %v", p.w.Limit, p.w.Tail)
}

// invariants compares everything that can be asked at any time.
func (p *pair) invariants() {
	if p.n(3) > 0 {
		return // mostly let the frontier lag behind what is done
	}
	p.same("Stats", p.t.Stats(), p.m.stats)
	offset, epoch := p.t.Frontier()
	wantOffset, wantEpoch := p.m.position()
	p.same("Frontier", fmt.Sprint(offset, epoch), fmt.Sprint(wantOffset, wantEpoch))
	if offset < p.lastC4 {
		p.err = fmt.Errorf("frontier went back from %d to %d", p.lastC4, offset)
	}
	p.lastC4 = offset
	p.same("Pending", p.t.Pending(), p.m.pending())
	p.same("Span", p.t.Span(), len(p.m.all)-p.m.frontier)
	s, next := p.t.Next()
	p.same("Next", fmt.Sprint(s, next), fmt.Sprint(len(p.m.all), p.m.next))
	s, offset, ok := p.t.Oldest()
	p.same("Oldest", fmt.Sprint(s, offset, ok), fmt.Sprint(p.m.frontier, wantOffset, p.m.frontier < len(p.m.all)))
	if !slices.IsSortedFunc(p.t.runs.list[p.t.runs.head:], func(a, b run) int { return int(a.seq) - int(b.seq) }) {
		p.err = fmt.Errorf("runs out of order")
	}
}
