// Command gapless runs the Gapless engine in front of any Kafka, and has what is needed to try that out: see gapless --help.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// hardStopGrace is how long a command may take to say what it abandoned, after the second interrupt.
const hardStopGrace = 2 * time.Second

func main() {
	ctx, hard := interrupts()
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, streams{os.Stdin, os.Stdout, os.Stderr, os.Environ()}, os.Args[1:])
	}()
	select {
	case code := <-ended:
		os.Exit(code)
	case <-hard:
	}
	select {
	case code := <-ended:
		os.Exit(code)
	case <-time.After(hardStopGrace):
		os.Exit(exitInterrupted)
	}
}

// streams are what a command reads and writes. stdout carries data only; all that is said about it goes to stderr.
type streams struct {
	in       io.Reader
	out, err io.Writer
	environ  []string
}

type hardKey struct{}

// interrupts gives a context that the first SIGINT or SIGTERM ends: stop cleanly. The second one closes hard: stop now.
func interrupts() (ctx context.Context, hard <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	h := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// A reader of stdout that goes away must not kill the process in the middle of a record: the write fails instead.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		<-signals
		cancel()
		<-signals
		close(h)
	}()
	return context.WithValue(ctx, hardKey{}, (<-chan struct{})(h)), h
}

// hardStop is closed by the second interrupt. It is nil where nobody listens to signals.
func hardStop(ctx context.Context) <-chan struct{} {
	h, _ := ctx.Value(hardKey{}).(<-chan struct{})
	return h
}
