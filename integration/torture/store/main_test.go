package store

import (
	"os"
	"testing"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// TestMain runs the tests, or, in a process that is to be killed, a member of the group.
func TestMain(m *testing.M) {
	if plan := os.Getenv(childEnv); plan != "" {
		runChild(plan)
		return
	}
	kafkatest.Main(m)
}
