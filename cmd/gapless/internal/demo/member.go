package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// member is a process of the group, from its start to its end.
type member struct {
	name, life string
	store      string

	cmd    *exec.Cmd
	input  io.WriteCloser
	said   tail
	now    atomic.Pointer[standing]
	ready  chan struct{}
	gone   chan struct{} // closed when the process has ended
	err    error         // how; once it has
	parted atomic.Bool   // it was told to leave, or killed
}

// join starts a member and waits until it consumes.
func (d *demo) join(ctx context.Context, name string) (*member, error) {
	m, err := d.start(name)
	if err != nil {
		return nil, err
	}
	select {
	case <-m.ready:
		return m, nil
	case <-m.gone:
		d.fail(m.ended())
	case <-ctx.Done():
	}
	return nil, context.Cause(d.ctx)
}

// start starts the next life of a member, with the store that it had before.
func (d *demo) start(name string) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start member %s: %w", name, err)
	}
	d.mu.Lock()
	d.lives[name]++
	life := fmt.Sprint(name, d.lives[name])
	d.mu.Unlock()
	m := &member{
		name: name, life: life, store: filepath.Join(d.dir, "store-"+name), cmd: exec.Command(self, "demo", "member"),
		ready: make(chan struct{}), gone: make(chan struct{}),
	}
	m.now.Store(&standing{Healthy: true})
	r := role{
		Life: life, Brokers: d.brokers, Order: d.o.order, Workers: d.o.workers, Static: name == "B", Session: d.o.session,
		Store: m.store, Journal: d.journal.path, Begun: d.journal.begun, Log: d.o.log, Broken: d.o.broken,
	}
	if m.input, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.cmd.Stderr = &m.said
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start member %s: %w", name, err)
	}
	d.mu.Lock()
	d.members = append(d.members, m)
	d.mu.Unlock()
	go func() {
		m.listen(out)
		m.err = m.cmd.Wait()
		close(m.gone)
		if !m.parted.Load() {
			d.fail(m.ended())
		}
	}()
	return m, json.NewEncoder(m.input).Encode(r)
}

// listen keeps what the member says last, until it says no more.
func (m *member) listen(out io.Reader) {
	dec := json.NewDecoder(out)
	for ready := false; ; {
		var s standing
		if dec.Decode(&s) != nil {
			_, _ = io.Copy(io.Discard, out)
			return
		}
		m.now.Store(&s)
		if s.Ready && !ready {
			ready = true
			close(m.ready)
		}
	}
}

// ended says how the process ended.
func (m *member) ended() error {
	err := m.err
	if err == nil {
		err = errors.New("it ended by itself")
	}
	if said := m.said.String(); said != "" {
		return fmt.Errorf("member %s: %w: %s", m.name, err, said)
	}
	return fmt.Errorf("member %s: %w", m.name, err)
}

// leaveWithin is more than a member needs: its drain and its last commit have deadlines of their own.
const leaveWithin = 30 * time.Second

// leave lets a member go cleanly: it finishes what runs, commits, and leaves the group.
func (d *demo) leave(m *member) error {
	defer d.forget(m)
	m.parted.Store(true)
	_ = m.input.Close()
	late := time.NewTimer(leaveWithin)
	defer late.Stop()
	select {
	case <-m.gone:
	case <-late.C:
		_ = m.cmd.Process.Kill()
		<-m.gone
		return fmt.Errorf("member %s did not leave within %v", m.name, leaveWithin)
	}
	if m.err != nil {
		return fmt.Errorf("member %s did not leave cleanly: %w", m.name, m.ended())
	}
	return nil
}

// kill is kill -9: the process ends where it is. There is nothing left of it when this returns.
func (d *demo) kill(m *member) error {
	m.parted.Store(true)
	if err := m.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill member %s: %w", m.name, err)
	}
	<-m.gone
	_ = m.input.Close()
	d.forget(m)
	return nil
}

func (d *demo) forget(m *member) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.members {
		if d.members[i] == m {
			d.members = append(d.members[:i:i], d.members[i+1:]...)
			return
		}
	}
}

// leaveAll lets all members go at once.
func (d *demo) leaveAll() (first error) {
	ms := d.present()
	errs := make(chan error, len(ms))
	for _, m := range ms {
		go func() { errs <- d.leave(m) }()
	}
	for range ms {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// present are the members of this moment.
func (d *demo) present() []*member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*member(nil), d.members...)
}

// partitions are those that m handles by now.
func (m *member) partitions() []int32 {
	var active []int32
	for _, p := range m.now.Load().Partitions {
		if p.Active {
			active = append(active, p.Partition)
		}
	}
	return active
}

// tail keeps the end of what a process writes to its standard error.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailMost = 4096

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(len(t.b)-tailMost, 0):]
	return len(p), nil
}

// String implements fmt.Stringer.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(bytes.ToValidUTF8(t.b, nil)))
}
