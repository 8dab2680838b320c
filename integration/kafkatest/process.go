package kafkatest

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
)

// readyLine is what a broker logs when it serves requests.
const readyLine = "Kafka Server started"

// A process is a running broker, seen from outside: what it logs, and whether it lives.
type process struct {
	cmd    *exec.Cmd
	tail   *tail
	ready  chan struct{} // closed when the broker has logged that it started
	exited chan struct{} // closed when it is gone and all it logged has been read
	err    error         // why it is gone; to be read after exited
	taken  bool          // it found one of its ports taken; to be read after exited
}

// startProcess runs a broker whose log goes to the given writer as well as to its tail.
func startProcess(cmd *exec.Cmd, log io.WriteCloser, tail *tail) (*process, error) {
	p := &process{cmd: cmd, tail: tail, ready: make(chan struct{}), exited: make(chan struct{})}
	dieWithParent(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	started := make(chan error)
	go func() {
		// The kernel takes the thread that started a process for its parent: this goroutine
		// keeps it for as long as the broker lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.follow(stdout, log)
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// follow reads the log to its end, which is the broker's end.
func (p *process) follow(stdout io.Reader, log io.Writer) {
	ready := false
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		_, _ = io.WriteString(log, line)
		p.tail.add(line)
		p.taken = p.taken || strings.Contains(line, "Address already in use")
		if !ready && strings.Contains(line, readyLine) {
			ready = true
			close(p.ready)
		}
		if err != nil {
			return
		}
	}
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process at once, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error means that it was gone already
	<-p.exited
}

// A failed test shows this much of a broker's log: so many lines, and of each so many bytes.
const (
	tailLength = 25
	tailWidth  = 300
)

// A tail remembers the last lines of a log.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) add(line string) {
	if line == "" {
		return
	}
	if len(line) > tailWidth {
		line = line[:tailWidth] + "...\n"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLength {
		t.lines = t.lines[1:]
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "")
}

// exitError says how a process ended that should not have.
func (p *process) exitError() error {
	if p.err == nil {
		return fmt.Errorf("broker exited by itself")
	}
	return fmt.Errorf("broker died: %w", p.err)
}
