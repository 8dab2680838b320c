package schedule

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/gaplesshq/gapless/integration/proof"
)

// current is the life on a host, and whether it runs.
func (run *runner) current(host int) (Member, bool) {
	run.mu.Lock()
	defer run.mu.Unlock()
	return Member{host, run.lives[host]}, run.live[host]
}

// ended notes that a life is over; false if it was already.
func (run *runner) ended(m Member) bool {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.lives[m.Host] != m.Life || !run.live[m.Host] {
		return false
	}
	run.live[m.Host] = false
	return true
}

func (run *runner) start(host int) error {
	run.mu.Lock()
	if run.live[host] {
		run.mu.Unlock()
		return nil
	}
	run.lives[host]++
	run.live[host] = true
	m := Member{host, run.lives[host]}
	run.mu.Unlock()
	run.log.Printf("start %s", m)
	return run.w.Start(run.failed, m)
}

func (run *runner) toMember(ctx context.Context, s Step) error {
	if s.Action == Start {
		return run.start(s.Member)
	}
	m, live := run.current(s.Member)
	if !live {
		run.log.Printf("%s %s: it does not run", s.Action, m)
		return nil
	}
	switch s.Action {
	case Stop:
		return run.stop(m)
	case Kill:
		return run.kill(m)
	case LoseStore:
		if err := run.kill(m); err != nil {
			return err
		}
		run.log.Printf("%s loses its store", m)
		err := run.w.LoseStore(run.failed, m.Host)
		run.note(proof.Incident{What: proof.StoreLost, From: time.Now(), Member: m.String()})
		return err
	case Pause:
		return run.during(ctx, s, proof.Paused, m.String(), func() error { return run.w.Pause(run.failed, m) }, func() error { return run.w.Resume(run.failed, m) })
	case SetWorkers:
		run.log.Printf("%s gets %d workers", m, s.Count)
		return run.w.SetWorkers(run.failed, m, s.Count)
	case Delay, Cut, HalfOpen:
		return run.network(ctx, s, m)
	}
	return fmt.Errorf("the schedule has a step that nobody knows: %s", s)
}

func (run *runner) kill(m Member) error {
	if !run.ended(m) {
		return nil
	}
	from := time.Now()
	err := run.w.Kill(run.failed, m)
	run.note(proof.Incident{What: proof.Killed, From: from, To: time.Now(), Member: m.String()})
	run.log.Printf("killed %s", m)
	return err
}

// stopFor bounds a clean stop: the drain, the last commit, and the good-bye.
const stopFor = time.Minute

// stop stops a member cleanly. One that does not end is a finding, and is killed.
func (run *runner) stop(m Member) error {
	if !run.ended(m) {
		return nil
	}
	run.log.Printf("stop %s", m)
	from := time.Now()
	ctx, cancel := context.WithTimeout(run.failed, run.r.Drain+stopFor)
	defer cancel()
	err := run.w.Stop(ctx, m)
	run.note(proof.Incident{What: proof.Stopping, From: from, To: time.Now(), Member: m.String()})
	run.log.Printf("stopped %s", m)
	if err != nil && ctx.Err() != nil && run.failed.Err() == nil {
		run.find(fmt.Sprintf("%s did not stop within %v: %v", m, run.r.Drain+stopFor, err))
		err = run.w.Kill(run.failed, m)
		run.note(proof.Incident{What: proof.Killed, From: from, To: time.Now(), Member: m.String()})
	}
	return err
}

// find notes a fault that no line of the journal shows.
func (run *runner) find(text string) {
	run.log.Printf("%s", text)
	run.mu.Lock()
	defer run.mu.Unlock()
	run.findings = append(run.findings, proof.Finding{Fault: proof.Foreign, Partition: -1, Offset: -1, Text: text})
}

// stopAll stops all that run, together, and says which these were.
func (run *runner) stopAll() (hosts []int) {
	for host := 1; host <= Hosts; host++ {
		if _, live := run.current(host); live {
			hosts = append(hosts, host)
			run.busy.Add(1)
			go func() {
				defer run.busy.Done()
				run.try(run.failed, host, Step{Action: Stop, Member: host})
			}()
		}
	}
	run.busy.Wait()
	return hosts
}

