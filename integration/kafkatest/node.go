package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// startTimeout is generous: it ends a start that hangs, not one that is slow.
	startTimeout = 90 * time.Second
	stopTimeout  = time.Minute
)

// errPortTaken means that someone took a port between our finding it free and the broker's start.
var errPortTaken = errors.New("a port was taken meanwhile")

// A node is one broker of a cluster, whether it runs or not.
type node struct {
	id             int
	dir            string
	ports          map[Listener]int
	controllerPort int
	proxies        []*proxy // by network
	tail           tail

	mu     sync.Mutex
	proc   *process // the last one started; nil before that
	paused bool
}

func (n *node) dataDir() string           { return filepath.Join(n.dir, "data") }
func (n *node) propertiesPath() string    { return filepath.Join(n.dir, "server.properties") }
func (n *node) logPath() string           { return filepath.Join(n.dir, "broker.log") }
func (n *node) address(l Listener) string { return address(n.ports[l]) }
func (n *node) controllerAddress() string { return address(n.controllerPort) }

// launch starts the broker's process and does not wait for it.
func (n *node) launch(dist *distribution, flags []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	// A restarted broker goes on in the same log.
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	// The broker outlives the context of its start.
	cmd := dist.command(context.Background(), "broker", flags, "kafka.Kafka", n.propertiesPath())
	proc, err := startProcess(cmd, log, &n.tail)
	if err != nil {
		return fmt.Errorf("kafkatest: start broker %d: %w", n.id, err)
	}
	n.proc, n.paused = proc, false
	return nil
}

// awaitReady returns when the broker has said that it serves requests.
func (n *node) awaitReady(ctx context.Context) error {
	n.mu.Lock()
	proc := n.proc
	n.mu.Unlock()
	timeout, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var reason error
	select {
	case <-proc.ready:
		return nil
	case <-proc.exited:
		reason = proc.exitError()
		if proc.taken { // its last lines do not say so: it shuts down in many words
			reason = errPortTaken
		}
	case <-timeout.Done():
		reason = timeout.Err()
	}
	return fmt.Errorf("kafkatest: broker %d did not start: %w\n%s", n.id, reason, n.report())
}

// running reports whether there is a process, be it paused.
func (n *node) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc != nil && n.proc.running()
}

// answers reports whether the broker runs and has not been paused.
func (n *node) answers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc != nil && n.proc.running() && !n.paused
}

// kill ends the broker, if it runs, without giving it a chance to say goodbye.
func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		n.proc.kill()
	}
}

// stop asks the broker to hand over its partitions and exit, and kills it if it does not.
func (n *node) stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.paused {
		// Nothing reaches a paused process but this.
		if err := resume(n.proc.cmd.Process); err != nil {
			return err
		}
		n.paused = false
	}
	if err := terminate(n.proc.cmd.Process); err != nil {
		return err
	}
	overdue := time.NewTimer(stopTimeout)
	defer overdue.Stop()
	select {
	case <-n.proc.exited:
		return nil
	case <-overdue.C:
		n.proc.kill()
		return fmt.Errorf("kafkatest: broker %d did not stop within %s and was killed", n.id, stopTimeout)
	}
}

// pause freezes the broker or lets it run on.
func (n *node) pause(frozen bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	act := resume
	if frozen {
		act = suspend
	}
	if err := act(n.proc.cmd.Process); err != nil {
		return err
	}
	n.paused = frozen
	return nil
}

// report shows where the broker's log is and how it ends.
func (n *node) report() string {
	return fmt.Sprintf("log of broker %d: %s, which ends:\n%s", n.id, n.logPath(), &n.tail)
}
