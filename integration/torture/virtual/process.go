package virtual

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/torture/member"
	"github.com/gaplesshq/gapless/integration/torture/schedule"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/integration/proof"
)

// journal is what all handlers write to.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// process is an imagined one.
type process struct {
	w    *World
	m    schedule.Member
	net  *side
	disk disk
	e    *engine.Engine
	end  context.CancelFunc
	done chan error // gets what Run has returned

	mu     sync.Mutex
	gone   bool
	paused chan struct{} // closed when it goes on; nil: it runs
}

var errGone = errors.New("the process is gone")

// Write writes to the journal, unless the process is gone.
func (p *process) Write(b []byte) (int, error) {
	p.gate()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return 0, errGone
	}
	p.w.journal.mu.Lock()
	defer p.w.journal.mu.Unlock()
	return p.w.journal.text.Write(b)
}

// gate holds up what a stopped process is about to do.
func (p *process) gate() {
	for {
		p.mu.Lock()
		paused := p.paused
		p.mu.Unlock()
		if paused == nil {
			return
		}
		<-paused
	}
}

func (w *World) launch(m schedule.Member, d disk) (*process, error) {
	p := &process{w: w, m: m, net: w.net.side(), disk: d, done: make(chan error, 1)}
	c := member.Config(w.r, m, member.Options{Journal: proof.NewJournal(p, member.ID), Crash: p.crash, Gate: p.gate})
	if w.Break != nil {
		w.Break(&c)
	}
	c.ClientID = m.String()
	c.Brokers, c.Group, c.Topics = w.seeds(), group, []string{topic}
	c.KgoOpts = append(c.KgoOpts, append(w.opts(), kgo.Dialer(p.net.dial))...)
	c.OnEvent = func(ev engine.Event) {
		if w.Events != nil {
			w.Events(m, ev)
		}
	}
	if w.r.Dedupe {
		c.Dedupe.Dir, c.Dedupe.FS = storeDir, d
	}
	e, err := engine.New(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.e, p.end = e, cancel
	w.all.Add(1)
	go func() {
		defer w.all.Done()
		err := e.Run(ctx)
		p.done <- err
		if ctx.Err() == nil && !p.isGone() { // nobody had asked it to
			p.kill()
			w.crashed <- schedule.Crash{Member: m, Err: errors.Join(errors.New("the engine ended"), err)}
		}
	}()
	return p, nil
}

func (p *process) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// die is the end of a process: what it does from now on counts for nothing. False: it was over before.
func (p *process) die() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	p.gone = true
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
	return true
}

// kill ends it as kill -9 does. What is left of its disk is the host's.
func (p *process) kill() bool {
	if !p.die() {
		return false
	}
	p.net.change(func(s *side) { s.down++ }) // first: a commit that came later would speak of more than the disk has
	p.w.inherit(p)
	p.end()
	p.w.all.Add(1)
	go func() { // what is left of the engine
		defer p.w.all.Done()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.e.Stop(ctx)
	}()
	return true
}

// crash is what a record does to it.
func (p *process) crash() {
	if p.kill() {
		p.w.crashed <- schedule.Crash{Member: p.m}
	}
}

func (p *process) pause() {
	p.net.change(func(s *side) { s.frozen++ })
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.paused = make(chan struct{})
	}
}

func (p *process) resume() {
	p.mu.Lock()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
	p.mu.Unlock()
	p.net.change(func(s *side) { s.frozen-- })
}
