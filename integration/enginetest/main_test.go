package enginetest

import (
	"flag"
	"os"
	"testing"

	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// TestMain runs the tests, or, in a process that a test has started to kill it, a member of a group.
func TestMain(m *testing.M) {
	if order := os.Getenv(childEnv); order != "" {
		runChild(order)
		return
	}
	// The parallel tests wait for clocks, not for processors. A flag on the command line still wins.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	kafkatest.Main(m)
}
