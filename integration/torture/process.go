package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/gaplesshq/gapless/integration/torture/schedule"
)

// process is one life of a member.
type process struct {
	who   schedule.Member
	cmd   *exec.Cmd
	in    io.WriteCloser
	ready chan struct{} // closed when the engine has said that it is
	gone  chan struct{} // closed when the process has ended

	err  error  // how it ended; to be read after gone
	said string // its last words, if it failed; to be read after gone

	mu     sync.Mutex
	parted bool // it was told to go, or killed
}

// spawn starts a life. What goes wrong in its own process, such as a fatal error of the runtime, goes to the given file.
func spawn(p plan, stderr *os.File) (*process, error) {
	text, err := p.text()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &process{who: p.Member, cmd: exec.Command(self), ready: make(chan struct{}), gone: make(chan struct{})}
	m.cmd.Env = append(os.Environ(), planEnv+"="+text)
	m.cmd.Stderr = stderr
	apart(m.cmd)
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Member, err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			if s.Text() == "ready" {
				close(m.ready)
			} else if said, failed := strings.CutPrefix(s.Text(), "failed: "); failed {
				m.said = said
			}
		}
		m.err = m.cmd.Wait()
		close(m.gone)
	}()
	return m, nil
}

// tell writes a line to the member's standard input. A member that has ended does not hear it, which its end tells better.
func (m *process) tell(format string, args ...any) {
	_, _ = fmt.Fprintf(m.in, format+"\n", args...)
}

// over says whether the process has ended.
func (m *process) over() bool {
	select {
	case <-m.gone:
		return true
	default:
		return false
	}
}

// part notes that the process is about to end for a reason that is known.
func (m *process) part() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parted = true
}

func (m *process) isParted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.parted
}

// kill ends the process as kill -9 does. It is gone when kill returns.
func (m *process) kill() error {
	m.part()
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", m.who, err)
	}
	<-m.gone
	return nil
}

// crashed says whether a record has ended the process.
func (m *process) crashed() bool { return m.cmd.ProcessState.ExitCode() == exitCrashed }

// end is how the process ended, in words.
func (m *process) end() string {
	switch {
	case m.crashed():
		return "a record ended it"
	case m.said != "":
		return m.said
	case m.err != nil:
		return m.err.Error()
	}
	return "it ended by itself, without an error"
}
