package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

// A member is a process of its own, so that it can be killed for real: this very program, started as `gapless demo member`. Its
// first line of input says what to do; the end of its input is the wish that it leaves cleanly, so that none outlives the demo. Its
// output is a line of JSON many times a second, for the live view and for when the play goes on. The verdict does not believe it.

const group = "gapless-demo"

// sessionTimeout is how long the group waits for B after it was killed, before A gets its partitions.
const sessionTimeout = 6 * time.Second

// commitInterval is the engine's default but for its length: people wait for a demo.
const commitInterval = 200 * time.Millisecond

// maxPending is how many finished records may wait for their marks to be durable: the engine's promise, which the verdict holds it to.
const maxPending = 4096

// role is what a member has to know.
type role struct {
	Life    string        `json:"life"` // A1
	Brokers []string      `json:"brokers"`
	Order   string        `json:"order"`
	Workers int           `json:"workers"`
	Static  bool          `json:"static"` // keeps its place in the group when it is killed and returns in time
	Session time.Duration `json:"session"`
	Store   string        `json:"store"`
	Journal string        `json:"journal"`
	Begun   time.Time     `json:"begun"`
	Log     string        `json:"log"`
	Broken  broken        `json:"broken"`
}

// broken switches off what the verdict is to miss then; for tests.
type broken struct {
	NoWindows bool `json:"no_windows,omitempty"` // commits carry offsets only
	NoStore   bool `json:"no_store,omitempty"`
	NoKeys    bool `json:"no_keys,omitempty"` // the store knows no business keys
}

// standing is what a member says of itself.
type standing struct {
	Ready      bool       `json:"ready"`
	Healthy    bool       `json:"healthy"`
	Limit      int        `json:"limit"`
	Running    int        `json:"running"`
	Partitions []position `json:"partitions"`
}

type position struct {
	Partition int32 `json:"p"`
	Active    bool  `json:"active"`
	InFlight  int   `json:"in_flight"`
	Parked    int   `json:"parked"`
	Frontier  int64 `json:"frontier"`
}

// standingEvery is short, as the acts of the play wait for it.
const standingEvery = 50 * time.Millisecond

// memberCommand is what a member's process runs.
func memberCommand() *cobra.Command {
	return &cobra.Command{
		Use: "member", Hidden: true, Args: cobra.NoArgs, SilenceUsage: true,
		Short: "A member of the demo's group, as the demo starts it",
		RunE: func(c *cobra.Command, _ []string) error {
			return runMember(c.InOrStdin(), c.OutOrStdout())
		},
	}
}

// runMember is a member from its start to its end. An interrupt of the terminal reaches it, too, but it is the demo that tells it to
// leave, by closing its input.
func runMember(in io.Reader, out io.Writer) error {
	input := bufio.NewReader(in)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("a member is started by gapless demo: %w", err)
	}
	var r role
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("a member is started by gapless demo: %w", err)
	}
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	p, err := openPen(r.Journal, r.Life, r.Begun, fail)
	if err != nil {
		return err
	}
	defer func() { _ = p.f.Close() }()
	log := zerolog.Nop()
	if r.Log != "" {
		f, err := os.OpenFile(r.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		log = zerolog.New(f).With().Timestamp().Str("member", r.Life).Logger()
	}
	e, err := engine.New(r.config(handler(p), log))
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- e.Run(context.Background()) }()
	told := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, input)
		close(told)
	}()
	tick := time.NewTicker(standingEvery)
	defer tick.Stop()
	enc := json.NewEncoder(out)
	for {
		select {
		case err := <-ran:
			return errors.Join(err, context.Cause(ctx))
		case <-ctx.Done(): // the journal can't be written: nothing that follows could be proven
			return context.Cause(ctx)
		case <-told:
			stop, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			return errors.Join(e.Stop(stop), context.Cause(ctx))
		case <-tick.C:
			_ = enc.Encode(standingOf(e)) // a demo that has gone closes the input as well
		}
	}
}

func (r *role) config(h engine.Handler, log zerolog.Logger) engine.Config {
	c := engine.Config{
		Brokers: r.Brokers, ClientID: "gapless-demo-" + r.Life, Group: group, Topics: []string{topic},
		Handler: h, Order: engine.Order(r.Order), Workers: r.Workers,
		// Everything that people wait for in a demo is shorter than one would have it in production.
		Retry:             engine.Retry{Attempts: attempts, Base: 50 * time.Millisecond, Max: 200 * time.Millisecond},
		Commit:            engine.Commit{Interval: commitInterval},
		HeartbeatInterval: 250 * time.Millisecond,
		DrainTimeout:      2 * time.Second,
		Log:               log,
	}
	if r.Static {
		c.InstanceID, c.LeaveOnStop, c.SessionTimeout = memberOf(r.Life), true, r.Session
	}
	if r.Broken.NoWindows {
		c.Commit.MetadataBytes = -1
	}
	if !r.Broken.NoStore {
		c.Dedupe = engine.Dedupe{Dir: r.Store, MaxPending: maxPending}
		if !r.Broken.NoKeys {
			c.Dedupe.Key, c.Dedupe.Scope = engine.HeaderKey(orderHeader), topic
		}
	}
	return c
}

func standingOf(e *engine.Engine) standing {
	st := e.Status()
	s := standing{Ready: st.Ready, Healthy: st.Healthy, Limit: st.Workers.Limit, Running: st.Workers.Running}
	for _, p := range st.Partitions {
		s.Partitions = append(s.Partitions, position{
			Partition: p.Partition, Active: p.Phase == "active", InFlight: p.InFlight, Parked: p.Parked, Frontier: p.Frontier,
		})
	}
	return s
}
