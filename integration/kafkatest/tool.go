package kafkatest

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"testing"
)

// Tool runs one of Kafka's own Java tools, for example
// org.apache.kafka.tools.consumer.group.ConsumerGroupCommand, and returns its standard output. The
// error of a tool that fails holds the end of what it wrote. Most tools want --bootstrap-server, see
// [Cluster.Bootstrap]. For brokers that were running already the tools come from the cache as well.
func (c *Cluster) Tool(ctx context.Context, class string, args ...string) (string, error) {
	return c.ToolWithInput(ctx, nil, class, args...)
}

// ToolWithInput is [Cluster.Tool] for a tool that reads its standard input.
func (c *Cluster) ToolWithInput(ctx context.Context, stdin io.Reader, class string, args ...string) (string, error) {
	cmd, err := c.toolCommand(ctx, class, args...)
	if err != nil {
		return "", err
	}
	cmd.Stdin = stdin
	stdout, err := output(cmd)
	if err != nil {
		return stdout, fmt.Errorf("kafkatest: %s: %w", class, err)
	}
	return stdout, nil
}

func (c *Cluster) toolCommand(ctx context.Context, class string, args ...string) (*exec.Cmd, error) {
	dist := c.dist
	if dist == nil {
		var err error
		if dist, err = install(ctx, KafkaVersion); err != nil {
			return nil, err
		}
	}
	return dist.command(ctx, "tool", nil, class, args...), nil
}

// A RunningTool is one of Kafka's tools at work.
type RunningTool struct {
	proc  *process
	lines lines
	tail  tail
}

// StartTool starts a tool that goes on until it is stopped, such as
// org.apache.kafka.tools.consumer.ConsoleConsumer. What is left of it goes with the test.
func (c *Cluster) StartTool(tb testing.TB, class string, args ...string) *RunningTool {
	tb.Helper()
	cmd, err := c.toolCommand(context.WithoutCancel(tb.Context()), class, args...)
	if err != nil {
		tb.Fatal(err)
	}
	t := &RunningTool{lines: lines{news: make(chan struct{}, 1)}}
	if t.proc, err = startProcess(cmd, &t.lines, &t.tail); err != nil {
		tb.Fatalf("kafkatest: start %s: %v", class, err)
	}
	tb.Cleanup(func() {
		t.proc.kill()
		if tb.Failed() {
			tb.Logf("%s ended with:\n%s", class, &t.tail)
		}
	})
	return t
}

// Lines returns what the tool has written since the last call, on its standard output and error, line by
// line. It waits until there is something, and returns none when the tool is gone and all is read.
func (t *RunningTool) Lines(ctx context.Context) ([]string, error) {
	for {
		gone := !t.proc.running()
		if found := t.lines.take(); len(found) > 0 || gone {
			return found, nil
		}
		select {
		case <-t.lines.news:
		case <-t.proc.exited:
		case <-ctx.Done():
			return nil, fmt.Errorf("kafkatest: the tool wrote nothing: %w\n%s", ctx.Err(), &t.tail)
		}
	}
}

// Stop asks the tool to end, as Ctrl-C does, and returns when it has.
func (t *RunningTool) Stop() error {
	if err := terminate(t.proc.cmd.Process); err != nil {
		return err
	}
	<-t.proc.exited
	return nil
}

// lines collects lines as they are written.
type lines struct {
	mu   sync.Mutex
	have []string
	news chan struct{}
}

// Write takes one line, which is how [process.follow] writes.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(line) > 0 {
		l.have = append(l.have, string(line))
	}
	select {
	case l.news <- struct{}{}:
	default:
	}
	return len(line), nil
}

func (l *lines) Close() error { return nil }

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.have
	l.have = nil
	return taken
}
