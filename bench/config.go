package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gaplesshq/gapless/engine"
)

// Config says what to measure. Only Cases are required.
type Config struct {
	// Cases are measured one after the other, in turn; see Grid.
	Cases []Case
	// Arms are measured besides the two controls, which always are. Default ArmEngine, or ArmPipeline where Synthetic is set.
	Arms []Arm
	// Rounds is how often every arm of every case runs. Default 3.
	Rounds int
	// Duration is how long a run is measured, on a log without end. Default 1 s.
	Duration time.Duration
	// Warm is how long a run goes before that. Default 300 ms; a slow handler has at least twice its time.
	Warm time.Duration
	// Limit bounds a run of a log with an end. Default 1 min.
	Limit time.Duration

	// Brokers are the seeds of a real cluster, "host:port". Topics and groups named gapless-bench-... are made there, and removed.
	// Default: an embedded broker, in a process of its own.
	Brokers []string
	// TLS and SASL are how it is reached. SASL.Token is not possible here.
	TLS  engine.TLS
	SASL engine.SASL
	// Topic is read instead of a topic that is made: somebody's own records, on Brokers. Nothing is produced; its groups are removed.
	// Its log ends where it does now, as Case.Records has to say.
	Topic string
	// Synthetic measures without any broker: see ArmPipeline.
	Synthetic bool

	// Handler is somebody's own, instead of Case.Handler. It runs in this process, and so does all that consumes: CPU and memory
	// are this process's, whatever else it does.
	Handler engine.Handler
	// BatchHandler is the same for batches of Case.Batch records.
	BatchHandler engine.BatchHandler
	// Record makes the keys and values of the log, numbered from 0, in place of generated ones. A log without end is made of as many
	// as fit into a megabyte, again and again.
	Record func(i int64) (key, value []byte)

	// Progress, if set, is told of each run before it begins and after it.
	Progress func(Progress)
	// Say, if set, is told of what takes long besides runs.
	Say func(text string)

	until  int64 // ends a run of a log without end after so many records
	idle   bool  // measures consumers that have nothing to do
	window bool  // measures a log with an end for Duration, not to its end
	here   bool  // all that consumes runs in this process, for tests
}

// Progress is how far a sweep is.
type Progress struct {
	Run, Runs    int // this one, from 1, and all
	Round        int // from 1
	Arm          Arm
	Case         Case
	Done         *Measurement // nil before the run
	Left         time.Duration
	VariedParams []string // what differs between the cases, to tell them by
}

func (c *Config) say(format string, args ...any) {
	if c.Say != nil {
		c.Say(fmt.Sprintf(format, args...))
	}
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (c Config) withDefaults() Config {
	orDefault(&c.Rounds, 3)
	orDefault(&c.Duration, time.Second)
	orDefault(&c.Warm, 300*time.Millisecond)
	orDefault(&c.Limit, time.Minute)
	if c.Arms == nil {
		c.Arms = []Arm{ArmEngine}
		if c.Synthetic {
			c.Arms = []Arm{ArmPipeline}
		}
	}
	c.Cases = slices.Clone(c.Cases)
	for i := range c.Cases {
		if c.Handler != nil || c.BatchHandler != nil {
			c.Cases[i].Handler = Handler{Kind: HandlerOwn}
		}
	}
	return c
}

func (c *Config) validate() error {
	switch {
	case len(c.Cases) == 0:
		return errors.New("there is no case to measure: give at least one, such as bench.DefaultCase()")
	case c.Synthetic && len(c.Brokers) > 0:
		return errors.New("brokers and synthetic exclude one another: synthetic runs have no broker")
	case c.Handler != nil && c.BatchHandler != nil:
		return errors.New("Handler and BatchHandler exclude one another")
	case c.SASL.Token != nil:
		return errors.New("SASL.Token can't reach the processes that consume: use PLAIN or SCRAM")
	case c.Topic != "" && len(c.Brokers) == 0:
		return fmt.Errorf("topic %s: say on which brokers it is", c.Topic)
	case c.Rounds < 1 || c.Duration < 0 || c.Warm < 0 || c.Limit < 0:
		return errors.New("write 1 or more for Rounds, and no negative times")
	}
	for _, one := range c.Cases {
		if err := one.validate(); err != nil {
			return err
		}
		if err := c.validateCase(one); err != nil {
			return err
		}
	}
	for _, a := range c.Arms {
		if a.consumes() == c.Synthetic {
			return fmt.Errorf("arm %s: with a broker write %s or %s, without one (synthetic) %s", a, ArmEngine, ArmErrgroup, ArmPipeline)
		}
	}
	return nil
}

func (c *Config) validateCase(one Case) error {
	switch {
	case c.Synthetic && (one.Rate > 0 || one.Records > 0):
		return errors.New("rate and records need a broker: without one (synthetic) there is a log without end")
	case c.Synthetic && one.Members > 1:
		return errors.New("members need a group, and with it a broker")
	case c.Synthetic && one.Fail > 0:
		return errors.New("fail needs the engine, which tries again, and with it a broker")
	case len(c.Brokers) > 0 && one.Rate == 0 && one.Records == 0:
		return errors.New("a real broker has no log without end: set records, such as 2000000, or a rate")
	case c.Topic != "" && one.Rate > 0:
		return fmt.Errorf("topic %s is only read: leave rate at 0", c.Topic)
	case c.BatchHandler != nil && one.Batch == 0:
		return errors.New("BatchHandler needs Case.Batch, the most records of a batch")
	case c.Handler != nil && one.Batch > 0:
		return errors.New("a Case with Batch needs a BatchHandler instead of a Handler")
	}
	return nil
}

// own says that the handler is somebody's own, so that all runs are in this process.
func (c *Config) own() bool { return c.Handler != nil || c.BatchHandler != nil }

// Check says what is wrong with c, and what to write instead; Run does so by itself.
func (c Config) Check() error {
	c = c.withDefaults()
	return c.validate()
}

// String is a line for people: before a run what it is, after it what it gave.
func (p Progress) String() string {
	s := fmt.Sprintf("%d/%d", p.Run, p.Runs)
	if p.Left > 0 {
		s += fmt.Sprintf(" (%v left)", p.Left.Round(time.Second))
	}
	s += fmt.Sprintf(" round %d, %s, %s", p.Round, p.Arm, describe(p.Case, p.VariedParams))
	if p.Done != nil {
		s += fmt.Sprintf(": %s records/s, %s of CPU a record", figure(p.Done.Rate), nanos(p.Done.CPUPerRecord))
	}
	return s
}
