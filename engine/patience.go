package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// checkPatiently runs the checks again for as long as what they meet may pass. What can't heal (credentials, certificates, a topic that is
// missing) fails at once.
func (e *Engine) checkPatiently(ctx context.Context) error {
	var met error
	for reached, cuts := false, 0; ; {
		err := e.checkBrokers(ctx)
		reached = reached || err == nil
		if err == nil {
			err = e.checkRights(ctx)
		}
		if err == nil || ctx.Err() != nil && met == nil {
			return err
		}
		if ctx.Err() != nil {
			return met // says more than that the time is over
		}
		met = err
		if isCut(err) && !reached {
			cuts++
		}
		if cuts > cutsAtStart || !mayPass(err, reached) {
			return err
		}
		var code *kerr.Error
		if !errors.As(err, &code) {
			e.once("unreachable", Event{Name: EventUnreachable, Partition: -1, Err: err, Hint: fmt.Sprintf("tried again for StartTimeout (%v)", e.cfg.StartTimeout)})
		}
		timer, stop := after(checkPause)
		select {
		case <-ctx.Done():
			stop()
			return err
		case <-timer:
		}
	}
}

// checkPause is the time between two runs of the checks at start.
const checkPause = 250 * time.Millisecond

// cutsAtStart is how many connections may be closed on the checks before one is answered. A network that fails closes them, but also a
// broker that wants TLS or credentials, and then somebody waits for the error.
const cutsAtStart = 4

func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) ||
		strings.Contains(err.Error(), "closed the connection")
}

// mayPass says whether what a check has met may be over soon. reached says that a broker has answered: then this one's credentials and
// certificates are good, and a broken connection is that of a broker which is down, as in a rolling restart.
func mayPass(err error, reached bool) bool {
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return false // as retriable as the protocol calls it, most likely the name is wrong
	}
	var network net.Error
	return kerr.IsRetriable(err) || isCut(err) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() ||
		strings.Contains(err.Error(), "connection refused") || reached && disconnected(err)
}

// disconnected says whether a broker could not be reached, or the connection to it broke.
func disconnected(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return !errors.As(err, &dns) && (errors.As(err, &op) || kgo.IsRetryableBrokerErr(err))
}
