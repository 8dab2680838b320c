package kafkatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// sharedTimeout bounds the start of the shared cluster, which may include a download.
const sharedTimeout = 10 * time.Minute

// shared is the cluster that the tests of one package, which are one process, have in common.
var shared struct {
	sync.Mutex
	managed bool // whether Main is there to end it
	opts    []Option
	cluster *Cluster
	err     error
}

// Main runs a package's tests and ends the cluster they share, which has the given options. It then
// looks for goroutines that the tests left behind, and exits. Use it as TestMain's only line:
//
//	func TestMain(m *testing.M) { kafkatest.Main(m) }
func Main(m *testing.M, opts ...Option) {
	shared.Lock()
	shared.managed, shared.opts = true, opts
	shared.Unlock()

	code := m.Run()
	if err := endShared(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	// A failed test may well leave something running; it has been reported already.
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintf(os.Stderr, "kafkatest: the tests left goroutines behind: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

func endShared(failed bool) error {
	shared.Lock()
	defer shared.Unlock()
	c := shared.cluster
	if c == nil {
		return nil
	}
	shared.cluster = nil
	if failed && !c.external() {
		c.keep.Store(true)
		fmt.Fprintf(os.Stderr, "kafkatest: the shared cluster's logs are in %s\n", c.dir)
	}
	return c.Close()
}

// Shared returns the cluster that all tests of the package share; the first to ask starts it. Tests
// keep out of each other's way by the names that [Name] makes, and do not kill its brokers. It needs
// [Main].
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.managed {
		tb.Fatal("kafkatest: Shared needs a TestMain that ends the cluster: func TestMain(m *testing.M) { kafkatest.Main(m) }")
	}
	if shared.cluster == nil && shared.err == nil {
		// Not the context of this test: the next one may still want the cluster.
		ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
		defer cancel()
		shared.cluster, shared.err = New(ctx, shared.opts...)
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	c := shared.cluster
	tb.Cleanup(func() { c.reportFailure(tb) })
	return c
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

// Name returns a name for a topic or a group that no other call returns, made from the test's own.
func Name(tb testing.TB) string {
	name := notInNames.ReplaceAllString(tb.Name(), "-")
	// Kafka takes 249 characters; file names of its logs add some.
	name = name[:min(len(name), 180)]
	return fmt.Sprintf("%s-%08x", name, rand.Uint32())
}
