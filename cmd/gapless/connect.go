package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

const closedHint = "the broker closed the connection: it may expect SASL or TLS, or refuse the credentials: "

// hint says what to do about a connection that failed.
func hint(err error) string {
	for _, h := range []struct{ part, say string }{
		{"SASL_AUTHENTICATION_FAILED", "the broker refused the credentials: check --sasl-mechanism, --sasl-user and the password: "},
		{"unknown authority", "the broker's certificate is not signed by a trusted authority: set --tls-ca-file: "},
		{"bad certificate", "the broker asks for a client certificate: set --tls-cert-file and --tls-key-file: "},
		{"certificate required", "the broker asks for a client certificate: set --tls-cert-file and --tls-key-file: "},
		{"plaintext connection speaking to a tls", "the broker expects TLS: set --tls: "},
		{"is TLS misconfigured", "the broker's port is plaintext: leave TLS off, or use its TLS port: "},
		{"is SASL missing", closedHint},
		{"unable to dial", "no broker answers there: check --brokers, and that the broker runs: "},
	} {
		if strings.Contains(err.Error(), h.part) {
			return h.say
		}
	}
	if errors.Is(err, io.EOF) {
		return closedHint
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no broker answered in time: "
	}
	return ""
}
