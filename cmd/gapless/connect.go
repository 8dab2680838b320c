package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gaplesshq/gapless/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

const defaultStartTimeout = 10 * time.Second

// connect makes a client beside the engine, with the same connection settings, and checks that a broker answers: a client
// alone stays silent on a wrong password.
func connect(ctx context.Context, cfg engine.Config, more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := cfg.ConnectOpts()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		return nil, err
	}
	limit := cfg.StartTimeout
	if limit == 0 {
		limit = defaultStartTimeout
	}
	check, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := cl.Ping(check); err != nil {
		cl.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, unreachable(fmt.Errorf("brokers %s: %s%w", strings.Join(cfg.Brokers, ","), hint(err), err))
	}
	return cl, nil
}

// hint says what to do about a connection that failed.
func hint(err error) string {
	switch say := engine.ConnectHint(err); {
	case say != "":
		return explainedText(say) + ": "
	case errors.Is(err, context.DeadlineExceeded):
		return "no broker answered in time: "
	}
	return ""
}
