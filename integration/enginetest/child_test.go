package enginetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// childEnv holds, for a process that is to be killed, what it is to do: a member can't be killed within the test's process.
const childEnv = "GAPLESS_TEST_CHILD"

// childOrder is what a child does: consume, and say on its standard output what it begins and what it is done with.
type childOrder struct {
	Brokers      []string
	Group, Topic string
	CommitMillis int
	Session      time.Duration
	BatchSize    int // 0: one by one
	BlockAfter   int // begin no more than one batch after so many records; 0: never block

	Dir        string // of its dedupe store; a child with one does as runStoreChild says
	StuckEach  int    // records at multiples of this offset never end; 0: all do
	CommitOnce bool   // commit until told to go on, and then no more
}

// runChild is the child's main function.
func runChild(order string) {
	var o childOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		childFails(err)
	}
	if o.Dir != "" {
		runStoreChild(o)
		return
	}
	go func() { // the test's process is gone, however it ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	var mu sync.Mutex
	done := 0
	say := func(word string, r *engine.Record) {
		// Unbuffered: it is in the pipe before the handler returns, so what is committed has been said.
		fmt.Fprintln(os.Stdout, word, r.Partition, r.Offset)
	}
	c := engine.Config{
		Brokers: o.Brokers, Group: o.Group, Topics: []string{o.Topic}, Workers: 4,
		SessionTimeout: o.Session, HeartbeatInterval: o.Session / 5,
		Commit:     engine.Commit{Interval: time.Duration(o.CommitMillis) * time.Millisecond},
		DeadLetter: engine.DeadLetter{GiveUp: engine.GiveUpHold},
		BatchSize:  o.BatchSize,
	}
	handle := func(rs []*engine.Record) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range rs {
			say("begun", r)
		}
		if o.BlockAfter > 0 && done >= o.BlockAfter {
			select {} // to be killed here
		}
		for _, r := range rs {
			say("done", r)
		}
		done += len(rs)
	}
	if o.BatchSize > 0 {
		c.BatchHandler = engine.BatchHandlerFunc(func(_ context.Context, b *engine.Batch) error { handle(b.Records); return nil })
	} else {
		c.Handler = engine.HandlerFunc(func(_ context.Context, r *engine.Record) error { handle([]*engine.Record{r}); return nil })
	}
	e, err := engine.New(c)
	if err == nil {
		err = e.Run(context.Background())
	}
	childFails(err)
}

func childFails(err error) {
	fmt.Fprintln(os.Stdout, "the child failed:", err)
	os.Exit(1)
}

// child is a member in a process of its own.
type child struct {
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string   // what it says; closed at its end
	read  chan struct{} // closed when all that it said is in lines
	once  sync.Once
}

// spawn starts a child on the world's topic and group.
func (w *world) spawn(o childOrder) *child {
	w.Helper()
	o.Brokers, o.Group, o.Topic = w.cluster.Brokers(), w.group, w.topic
	// Short: the group hands a killed member's partitions on only when its session has ended. Brokers that are not set up for
	// tests refuse less than 6 s.
	o.Session = 1500 * time.Millisecond
	if os.Getenv(kafkatest.BrokersEnv) != "" {
		o.Session = 6 * time.Second
	}
	order, err := json.Marshal(o)
	if err != nil {
		w.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	c := &child{cmd: exec.Command(self), lines: make(chan string, 100_000), read: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(order))
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil { // closed when this process ends
		w.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		defer close(c.read)
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	w.Cleanup(c.kill)
	return c
}

// kill ends the child as kill -9 does. What it had said stays readable.
func (c *child) kill() {
	c.once.Do(func() {
		_ = c.cmd.Process.Kill()
		<-c.read
		_ = c.cmd.Wait()
	})
}
