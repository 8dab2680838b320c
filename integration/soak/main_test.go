package main

import (
	"os"
	"testing"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// TestMain runs the tests, or, in a process that a test has started, a member of the group.
func TestMain(m *testing.M) {
	if os.Getenv(memberEnv) != "" {
		os.Exit(memberMain())
	}
	kafkatest.Main(m)
}
