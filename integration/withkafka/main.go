// Command withkafka starts a real Kafka, runs a command with its address in GAPLESS_BROKERS, which is the command's --brokers, and stops
// it again. It exits as the command does.
//
//	go run ./integration/withkafka ./gapless bench --records 2000000 --handler none --workers 8
//
// So the command itself needs nothing of what starts a broker. It needs what the tests with a real Kafka need: see package kafkatest.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

const usage = `usage: go run ./integration/withkafka COMMAND [ARGUMENT...]
It starts a real Kafka and runs COMMAND with its address in GAPLESS_BROKERS, for example:
  go run ./integration/withkafka ./gapless bench --records 2000000 --handler none --workers 8`

func main() {
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	err := run(os.Args[1:])
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "withkafka:", err)
		os.Exit(1)
	}
}

// run is a broker's life. An interrupt of the terminal reaches the command as well, and is its to answer: it may have something to
// print.
func run(args []string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cluster, err := kafkatest.New(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "GAPLESS_BROKERS="+strings.Join(cluster.Brokers(), ","))
	return cmd.Run()
}
