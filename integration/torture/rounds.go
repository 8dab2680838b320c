package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/integration/proof"
	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// torture plays the rounds and prints the verdict.
func torture(ctx context.Context, o options, out, errs io.Writer) int {
	dir, err := os.MkdirTemp("", "gapless-torture-")
	if err != nil {
		_, _ = fmt.Fprintf(errs, "torture: %v\n", err)
		return exitUsage
	}
	faults, left := o.faults.Without(supporter{})
	o.faults = faults
	s := newScore(o.rounds, o.seed)
	view := show(out, s, o.json)
	defer view.close()
	view.say("torture: seed %d, %d brokers, %d rounds at a time, faults %s; files in %s", o.seed, o.brokers, o.parallel, o.faults, dir)
	if len(left) > 0 {
		view.say("torture: left out, because this system can't do it: %s", strings.Join(left, ", "))
	}
	g, err := lay(ctx, o.brokers, o.parallel, dir)
	if err != nil {
		view.say("torture: start the brokers: %v", err)
		return exitUsage
	}
	p := &player{options: o, ground: g, score: s, view: view}
	p.play(ctx)
	v := s.verdict()
	keep := o.keep || !v.OK() || len(p.broken) > 0
	if keep {
		if err := g.keepLogs(dir); err != nil {
			view.say("torture: keep the brokers' logs: %v", err)
		}
	}
	if err := g.close(); err != nil {
		view.say("torture: end the brokers: %v", err)
	}
	if !keep {
		_ = os.RemoveAll(dir)
	}
	view.close()
	return p.report(v, dir, out, errs)
}

type supporter struct{}

func (supporter) Supports(a schedule.Action) bool { return supports(a) }

// player plays rounds, several at a time.
type player struct {
	options
	*ground
	score *score
	view  *screen

	mu     sync.Mutex
	next   int
	failed []uint64 // seeds of rounds that went wrong
	broken []error  // why rounds could not be judged
}

func (p *player) play(ctx context.Context) {
	var players sync.WaitGroup
	for range p.parallel {
		players.Go(func() {
			for {
				number, ok := p.take(ctx)
				if !ok {
					return
				}
				p.round(ctx, number)
			}
		})
	}
	players.Wait()
}

// take is the number of the next round, if there is to be one.
func (p *player) take(ctx context.Context) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	over := p.duration > 0 && time.Since(p.score.began) > p.duration
	if ctx.Err() != nil || len(p.broken) == mostBroken || over || p.rounds > 0 && p.next == p.rounds {
		return 0, false
	}
	p.next++
	return p.next, true
}

// mostBroken is how many rounds may fail to be judged before it is given up: something is wrong with the brokers or this machine.
const mostBroken = 3

// round plays one, and keeps its files if there is something wrong with it.
func (p *player) round(ctx context.Context, number int) {
	seed := p.seed + uint64(number-1)
	r := schedule.Generate(seed, p.brokers, p.faults, supports)
	intensify(r, p.faults)
	if touchesBrokers(r) {
		p.alone.Lock()
		defer p.alone.Unlock()
	} else {
		p.alone.RLock()
		defer p.alone.RUnlock()
	}
	if ctx.Err() != nil {
		return
	}
	now := &playing{number: number, seed: seed}
	p.score.begin(now)
	dir := filepath.Join(p.dir, fmt.Sprintf("round-%d", seed))
	v, err := p.playIn(ctx, now, r, dir)
	if err != nil {
		p.score.end(now, nil)
		p.view.say("round %d (seed %d) could not be judged: %v\n  its files: %s\n  again: %s", number, seed, err, dir, p.again(seed))
		p.mu.Lock()
		p.broken = append(p.broken, fmt.Errorf("round %d (seed %d): %w", number, seed, err))
		p.mu.Unlock()
		return
	}
	p.score.end(now, &v)
	if v.OK() {
		p.view.say("round %d good: seed %d, %s, %d records, redone %d of %d allowed, overlaps %d, all allowed, kills %d, %v", number, seed, title(r), v.Records,
			v.Redone, v.RedoneAllowed, v.Overlaps, now.kills.Load(), time.Since(now.began).Round(time.Second))
		if !p.keep {
			_ = os.RemoveAll(dir)
		}
		return
	}
	p.mu.Lock()
	p.failed = append(p.failed, seed)
	p.mu.Unlock()
	p.view.say("round %d WRONG: seed %d, %s\n%s  its files: %s\n  again: %s", number, seed, title(r), findings(&v, shown), dir, p.again(seed))
}

