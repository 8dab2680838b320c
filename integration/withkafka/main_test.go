package main

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

func TestMain(m *testing.M) {
	if os.Getenv("WITHKAFKA_TEST") != "" { // the command that is run
		if os.Getenv("GAPLESS_BROKERS") == "" {
			os.Exit(9)
		}
		os.Exit(7)
	}
	kafkatest.Main(m)
}

// TestRun: the command has the address, and its exit code comes back.
func TestRun(t *testing.T) {
	t.Setenv("WITHKAFKA_TEST", "1")
	var exit *exec.ExitError
	err := run([]string{os.Args[0]})
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("%v", err)
	}
	if err := run([]string{"/nowhere"}); err == nil {
		t.Error("a command that is not there is run")
	}
}
