// Command peers runs Gapless and its peers on the same work, and prints one table.
//
//	go run ./bench/peers
//
// It starts a real Kafka, fills topics once, and lets every library consume them with the same handler and the same commits, each in
// a process of its own, one after the other, in several rounds. See README.md beside this file.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/gaplesshq/gapless/bench/peers/internal/arms"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

// armEnv tells an arm's process, which is this program once more, from the one that was started by hand.
const armEnv = "GAPLESS_PEERS_ARM"

func main() {
	if os.Getenv(armEnv) != "" {
		os.Exit(armMain())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "peers:", err)
		return 130
	}
	fmt.Fprintln(os.Stderr, "peers:", err)
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

// armMain is an arm's process: it runs one Go arm and prints what that saw.
func armMain() int {
	t, err := task.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "an arm is started by the command itself:", err)
		return 2
	}
	if err := json.NewEncoder(os.Stdout).Encode(arms.Run(context.Background(), t)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
