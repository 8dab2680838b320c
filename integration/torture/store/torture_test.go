package store

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

func number(env string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(env), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// TestTorture kills an engine with a store at random instants and looks at what comes of it: nothing lost, no business duplicate
// of a key whose mark was durable, nothing handled again but what a kill leaves in flight or not yet durable, no commit past what is unfinished,
// and the order kept. C1, C4, C5, C6.
func TestTorture(t *testing.T) {
	kills, seed := int(number("GAPLESS_KILLS", 8)), number("GAPLESS_SEED", uint64(time.Now().UnixNano()%1_000_000))
	began := time.Now()
	b := newBroker(t)
	orders := []string{"key", "unordered", "partition", "batch"}
	var all totals
	for i, order := range orders {
		n := kills*(i+1)/len(orders) - kills*i/len(orders)
		if n == 0 {
			continue
		}
		t.Run(order, func(t *testing.T) {
			w := newTorture(t, b, order, seed+uint64(i), kills)
			defer func() { all.add(w.o.totals) }()
			for k := range n {
				w.live(k, all.kills)
			}
			w.finish()
		})
	}
	fmt.Printf("torture: seed %d kills %d records %d lost %d redone %d redone_allowed %d business_duplicates %d (in flight %d, ended and not durable %d of which %d ran again, the oldest %v; %v)\n",
		seed, all.kills, all.records, all.lost, all.redone, all.allowed, all.duplicates,
		all.inFlight, all.notDurable, all.finishedAgain, all.oldest.Round(time.Millisecond), time.Since(began).Round(time.Second))
	if all.redone > all.allowed || all.lost > 0 || all.duplicates > 0 {
		t.Fail()
	}
	if t.Failed() {
		fmt.Printf("torture: the same plan again: GAPLESS_SEED=%d GAPLESS_KILLS=%d\n", seed, kills)
	}
}

// torture is one group with its topic, its store and its journal.
type torture struct {
	*testing.T
	b     *broker
	o     *oracle
	rng   *rand.Rand
	base  plan
	j     *journal
	copy  string
	kills int // of all groups
}

func newTorture(t *testing.T, b *broker, order string, seed uint64, kills int) *torture {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	o := newOracle(b.source(t, order, rng))
	w := &torture{T: t, b: b, o: o, rng: rng, j: newJournal(t), copy: t.TempDir() + "/copy", kills: kills}
	w.base = plan{Brokers: b.addrs, Group: o.group, Topic: o.topic, Journal: w.j.path, Dir: t.TempDir() + "/store", Order: engine.Order(order)}
	if order == "batch" {
		w.base.Order, w.base.Batch, o.order = engine.OrderKey, 1+rng.IntN(30), "key"
	}
	return w
}

// plan draws the settings of a life, and the instant of its end.
func (w *torture) plan(k int) plan {
	p, rng := w.base, w.rng
	p.Seed = rng.Uint64()
	p.Workers = 1 + rng.IntN(24)
	p.Commit = []engine.Commit{{}, {Interval: 100 * time.Millisecond}, {Interval: 10 * time.Millisecond}, {Records: 1 + rng.IntN(500)}, {Each: true}}[rng.IntN(5)]
	p.MaxDelay = []time.Duration{0, 0, 10 * time.Millisecond, 50 * time.Millisecond}[rng.IntN(4)]
	p.MaxGroup = []int{0, 0, 1 + rng.IntN(100)}[rng.IntN(3)]
	p.Pace = []string{"none", "short", "mixed"}[rng.IntN(3)]
	p.Failing = []int{0, 0, 20, 200}[rng.IntN(4)]
	if p.Order != engine.OrderPartition {
		p.Stuck = []int{0, 5, 50}[rng.IntN(3)]
	}
	p.KillLines, p.KillCommit, p.KillAfter = rng.IntN(4000), 1+rng.IntN(6), time.Duration(rng.IntN(2000))*time.Microsecond
	switch d := rng.IntN(20); {
	case k%16 == 1:
		p.Kill, p.Commit, p.Failing = "quiet", engine.Commit{Interval: time.Hour}, 0
	case d < 3:
		p.Kill, p.KillAfter = "start", time.Duration(rng.IntN(400))*time.Millisecond
	case d < 7 && w.b.commits != nil:
		p.Kill = "commit"
	default:
		p.Kill = "lines"
	}
	return p
}

// live is one life of the child: it is started, works, and is killed. Then everything is looked at.
func (w *torture) live(k, before int) {
	const backlog = 3000
	if open := w.open(); open < backlog {
		w.o.produce(backlog - open)
	}
	p := w.plan(k)
	w.o.begin()
	c := w.spawn(p)
	quiet := w.await(c, p)
	at := time.Now()
	w.kill(c)
	lines, err := w.j.rest()
	if err != nil {
		w.Fatal(err)
	}
	w.o.hear(lines)
	store, err := openCopy(p.Dir, w.copy)
	if err != nil {
		w.o.fault("durable: the store of the killed process can't be opened: %v", err)
	}
	w.o.killed(store, at, quiet)
	if store != nil {
		if err := store.Close(); err != nil {
			w.Error(err)
		}
	}
	s := &w.o.totals
	fmt.Printf("torture: kill %d of %d, %s, %s: %d lines, %d in flight; so far redone %d of %d allowed, %d records, store %d kB\n",
		before+k+1, w.kills, w.Name(), p.Kill, len(lines), len(w.o.running), s.redone, s.allowed, w.o.n, bytesIn(p.Dir)>>10)
	w.judge(c)
}

func (w *torture) judge(c *child) {
	if len(w.o.wrong) == 0 {
		return
	}
	for _, s := range w.o.wrong {
		w.Log(s)
	}
	w.Logf("the child said:\n%s", strings.Join(c.said, "\n"))
	w.Fatalf("%d faults", w.o.wrongs)
}

// open is about how many records are left to handle.
func (w *torture) open() (n int) {
	for _, rs := range w.o.records {
		for _, r := range rs {
			if !r.ended && !w.o.done[r.id] {
				n++
			}
		}
	}
	return n
}

// finish lets a last child do the rest and stop cleanly.
func (w *torture) finish() {
	p := w.base
	p.Workers = 8
	w.o.begin()
	c := w.spawn(p)
	for deadline := time.Now().Add(patience); !w.o.allCommitted(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) || c.over() {
			w.kill(c)
			w.Fatalf("the rest was never done: %v of %d\n%s", w.o.committed(), w.o.n, strings.Join(c.said, "\n"))
		}
	}
	if _, err := io.WriteString(c.in, "stop\n"); err != nil {
		w.Error(err)
	}
	<-c.ended
	if err := c.cmd.Wait(); err != nil {
		w.Errorf("a clean stop: %v", err)
	}
	lines, err := w.j.rest()
	if err != nil {
		w.Fatal(err)
	}
	w.o.hear(lines)
	w.o.end()
	w.judge(c)
}

