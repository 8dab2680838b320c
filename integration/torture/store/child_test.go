package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// childEnv holds what the child is to do.
const childEnv = "GAPLESS_TORTURE_CHILD"

// plan is one life of the child, from its start to its kill.
type plan struct {
	Brokers               []string
	Group, Topic          string
	Dir, Journal          string
	Order                 engine.Order
	Batch                 int // 0: one by one
	Workers               int
	Commit                engine.Commit
	MaxDelay              time.Duration
	MaxGroup              int
	Pace                  string // how long the handler takes: none, short, or short with a few long ones
	Failing               int    // so many of 1,000 attempts fail
	Stuck                 int    // so many of 10,000 records never end in this life
	Seed                  uint64
	Kill                  string // when it is killed; see life
	KillLines, KillCommit int
	KillAfter             time.Duration
}

// idHeader holds a record's business key.
const idHeader = "id"

var errAgain = errors.New("not this time")

// runChild is the child's main function. It ends by SIGKILL, or, asked for it on standard input, by a clean stop.
func runChild(text string) {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		childFails(err)
	}
	journal, err := os.OpenFile(p.Journal, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		childFails(err)
	}
	h := &handler{plan: p, journal: journal}
	c := engine.Config{
		Brokers: p.Brokers, Group: p.Group, Topics: []string{p.Topic},
		// A static member comes back without waiting for the end of the session of the one that was killed.
		InstanceID: "victim", SessionTimeout: 10 * time.Second,
		Order: p.Order, Workers: p.Workers, Commit: p.Commit,
		Retry: engine.Retry{Attempts: 1_000_000, Base: 2 * time.Millisecond, Max: 20 * time.Millisecond},
		Dedupe: engine.Dedupe{
			Dir: p.Dir, Key: engine.HeaderKey(idHeader), MaxDelay: p.MaxDelay, MaxGroup: p.MaxGroup,
		},
		DeadLetter: engine.DeadLetter{GiveUp: engine.GiveUpHold},
		StuckAfter: time.Hour, StalledAfter: time.Hour,
		OnEvent: func(ev engine.Event) {
			switch ev.Name {
			case engine.EventHeld, engine.EventStoreFailed, engine.EventStoreRolledBack, engine.EventDataLoss, engine.EventSkipped, engine.EventDeadLettered, engine.EventWindowIgnored:
				fmt.Println("event", ev.Name, ev.Partition, ev.Offset, ev.Err, ev.Hint)
			}
		},
	}
	if p.Batch > 0 {
		c.BatchHandler, c.BatchSize, c.BatchLinger = engine.BatchHandlerFunc(h.batch), p.Batch, 2*time.Millisecond
	} else {
		c.Handler = engine.HandlerFunc(h.one)
	}
	e, err := engine.New(c)
	if err != nil {
		childFails(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		if line, _ := bufio.NewReader(os.Stdin).ReadString('\n'); line != "stop\n" {
			os.Exit(1) // the parent is gone, however it ended
		}
		cancel()
	}()
	if err := e.Run(ctx); err != nil {
		childFails(err)
	}
	fmt.Println("stopped")
	os.Exit(0)
}

func childFails(err error) {
	fmt.Println("failed:", err)
	os.Exit(1)
}

// handler writes down what it begins and ends. One write call a line: it is in the file before the handler goes on, whoever
// dies then, and lines do not mix.
type handler struct {
	plan
	journal *os.File
	stuck   atomic.Int32
	calls   atomic.Uint64
}

func (h *handler) say(word byte, r *engine.Record) {
	id := "-"
	for _, x := range r.Headers {
		id = string(x.Value)
	}
	line := make([]byte, 0, 64)
	line = append(line, word, ' ')
	line = append(line, r.Topic...)
	line = append(line, ' ')
	line = strconv.AppendInt(line, int64(r.Partition), 10)
	line = append(line, ' ')
	line = strconv.AppendInt(line, r.Offset, 10)
	line = append(line, ' ')
	line = append(line, id...)
	line = append(line, ' ')
	line = strconv.AppendInt(line, time.Now().UnixNano(), 10)
	line = append(line, '\n')
	if _, err := h.journal.Write(line); err != nil {
		childFails(err)
	}
}

// dice is a number that the plan and the record decide, and how often handlers were called.
func (h *handler) dice(r *engine.Record, again bool) uint64 {
	f := fnv.New64a()
	n := uint64(0)
	if again {
		n = h.calls.Add(1)
	}
	fmt.Fprint(f, h.Seed, r.Partition, r.Offset, n)
	return f.Sum64() >> 8
}

func (h *handler) work(ctx context.Context, r *engine.Record) error {
	if h.Stuck > 0 && h.dice(r, false)%10_000 < uint64(h.Stuck) && h.stuck.Add(1) <= int32(h.Workers/2) {
		<-ctx.Done() // to be killed here
		return ctx.Err()
	}
	d := h.dice(r, true)
	switch h.Pace {
	case "short":
		time.Sleep(time.Duration(d%2000) * time.Microsecond)
	case "mixed":
		time.Sleep(time.Duration(d%300) * time.Microsecond)
		if d>>20%100 == 0 {
			time.Sleep(time.Duration(d>>30%50) * time.Millisecond)
		}
	}
	if int(d>>40%1000) < h.Failing {
		return errAgain
	}
	return nil
}

func (h *handler) one(ctx context.Context, r *engine.Record) error {
	h.say('b', r)
	if err := h.work(ctx, r); err != nil {
		h.say('f', r)
		return err
	}
	h.say('e', r)
	return nil
}

func (h *handler) batch(ctx context.Context, b *engine.Batch) error {
	for _, r := range b.Records {
		h.say('b', r)
	}
	failed := make([]bool, len(b.Records))
	for i, r := range b.Records {
		if err := h.work(ctx, r); err != nil {
			failed[i] = true
			b.Fail(i, err)
		}
	}
	for i, r := range b.Records { // all at the end: until the call returns the whole batch is in flight
		h.say(map[bool]byte{true: 'f', false: 'e'}[failed[i]], r)
	}
	return nil
}
