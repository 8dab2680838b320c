package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if os.Getenv(memberEnv) != "" {
		os.Exit(memberMain())
	}
	os.Exit(soakMain())
}

func soakMain() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "soak:", err)
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}
