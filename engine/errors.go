package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// verdict is what an error asks the engine to do with its record.
type verdict uint8

const (
	verdictRetry verdict = iota
	verdictPermanent
	verdictSkip
	verdictHold
	verdictEnd
)

// steer is an error that says what to do.
type steer struct {
	error
	verdict verdict
	after   time.Duration
}

func (s *steer) Unwrap() error { return s.error }

// steering makes a steering error; nothing is left of a nil one, so that `return Permanent(do())` is right when do succeeds.
func steering(err error, v verdict, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &steer{error: err, verdict: v, after: after}
}

// Permanent says that trying again can't help: the record is given up at once (see Config.DeadLetter).
func Permanent(err error) error { return steering(err, verdictPermanent, 0) }

// RetryAfter asks for the next attempt after d instead of the usual delay, at most Retry.MaxRetryAfter. The attempt counts.
func RetryAfter(d time.Duration, err error) error { return steering(err, verdictRetry, max(d, 1)) }

// Skip settles the record without its work being done; it is counted and logged with the reason.
func Skip(reason string) error { return &steer{error: errors.New(reason), verdict: verdictSkip} }

// Hold stops the record's partition: nothing of it starts and nothing passes the record until the engine is restarted, or
// Engine.Unhold tries it again.
func Hold(err error) error { return steering(err, verdictHold, 0) }

// End stops the whole engine; Run returns err. The record stays unsettled and is delivered again after the restart.
func End(err error) error { return steering(err, verdictEnd, 0) }

func steerOf(err error) (verdict, time.Duration) {
	var s *steer
	if errors.As(err, &s) {
		return s.verdict, s.after
	}
	return verdictRetry, 0
}

// PanicError is what a panic of a handler becomes.
type PanicError struct {
	Value any
	Stack []byte
}

func (p *PanicError) Error() string { return fmt.Sprintf("the handler panicked: %v", p.Value) }

// Unwrap gives the value of the panic where it was an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// AbandonedError says which records a stop left unsettled although they were begun: their handlers still ran, or what remained
// was an acknowledgement that did not come. They are not lost: they are delivered again.
type AbandonedError struct{ Records []Abandoned }

// What an abandoned record waited for.
const (
	WaitsForHandler    = "handler"     // it had not returned
	WaitsForOutputs    = "outputs"     // they were not acknowledged
	WaitsForDeadLetter = "dead letter" // it was not acknowledged
)

// Abandoned is a record that was not finished when the stop's deadline came.
type Abandoned struct {
	Topic     string
	Partition int32
	Offset    int64
	For       string        // what it waited for: WaitsForHandler, WaitsForOutputs or WaitsForDeadLetter
	Running   time.Duration // how long its handler has been seen running, at the watchdog's granularity
}

func (e *AbandonedError) Error() string {
	s := fmt.Sprintf("the stop left %d records unfinished (they are not lost, they will be delivered again); waiting for", len(e.Records))
	for i, r := range e.Records {
		if i == 20 {
			return s + fmt.Sprintf(" and %d more", len(e.Records)-i)
		}
		s += fmt.Sprintf(" %s: %s[%d]@%d", r.For, r.Topic, r.Partition, r.Offset)
	}
	return s
}

func (a Abandoned) same(b Abandoned) bool {
	return a.Topic == b.Topic && a.Partition == b.Partition && a.Offset == b.Offset
}

// running says whether handlers still run.
func (e *AbandonedError) running() bool {
	return e != nil && slices.ContainsFunc(e.Records, func(r Abandoned) bool { return r.For == WaitsForHandler })
}

// Errors that New, Run and the other methods return.
var (
	// ErrRunning: Run was called a second time. An Engine runs once.
	ErrRunning = errors.New("gapless: Run was called before; make a new Engine")
	// ErrNotRunning: the method needs a running engine.
	ErrNotRunning = errors.New("gapless: the engine is not running")
	// ErrLastCommit: the commit at the end of a stop failed.
	ErrLastCommit = errors.New("gapless: the commit of the stop failed; what was settled since the one before is not lost, it is delivered again")
)

// ConfigError names the field of Config that is wrong, and says what to write instead.
type ConfigError struct{ Field, Problem string }

func (e *ConfigError) Error() string { return "gapless: Config." + e.Field + ": " + e.Problem }
