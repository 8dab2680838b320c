package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/gaplesshq/gapless/integration/proof"
)

// score is how far the torture has got. It is safe for concurrent use.
type score struct {
	rounds int // to come in all; 0: until the time is over
	began  time.Time

	kills   atomic.Int64 // of members
	records atomic.Int64 // acknowledged by the brokers so far

	mu      sync.Mutex
	total   proof.Verdict
	running map[*playing]bool
}

// playing is a round under way.
type playing struct {
	number int
	seed   uint64
	began  time.Time
	kills  atomic.Int64           // of members
	doing  atomic.Pointer[string] // what its world does now
}

func newScore(rounds int, seed uint64) *score {
	return &score{rounds: rounds, began: time.Now(), total: proof.Verdict{Seed: seed}, running: map[*playing]bool{}}
}

func (s *score) begin(p *playing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.began = time.Now()
	s.running[p] = true
}

func (s *score) end(p *playing, v *proof.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, p)
	if v != nil {
		s.total.Add(v)
	}
}

// verdict is the one over all rounds that have ended.
func (s *score) verdict() proof.Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.total
	v.Seconds = time.Since(s.began).Round(time.Millisecond).Seconds()
	return v
}

// line is the state in one line.
func (s *score) line() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s  rounds %d", time.Since(s.began).Round(time.Second), s.total.Rounds)
	if s.rounds > 0 {
		_, _ = fmt.Fprintf(&b, "/%d", s.rounds)
	}
	wrong := len(s.total.Findings)
	_, _ = fmt.Fprintf(&b, "  kills %d  records %d  lost %d  redone %d of %d allowed  wrong %d", s.kills.Load(), s.records.Load(),
		s.total.Lost, s.total.Redone, s.total.RedoneAllowed, wrong)
	var now []*playing
	for p := range s.running {
		now = append(now, p)
	}
	slices.SortFunc(now, func(a, b *playing) int { return a.number - b.number })
	for _, p := range now {
		_, _ = fmt.Fprintf(&b, " | %d: %s", p.number, time.Since(p.began).Round(time.Second))
		if doing := p.doing.Load(); doing != nil {
			b.WriteString(" " + *doing)
		}
	}
	return b.String()
}

// screen shows what happens: lines that stay, and, on a terminal, one below them that is always up to date. Elsewhere that line
// is printed now and then.
type screen struct {
	out    io.Writer
	live   bool
	silent bool
	width  func() int
	score  *score
	once   sync.Once

	mu    sync.Mutex
	drawn bool
	stop  chan struct{}
	ended sync.WaitGroup
}

// Elsewhere than on a terminal, the state is one line as often as this.
const plainEvery = 15 * time.Second

func show(out io.Writer, s *score, silent bool) *screen {
	v := &screen{out: out, score: s, silent: silent, width: func() int { return 80 }, stop: make(chan struct{})}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		v.live = true
		v.width = func() int {
			w, _, err := term.GetSize(int(f.Fd()))
			if err != nil || w < 20 {
				return 80
			}
			return w
		}
	}
	every := plainEvery
	if v.live {
		every = 200 * time.Millisecond
	}
	v.ended.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-v.stop:
				return
			case <-tick.C:
				v.draw()
			}
		}
	})
	return v
}

func (v *screen) draw() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.silent {
		return
	}
	text := v.score.line()
	if !v.live {
		_, _ = fmt.Fprintln(v.out, text)
		return
	}
	if w := v.width(); len(text) >= w {
		text = text[:w-1]
	}
	_, _ = fmt.Fprintf(v.out, "\r\x1b[K%s", text)
	v.drawn = true
}

// say prints lines that stay.
func (v *screen) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.silent {
		return
	}
	v.clear()
	_, _ = fmt.Fprintf(v.out, format+"\n", args...)
}

// clear takes the line away. The lock is held.
func (v *screen) clear() {
	if v.drawn {
		_, _ = fmt.Fprint(v.out, "\r\x1b[K")
		v.drawn = false
	}
}

func (v *screen) close() {
	v.once.Do(func() { close(v.stop) })
	v.ended.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clear()
}