// playIn plays a round whose files lie in a directory of its own.
func (p *player) playIn(ctx context.Context, now *playing, r *schedule.Round, dir string) (v proof.Verdict, err error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return v, err
	}
	if err := os.WriteFile(filepath.Join(dir, "schedule"), []byte(r.String()), 0o644); err != nil {
		return v, err
	}
	events, err := os.Create(filepath.Join(dir, "events"))
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	log := schedule.NewLog(func(line string) {
		_, _ = fmt.Fprintln(events, line)
		what := strings.TrimSpace(line)
		now.doing.Store(&what)
	})
	set := <-p.free
	defer func() { p.free <- set }()
	networks := set
	if !touchesNetwork(r) {
		networks = nil
	}
	w, err := newWorld(p.ground, p.score, now, log, dir, networks)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	v, err = schedule.Run(ctx, r, w, log, schedule.Options{Patience: restWithin})
	if err != nil {
		return v, err
	}
	return v, os.WriteFile(filepath.Join(dir, "verdict"), []byte(verdictLine(&v)+"\n"+findings(&v, len(v.Findings))), 0o644)
}

// restWithin is how long a group may take to finish, once nothing is broken any more. A few workers may have a lot to do, on a machine with
// much else to do; and a record that ends its process has what follows it handled one by one for a while.
const restWithin = 10 * time.Minute

// title is what a round is like, in a few words.
func title(r *schedule.Round) string {
	t := fmt.Sprintf("%s, %s, order %s", r.Protocol, r.Kind, r.Order)
	for _, x := range []struct {
		is   bool
		text string
	}{{r.Static, "static"}, {r.Batch > 0, "batches"}, {r.Dedupe, "dedupe"}} {
		if x.is {
			t += ", " + x.text
		}
	}
	return t
}

// shown is how many findings of a round are printed; its file "verdict" has all.
const shown = 10

func findings(v *proof.Verdict, most int) string {
	var b strings.Builder
	for i, f := range v.Findings {
		if i == most {
			_, _ = fmt.Fprintf(&b, "  and %d more\n", len(v.Findings)-i)
			break
		}
		_, _ = fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(f.String(), "\n", "\n  "))
	}
	return b.String()
}

func verdictLine(v *proof.Verdict) string {
	line, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(line)
}

// report ends the output: what to do about what is wrong, and the verdict as the last line.
func (p *player) report(v proof.Verdict, dir string, out, errs io.Writer) int {
	code := exitGood
	if len(p.broken) > 0 {
		_, _ = fmt.Fprintf(errs, "torture: %d rounds could not be judged, and do not count; files and brokers' logs: %s\n%v\n", len(p.broken), dir, errors.Join(p.broken...))
		code = exitUsage
	}
	if !v.OK() {
		code = exitWrong
		_, _ = fmt.Fprintf(errs, "torture: %d rounds went wrong; files and brokers' logs: %s\n", len(p.failed), dir)
		for _, seed := range p.failed {
			_, _ = fmt.Fprintf(errs, "  %s\n", p.again(seed))
		}
	}
	if !p.json {
		_, _ = fmt.Fprintf(out, "kills of members: %d\n", p.score.kills.Load())
	}
	_, _ = fmt.Fprintln(out, verdictLine(&v))
	return code
}
