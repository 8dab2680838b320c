package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/rs/zerolog"
)

// A member is this program once more, as a process of its own, so that it can be killed for real. Its first line of input says what
// it is, every further one what to do; the end of its input is the wish that it leaves cleanly, so that none outlives the soak.

// memberEnv tells a member's process from the soak's own.
const memberEnv = "GAPLESS_SOAK_MEMBER"

const (
	group = "gapless-soak"
	topic = "soak"
)

// role is what a member has to know.
type role struct {
	Life      uint16        `json:"life"`
	Name      string        `json:"name"` // B3 is the third process of member B
	Brokers   []string      `json:"brokers"`
	Seed      uint64        `json:"seed"`
	Session   time.Duration `json:"session"`
	Store     string        `json:"store"` // empty: none
	Retention time.Duration `json:"retention"`
	Journal   string        `json:"journal"`
	Log       string        `json:"log"`
	Leak      int           `json:"leak"`
}

// order is a line of a member's input after the first.
type order struct {
	Workers int    `json:"workers,omitempty"` // set so many
	Heap    string `json:"heap,omitempty"`    // write a profile of the heap to this file, after a collection
}

// answer is a line of a member's output: one when it consumes, and one for each order, which may be empty.
type answer struct {
	vitals
	Workers    int               `json:"workers"` // running handlers
	Partitions int               `json:"partitions"`
	Problems   map[string]string `json:"problems,omitempty"`
	Err        string            `json:"err,omitempty"` // why an order was not followed
}

func memberMain() int {
	if err := runMember(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runMember(in io.Reader, out io.Writer) error {
	input := json.NewDecoder(bufio.NewReader(in))
	var r role
	if err := input.Decode(&r); err != nil {
		return fmt.Errorf("a member is started by the soak: %w", err)
	}
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	p, err := openPen(r.Journal, r.Life, fail)
	if err != nil {
		return err
	}
	defer func() { _ = p.f.Close() }()
	log, err := os.OpenFile(r.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	e, err := engine.New(r.config(&handler{pen: p, seed: r.Seed, leak: r.Leak}, zerolog.New(log).With().Timestamp().Str("life", r.Name).Logger()))
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- e.Run(ctx) }()
	select {
	case <-e.Ready():
	case err := <-ran:
		return errors.Join(err, context.Cause(ctx))
	}
	say := json.NewEncoder(out)
	if err := say.Encode(answerOf(e)); err != nil {
		return err
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for {
			var o order
			if input.Decode(&o) != nil {
				return // the end of the input, or the soak is gone
			}
			a := answerOf(e)
			if err := o.follow(e); err != nil {
				a.Err = err.Error()
			}
			if say.Encode(a) != nil {
				return
			}
		}
	}()
	select {
	case err := <-ran:
		return errors.Join(err, context.Cause(ctx))
	case <-told:
	}
	stop, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(e.Stop(stop), context.Cause(ctx))
}

func (o *order) follow(e *engine.Engine) error {
	if o.Workers > 0 {
		return e.SetWorkers(o.Workers, 0)
	}
	if o.Heap == "" {
		return nil
	}
	f, err := os.Create(o.Heap)
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}

func (r *role) config(h engine.Handler, log zerolog.Logger) engine.Config {
	c := engine.Config{
		Brokers: r.Brokers, ClientID: "gapless-soak-" + r.Name, Group: group, Topics: []string{topic},
		Handler: h, Order: engine.OrderKey, Workers: baseWorkers,
		SessionTimeout: r.Session, HeartbeatInterval: time.Second, DrainTimeout: 5 * time.Second,
		Retry: engine.Retry{Attempts: attempts, Base: 50 * time.Millisecond, Max: 500 * time.Millisecond},
		Log:   log.Level(zerolog.InfoLevel),
	}
	if r.Store != "" {
		c.Dedupe = engine.Dedupe{Dir: r.Store, Key: engine.HeaderKey(idHeader), Retention: r.Retention}
	}
	return c
}

func answerOf(e *engine.Engine) answer {
	st := e.Status()
	return answer{vitals: takeVitals(), Workers: st.Workers.Running, Partitions: len(st.Partitions), Problems: st.Problems}
}

// handler writes down what it begins and ends. Its work is to wait.
type handler struct {
	*pen
	seed uint64
	leak int
	sieve
}

var errFails = errors.New("this record fails")

// Handle implements engine.Handler.
func (h *handler) Handle(ctx context.Context, r *engine.Record) error {
	h.write(begun, r)
	id, _ := identify(r.Headers)
	w := workOf(h.seed, id)
	if h.leak > 0 {
		h.drip(h.leak)
	}
	t := time.NewTimer(w.takes)
	defer t.Stop()
	select {
	case <-ctx.Done():
		h.write(cut, r)
		return ctx.Err()
	case <-t.C:
	}
	switch {
	case r.Attempt > w.failures:
		h.write(handled, r)
		return nil
	case r.Attempt < attempts:
		h.write(failed, r)
	default:
		h.write(givenUp, r)
	}
	return errFails
}
