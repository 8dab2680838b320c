package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/gaplesshq/gapless/engine"
	"github.com/gaplesshq/gapless/integration/kafkatest"
)

// command builds the command, which is a module of its own, and returns a function that runs it on a cluster.
func command(t *testing.T, cluster *kafkatest.Cluster) func(args ...string) (stdout string, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gapless.exe")
	build := exec.Command("go", "build", "-o", path, "./gapless")
	build.Dir = filepath.Join("..", "..", "cmd")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	return func(args ...string) (string, error) {
		ctx, cancel := patient()
		defer cancel()
		cmd := exec.CommandContext(ctx, path, append(args, "--brokers", strings.Join(cluster.Brokers(), ","))...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, errs.String())
		}
		return string(out), err
	}
}

// An operator's rewind is honoured, made with "gapless offsets reset" or with Kafka's own tool: what the resume window of the
// commit before calls settled is handled again.
func TestOffsetsReset(t *testing.T) {
	gapless := command(t, kafkatest.Shared(t))
	inBothProtocols(t, func(t *testing.T, set func(*engine.Config)) {
		w := newWorld(t, 1)
		const records, stuck = 20, 3
		w.produceAll(records, records)
		// handled runs a member until it has handled so many records; one never ends where there is something stuck.
		handled := func(n int, sticks bool) []int64 {
			w.Helper()
			l := w.ledger()
			c := w.config(l.keep(func(ctx context.Context, r *engine.Record) error {
				if sticks && r.Offset == stuck {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}))
			set(&c)
			c.Order, c.DrainTimeout = engine.OrderUnordered, 100*time.Millisecond
			m := w.start(c)
			l.reaches(n)
			if sticks { // it is a member now
				if out, err := gapless("offsets", "reset", "--group", w.group, "--topic", w.topic, "--to", "0", "--yes"); err == nil || !strings.Contains(err.Error(), "is active") {
					w.Errorf("a running group was reset: %s %v", out, err)
				}
				// And a commit that comes a moment after such a look is refused by the broker itself.
				ctx, cancel := patient()
				answer, err := w.adm.CommitOffsets(ctx, w.group, kadm.OffsetsFromRecords(kgo.Record{Topic: w.topic}))
				cancel()
				if o, _ := answer.Lookup(w.topic, 0); err != nil || o.Err != kerr.UnknownMemberID {
					w.Errorf("the broker answered a commit from outside of a running group: %v, %v", err, o.Err)
				}
			}
			m.cancel()
			_ = m.ended() // it says what it abandoned
			w.eventually("the group is empty", func() bool {
				out, err := gapless("status", "--group", w.group, "--json")
				return err == nil && strings.Contains(out, `"state":"Empty"`)
			})
			return l.offsets(0)
		}
		all := func(from int64) (offsets []int64) {
			for o := from; o < records; o++ {
				offsets = append(offsets, o)
			}
			return offsets
		}
		beyond := func() (committed, settled int64) {
			w.Helper()
			out, err := gapless("offsets", "show", "--group", w.group, "--topic", w.topic, "--json")
			if err != nil {
				w.Fatal(err)
			}
			var g struct {
				Partitions []struct {
					Committed int64
					Window    struct {
						Ignored string
						Settled int64 `json:"settled_beyond"`
					}
				}
			}
			if err := json.Unmarshal([]byte(out), &g); err != nil || len(g.Partitions) != 1 || g.Partitions[0].Window.Ignored != "" {
				w.Fatalf("%v: %s", err, out)
			}
			return g.Partitions[0].Committed, g.Partitions[0].Window.Settled
		}

		handled(records-1, true)
		if at, settled := beyond(); at != stuck || settled != records-stuck-1 {
			t.Fatalf("committed %d, %d settled beyond; want %d and %d", at, settled, stuck, records-stuck-1)
		}
		if out, err := gapless("offsets", "reset", "--group", w.group, "--topic", w.topic, "--by=-2", "--yes"); err != nil || !strings.Contains(out, "read back as written. 18 records will be handled again, 0 skipped") {
			t.Fatalf("%v: %s", err, out)
		}
		if at, settled := beyond(); at != 1 || settled != 0 {
			t.Errorf("committed %d, %d settled beyond", at, settled)
		}
		if got := handled(records-2, true); len(got) != records-2 || got[0] != 1 {
			t.Errorf("after the reset: handled %v", got)
		}
		ctx, cancel := patient()
		defer cancel()
		if out, err := w.cluster.Tool(ctx, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", w.cluster.Bootstrap(kafkatest.Plaintext),
			"--reset-offsets", "--group", w.group, "--topic", w.topic, "--to-offset", "2", "--execute"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := handled(records-2, false); !slices.Equal(got, all(2)) {
			t.Errorf("after Kafka's own tool: handled %v", got)
		}
		if _, err := gapless("offsets", "reset", "--group", w.group, "--all-topics", "--to", "latest", "--yes"); err != nil {
			t.Error(err)
		}
		w.noLagLeft()
	})
}
