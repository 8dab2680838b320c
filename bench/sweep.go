package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// run is one arm of one case, to be measured once a round.
type run struct {
	arm  Arm
	c    Case
	done []Measurement
}

// sweep is a Run at work.
type sweep struct {
	cfg  *Config
	w    *world
	runs []*run
	n    int // runs so far, all rounds
	from time.Time
}

// Run measures all arms of all cases, in turn and Rounds times over. When ctx ends it returns at once with what was measured; the report
// then says that it was interrupted. An error comes with what was measured, too.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg = cfg.withDefaults()
	report := &Report{Machine: ThisMachine(), Began: time.Now(), Cases: cfg.Cases, Rounds: cfg.Rounds, Seconds: cfg.Duration.Seconds(), InProcess: cfg.own(), Broker: cfg.broker()}
	if err := cfg.validate(); err != nil {
		return report, err
	}
	w, err := newWorld(&cfg)
	if err != nil {
		return report, err
	}
	s := &sweep{cfg: &cfg, w: w, from: time.Now()}
	s.plan()
	if err = w.reach(ctx); err == nil {
		err = s.rounds(ctx)
	}
	err = errors.Join(err, w.close())
	report.Took = time.Since(report.Began).Seconds()
	report.gather(s)
	if report.Interrupted = ctx.Err() != nil; report.Interrupted {
		err = nil // whatever it came to by that
	}
	return report, err
}

func (c *Config) broker() string {
	switch {
	case c.Synthetic:
		return "none"
	case len(c.Brokers) > 0:
		return fmt.Sprintf("%v", c.Brokers)
	}
	return "embedded, in a process of its own"
}

// plan lists what is to run. Cases that are the same for an arm share its runs.
func (s *sweep) plan() {
	for _, c := range s.cfg.Cases {
		for _, a := range s.arms() {
			if s.find(a, c) == nil {
				s.runs = append(s.runs, &run{arm: a, c: a.of(c)})
			}
		}
	}
}

// arms are those of the configuration behind the controls.
func (s *sweep) arms() []Arm {
	arms := []Arm{ArmBare, ArmGoroutines}
	if s.cfg.Synthetic {
		arms[0] = ArmDecode
	}
	if s.cfg.idle {
		return append(arms[:1], s.cfg.Arms...)
	}
	if s.cfg.BatchHandler != nil { // a batch can only be made by the engine
		arms = arms[:1]
	}
	for _, a := range s.cfg.Arms {
		if a != arms[0] && a != ArmGoroutines {
			arms = append(arms, a)
		}
	}
	return arms
}

func (s *sweep) find(a Arm, c Case) *run {
	of := a.of(c)
	for _, r := range s.runs {
		if r.arm == a && r.c == of {
			return r
		}
	}
	return nil
}

// rounds runs everything in turn. Each round begins elsewhere, so that none is always the first or behind the same other one.
func (s *sweep) rounds(ctx context.Context) error {
	for round := range s.cfg.Rounds {
		for i := range s.runs {
			r := s.runs[(i+round*len(s.runs)/s.cfg.Rounds)%len(s.runs)]
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.n++
			s.tell(r, round, nil)
			m, err := s.once(ctx, r)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.arm, describe(r.c, varied(s.cfg.Cases)), err)
			}
			r.done = append(r.done, *m)
			s.tell(r, round, m)
		}
	}
	return nil
}

func (s *sweep) tell(r *run, round int, m *Measurement) {
	if s.cfg.Progress == nil {
		return
	}
	all := len(s.runs) * s.cfg.Rounds
	p := Progress{Run: s.n, Runs: all, Round: round + 1, Arm: r.arm, Case: r.c, Done: m, VariedParams: varied(s.cfg.Cases)}
	if m != nil {
		p.Left = time.Since(s.from) / time.Duration(s.n) * time.Duration(all-s.n)
	}
	s.cfg.Progress(p)
}

// once is one run.
func (s *sweep) once(ctx context.Context, r *run) (m *Measurement, err error) {
	j, cleanup, err := s.w.job(ctx, r.arm, r.c)
	defer func() { err = errors.Join(err, cleanup()) }()
	if err != nil {
		return nil, err
	}
	feeding, stop := context.WithCancel(ctx)
	fed := make(chan error, 1)
	feeds := false
	ready := func() error {
		if r.c.Rate > 0 && r.arm.consumes() {
			feeds = true
			go func() { fed <- s.w.feed(feeding, r.c, j.Topic) }()
		}
		return nil
	}
	if s.cfg.here || s.cfg.own() && r.arm != ArmBare {
		m, err = j.run(ctx, ready)
	} else {
		m, err = elsewhere(ctx, j, ready)
	}
	stop()
	if feeds {
		err = errors.Join(err, <-fed)
	}
	return m, err
}

// elsewhere runs a job in a process of its own.
func elsewhere(ctx context.Context, j *job, ready func() error) (*Measurement, error) {
	c, err := start("consumer", j, nil)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			c.stop()
		case <-ended:
		}
	}()
	for {
		var a answer
		if err := c.read(&a); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, err
		}
		switch {
		case a.Error != "":
			return nil, errors.Join(errors.New(a.Error), c.end())
		case a.Result != nil:
			return a.Result, c.end()
		}
		if err := ready(); err != nil {
			return nil, errors.Join(err, c.end())
		}
	}
}
