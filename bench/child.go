package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"
)

// roleEnv makes this very program, started again, one of the processes that a benchmark consists of: the embedded broker, the server
// that handler http calls, or a consumer. So the CPU and the memory of a consumer are its own. A process reads what it has to do from
// its standard input, and ends when that is closed, so that none outlives who started it.
const roleEnv = "GAPLESS_BENCH_ROLE"

var roles = map[string]func(ctx context.Context, in *bufio.Reader, out io.Writer) error{
	"broker": brokerRole, "server": serverRole, "consumer": consumerRole,
}

// Any program that imports this package can be such a process, a test binary with somebody's own handler as well: so this happens
// before its main, and only where the variable is set, which nobody but child does.
func init() {
	name := os.Getenv(roleEnv)
	if name == "" {
		return
	}
	role := roles[name]
	if role == nil {
		fmt.Fprintf(os.Stderr, "%s=%s: no such role; unset the variable\n", roleEnv, name)
		os.Exit(2)
	}
	signal.Ignore(os.Interrupt) // it reaches all processes of a terminal; who started this one decides what follows
	if err := role(context.Background(), bufio.NewReader(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is a process that has been started.
type child struct {
	role string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	errs tail
	once sync.Once
	err  error
}

// start starts a process and gives it what it is to do, as a line of JSON and some bytes behind it.
func start(role string, what any, more []byte) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{role: role, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	c.cmd.Stderr = &c.errs
	c.cmd.WaitDelay = time.Second
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<16)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", role, err)
	}
	line, err := json.Marshal(what)
	if err == nil {
		_, err = c.in.Write(append(append(line, '\n'), more...))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the %s: %w", role, err), c.end())
	}
	return c, nil
}

// read waits for the next line that the process writes.
func (c *child) read(to any) error {
	line, err := c.out.ReadBytes('\n')
	if err == nil {
		return json.Unmarshal(line, to)
	}
	if err := c.end(); err != nil {
		return err
	}
	return fmt.Errorf("the %s ended without an answer", c.role)
}

// end closes the process's input and waits until it is gone.
func (c *child) end() error {
	c.once.Do(func() {
		_ = c.in.Close()
		_, _ = io.Copy(io.Discard, c.out)
		if err := c.cmd.Wait(); err != nil {
			c.err = fmt.Errorf("the %s: %w: %s", c.role, err, c.errs.String())
		}
	})
	return c.err
}

// stop has the process end, and kills it if it does not: whoever reads from it sees it end.
func (c *child) stop() {
	_ = c.in.Close()
	time.AfterFunc(stopWithin, func() { _ = c.cmd.Process.Kill() })
}

// stopWithin is how long a process has to leave its group.
const stopWithin = 8 * time.Second

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - 4096; over > 0 {
		t.b = t.b[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// readJob reads the line that says what a process is to do.
func readJob(in *bufio.Reader, to any) error {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("this process is started by a benchmark: %w", err)
	}
	return json.Unmarshal(line, to)
}

// untilClosed gives a context that ends when in does.
func untilClosed(ctx context.Context, in io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	return ctx, cancel
}
