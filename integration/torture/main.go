// Command torture kills, pauses and cuts off members of consumer groups, and the brokers that they depend on, and judges from outside
// what comes of it: nothing lost, nothing committed ahead of the work, order kept, nothing handled again that was known to be done.
//
//	go run ./integration/torture                       ten rounds on three brokers
//	go run ./integration/torture --duration 30m        as many as there is time for
//	go run ./integration/torture --seed 7 --rounds 1   the round of that seed again
//	go run ./integration/torture --faults kill,pause   those alone; --help lists them
//
// It starts real Kafka brokers by itself (see package kafkatest), and its members are processes: this program once more. Each round has
// a topic and a group of its own, settings of its own, and a schedule of what happens, all drawn from its seed (see package schedule).
// What handlers begin and end, what the group commits, what was produced and what was dead-lettered is judged by package proof.
//
// Its last line is the verdict, one JSON object. It exits with 0 where nothing is wrong, with 1 where something is: then the rounds' files
// are kept, and the seed, the schedule and the findings are printed. It exits with 2 where it could not judge: a flag is wrong, there is
// no Java, brokers do not start.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

func main() {
	if text := os.Getenv(planEnv); text != "" {
		runMember(text)
		return
	}
	// The second interrupt ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop()
	}()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitGood  = 0
	exitWrong = 1 // the verdict is bad
	exitUsage = 2 // nothing could be judged
)

// command runs the torture as its arguments say.
func command(ctx context.Context, args []string, out, errs io.Writer) int {
	o, help, err := parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, _ = fmt.Fprint(out, help)
		return exitGood
	case err != nil:
		_, _ = fmt.Fprintf(errs, "torture: %v; see --help\n", err)
		return exitUsage
	}
	return torture(ctx, o, out, errs)
}

// options are the flags.
type options struct {
	rounds   int
	duration time.Duration
	seed     uint64
	faults   schedule.Faults
	brokers  int
	parallel int
	keep     bool
	json     bool
}

func parse(args []string) (o options, help string, err error) {
	var faults string
	f := pflag.NewFlagSet("torture", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	f.SortFlags = false
	f.IntVar(&o.rounds, "rounds", 10, "how many rounds to play; 0: until --duration is over")
	f.DurationVar(&o.duration, "duration", 0, "begin no round after this time; 0: no limit")
	f.Uint64Var(&o.seed, "seed", 0, "of the first round; the next one has the next number. 0: a random one, which is printed")
	f.StringVar(&faults, "faults", "all", "what may happen, with commas between, or with a minus what may not (all,-broker); there are "+strings.Join(schedule.FaultNames(), ", "))
	f.IntVar(&o.brokers, "brokers", 3, "1 or 3")
	f.IntVar(&o.parallel, "parallel", 2, "how many rounds to play at a time; one that does something to brokers is played alone")
	f.BoolVar(&o.keep, "keep", false, "keep the files of good rounds as well")
	f.BoolVar(&o.json, "json", false, "print the verdict alone")
	help = "Usage: go run ./integration/torture [flags]\n\nPlays rounds of faults against consumer groups on real brokers, and judges them from outside.\n\n" + f.FlagUsages()
	if err := f.Parse(args); err != nil {
		return o, help, err
	}
	if f.NArg() > 0 {
		return o, help, fmt.Errorf("%q is not expected: there are only flags", f.Arg(0))
	}
	if o.faults, err = schedule.ParseFaults(faults); err != nil {
		return o, help, fmt.Errorf("--faults: %w", err)
	}
	if o.seed == 0 {
		o.seed = 1 + rand.Uint64N(1_000_000)
	}
	switch {
	case o.brokers != 1 && o.brokers != 3:
		return o, help, fmt.Errorf("--brokers is %d: it takes 1 or 3", o.brokers)
	case o.parallel < 1 || o.parallel > 16:
		return o, help, fmt.Errorf("--parallel is %d: it takes 1 to 16", o.parallel)
	case o.rounds < 0:
		return o, help, fmt.Errorf("--rounds is %d: it can't be negative", o.rounds)
	case o.rounds == 0 && o.duration <= 0:
		return o, help, errors.New("--rounds 0 needs a --duration: otherwise it would never end")
	}
	return o, help, nil
}

// again is the command that plays one round again.
func (o *options) again(seed uint64) string {
	return fmt.Sprintf("go run ./integration/torture --seed %d --rounds 1 --brokers %d --faults %s", seed, o.brokers, o.faults)
}
