// Package arms are the Go libraries at work: each consumes the topic of a task with the settings that its own documentation
// recommends (see the README of bench/peers), calls the same handler, and commits once a second and at the end.
package arms

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gaplesshq/gapless/bench/peers/internal/ledger"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

// commitEvery is how often every arm commits.
const commitEvery = time.Second

// goodbye bounds an arm's last commit and its leaving.
const goodbye = 30 * time.Second

// An arm consumes until ctx ends, which is when every record was handled; then it commits what is left to commit, and leaves.
type arm func(ctx context.Context, t task.Task, w *ledger.Work) error

// arms by library and mode.
var arms = map[[2]string]arm{
	{"gapless", "unordered"}:            gapless,
	{"gapless", "key"}:                  gapless,
	{"gapless", "partition"}:            gapless,
	{"franz-go", "pooled"}:              franzPooled,
	{"franz-go", "defaults"}:            franzDefaults,
	{"franz-go", "errgroup"}:            franzErrgroup,
	{"share-group", "franz-go"}:         franzShare,
	{"sarama", "group"}:                 saramaGroup,
	{"kafka-go", "reader"}:              kafkaGoReader,
	{"confluent-kafka-go", "backoff10"}: confluentBackoff10,
	{"confluent-kafka-go", "defaults"}:  confluentDefaults,
}

// Missing says why a library can't run in this build, or nothing.
func Missing(library string) string {
	if library == "confluent-kafka-go" {
		return confluentMissing
	}
	return ""
}

var errHandledAll = errors.New("every record was handled")

// Run runs an arm in this process. Its error, if any, is in the outcome.
func Run(ctx context.Context, t task.Task) task.Outcome {
	run := arms[[2]string{t.Library, t.Mode}]
	if run == nil {
		return task.Outcome{Error: fmt.Sprintf("there is no Go arm %s/%s", t.Library, t.Mode)}
	}
	w := &ledger.Work{Ledger: ledger.New(t.Ends), Latency: ledger.Latency(t.Latency)}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	watched := make(chan error, 1)
	go func() {
		err := w.Watch(ctx, t.Patience)
		if err == nil {
			end(errHandledAll)
		}
		end(err)
		watched <- err
	}()
	err := run(ctx, t, w)
	end(err) // the watch must not wait for records that nobody handles any more
	return outcome(w, errors.Join(<-watched, err))
}

func outcome(w *ledger.Work, err error) task.Outcome {
	c := w.Count()
	wall, cpu := w.Took()
	slept, peak := w.Slept()
	o := task.Outcome{Distinct: c.Distinct, Again: c.Again, Strange: c.Strange,
		Seconds: wall.Seconds(), CPU: int64(cpu), HandlerNS: int64(slept), Peak: peak, RSS: ledger.MaxRSS()}
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

// afterwards is a context for the last commit.
func afterwards() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), goodbye)
}