// child is a process.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	said  []string // to be read after ended
	ended chan struct{}
}

func (w *torture) spawn(p plan) *child {
	text, err := json.Marshal(p)
	if err != nil {
		w.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	c := &child{cmd: exec.Command(self), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		w.Fatal(err)
	}
	if w.b.commits != nil {
		select { // what an earlier child had sent
		case <-w.b.commits:
		default:
		}
	}
	if err := c.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.said = append(c.said, s.Text())
		}
	}()
	w.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

func (c *child) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// kill ends a child as kill -9 does.
func (w *torture) kill(c *child) {
	_ = c.cmd.Process.Kill()
	<-c.ended
	_ = c.cmd.Wait()
	for _, line := range c.said {
		if strings.HasPrefix(line, "failed") {
			w.Errorf("the child %s", line)
		}
	}
}

// await waits for the instant of the kill. It says whether there was nothing left to do for a good while.
func (w *torture) await(c *child, p plan) (quiet bool) {
	deadline := time.Now().Add(patience)
	from, moved := w.j.size(), time.Now()
	last, commits := from, 0
	for time.Now().Before(deadline) && !c.over() {
		if size := w.j.size(); size != last {
			last, moved = size, time.Now()
		} else if p.Kill != "start" && p.Kill != "quiet" && last > from && time.Since(moved) > time.Second {
			return false // what is left is stuck, or about to be tried again
		}
		switch p.Kill {
		case "start":
			time.Sleep(p.KillAfter)
			return false
		case "lines":
			if last-from >= int64(p.KillLines)*w.j.lineBytes(p.Topic) {
				time.Sleep(p.KillAfter)
				return false
			}
		case "commit":
			select {
			case <-w.b.commits:
				if commits++; commits >= p.KillCommit {
					time.Sleep(p.KillAfter / 2)
					return false
				}
			default:
			}
		case "quiet":
			// Nothing is begun any more, and the commits do not change either. Then it is given time again.
			if before := w.o.committed(); last > from && time.Since(moved) > 300*time.Millisecond {
				time.Sleep(1500 * time.Millisecond)
				if same(before, w.o.committed()) && w.j.size() == last {
					return true
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(200 * time.Microsecond)
	}
	return false
}

func same(a, b [partitions]committed) bool {
	for p := range a {
		if a[p].at != b[p].at || a[p].says.String() != b[p].says.String() {
			return false
		}
	}
	return true
}
