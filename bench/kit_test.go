package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// short is a configuration whose runs are as short as may be: what is tested is that they work, not what they measure. They end after some
// records and not after some time, in which nothing may have happened on a machine with much else to do. They are in this process, so
// that goroutines which they leave behind are noticed.
func short(cases ...Case) Config {
	return Config{Cases: cases, Rounds: 1, Limit: 10 * time.Minute, Warm: time.Millisecond, until: 200, here: true}
}

// with is the default case with some parameters set.
func with(t *testing.T, pairs ...string) Case {
	t.Helper()
	c := DefaultCase()
	for i := 0; i < len(pairs); i += 2 {
		if err := c.Set(pairs[i], pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return c
}