// watch samples the commits, and starts again what a record has ended, until stop.
func (run *runner) watch() (stop func()) {
	ctx, cancel := context.WithCancel(run.failed)
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		for sleep(ctx, ctx, run.o.Sample) {
			run.sample(ctx)
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			select {
			case c := <-run.w.Crashed():
				run.crashed(ctx, c)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
		<-done
	}
}

// sampleFor bounds a look at the commits: a broker may be down.
const sampleFor = 5 * time.Second

func (run *runner) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sampleFor)
	defer cancel()
	from := time.Now()
	commits, err := run.w.Commits(ctx)
	if err != nil {
		return // there are later ones
	}
	at := time.Now()
	for i := range commits {
		commits[i].From, commits[i].At = from, at
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.commits = append(run.commits, commits...)
	sum := int64(0)
	for _, c := range commits {
		sum += c.Offset
	}
	if sum != run.sum {
		run.sum, run.moved = sum, at
	}
}

// still says for how long no commit has moved, at most since then.
func (run *runner) still(since time.Time) time.Duration {
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.moved.After(since) {
		since = run.moved
	}
	return time.Since(since)
}

// mayBeFenced says whether a member may have ended because the coordinator takes another join for the one that counts. The broker writes down
// that a static member has a successor only with the generation that follows, so that a coordinator which takes over before knows the
// predecessor alone; and one that was frozen may carry out a join that the client has given up after the one by which it replaced it.
func (run *runner) mayBeFenced(err error) bool {
	return run.r.Static && run.disturbed.Load() && strings.Contains(err.Error(), kerr.FencedInstanceID.Message)
}

// crashed has a host start another life.
func (run *runner) crashed(ctx context.Context, c Crash) {
	now := time.Now()
	if !run.ended(c.Member) {
		return
	}
	run.note(proof.Incident{What: proof.Killed, From: now, To: now, Member: c.Member.String(), Text: "by a record"})
	switch {
	case c.Err != nil && run.mayBeFenced(c.Err):
		run.log.Printf("%s was fenced by a join that had come too late: %v", c.Member, c.Err)
	case c.Err != nil:
		run.find(fmt.Sprintf("%s ended by itself: %v", c.Member, c.Err))
	default:
		run.log.Printf("%s was ended by a record", c.Member)
	}
	go func() {
		if sleep(ctx, ctx, time.Second) && run.operator.Acquire(ctx, 1) == nil { // who wants to have no members stops this as well
			defer run.operator.Release(1)
			run.try(ctx, c.Member.Host, Step{Action: Start, Member: c.Member.Host})
		}
	}()
}

// atMost bounds the way to rest of a group whose commits do move: so many times the patience with one whose commits don't.
const atMost = 10

// rest has everything come to rest: somebody runs, with workers enough, and goes on until all is committed.
func (run *runner) rest() (done bool) {
	run.log.Printf("nothing is broken any more")
	some := false
	for host := 1; host <= Hosts; host++ {
		_, live := run.current(host)
		some = some || live
	}
	if !some {
		run.try(run.failed, 1, Step{Action: Start, Member: 1})
	}
	for host := 1; host <= Hosts; host++ {
		if _, live := run.current(host); live {
			run.try(run.failed, host, Step{Action: SetWorkers, Member: host, Count: 24})
		}
	}
	for begun := time.Now(); run.still(begun) < run.o.Patience && time.Since(begun) < atMost*run.o.Patience; {
		ctx, cancel := context.WithTimeout(run.failed, sampleFor)
		ok, err := run.w.Done(ctx)
		cancel()
		if err == nil && ok {
			run.log.Printf("all is committed")
			run.sample(run.failed)
			return true
		}
		if !sleep(run.failed, run.failed, run.o.Sample) {
			return false
		}
	}
	return false
}
