//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && (amd64 || arm64)) || (windows && amd64)))

package arms

import (
	"context"
	"errors"

	"github.com/gaplesshq/gapless/bench/peers/internal/ledger"
	"github.com/gaplesshq/gapless/bench/peers/internal/task"
)

// confluentMissing says why this build can't have librdkafka.
const confluentMissing = "this build has no librdkafka: it needs cgo (CGO_ENABLED=1 and a C compiler) and a platform for which confluent-kafka-go brings the library along"

func confluentBackoff10(context.Context, task.Task, *ledger.Work) error {
	return errors.New(confluentMissing)
}

func confluentDefaults(ctx context.Context, t task.Task, w *ledger.Work) error {
	return confluentBackoff10(ctx, t, w)
}
