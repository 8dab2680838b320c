package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// member is a process of the group, from its start to its end.
type member struct {
	index int
	name  string // B3 is the third process of member B
	store string

	cmd     *exec.Cmd
	input   io.WriteCloser
	answers chan answer
	gone    chan struct{} // closed when the process has ended
	err     error         // how; once it has

	turn   sync.Mutex  // one order at a time
	parted atomic.Bool // it was told to leave, or killed
}

func memberName(i int) string { return string(rune('A' + i)) }

// startWithin is more than a member needs to connect and join, on a machine with much else to do.
const startWithin = time.Minute

// join starts the next process of a member, with the store that it had before, and waits until it consumes.
func (s *soak) join(ctx context.Context, index int) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	letter := memberName(index)
	s.mu.Lock()
	s.lives++
	s.livesOf[index]++
	life, name := s.lives, fmt.Sprint(letter, s.livesOf[index])
	s.mu.Unlock()
	m := &member{index: index, name: name, cmd: exec.Command(self), answers: make(chan answer, 1), gone: make(chan struct{})}
	r := role{
		Life: uint16(life), Name: name, Brokers: s.brokers, Seed: s.o.seed, Session: s.o.session(), Retention: s.o.retention(),
		Journal: s.journal.f.Name(), Log: filepath.Join(s.o.out, "member-"+letter+".log"), Leak: s.o.leak,
	}
	if s.o.dedupe {
		m.store = filepath.Join(s.work, "store-"+letter)
		r.Store = m.store
	}
	if m.input, err = m.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	m.cmd.Env = append(os.Environ(), memberEnv+"=1")
	log, err := os.OpenFile(r.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	m.cmd.Stderr = log // where a panic belongs, too
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("start member %s: %w", name, err)
	}
	go s.follow(m, out)
	err = json.NewEncoder(m.input).Encode(r)
	if err == nil {
		_, err = m.await(ctx, startWithin)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start member %s: %w", name, err), s.kill(m))
	}
	s.mu.Lock()
	s.members[index] = m
	s.mu.Unlock()
	return nil
}

// follow hears the member until its process has ended. One that ends without having been told to fails the run.
func (s *soak) follow(m *member, out io.Reader) {
	dec := json.NewDecoder(out)
	for {
		var a answer
		if dec.Decode(&a) != nil {
			break
		}
		m.answers <- a
	}
	_, _ = io.Copy(io.Discard, out)
	m.err = m.cmd.Wait()
	close(m.gone)
	if !m.parted.Load() {
		s.fail(fmt.Errorf("member %s ended by itself: %w", m.name, errors.Join(m.err, errors.New("see its log"))))
	}
}

// await waits for the answer to the last order.
func (m *member) await(ctx context.Context, within time.Duration) (answer, error) {
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case a := <-m.answers:
		if a.Err != "" {
			return a, errors.New(a.Err)
		}
		return a, nil
	case <-m.gone:
		return answer{}, errors.Join(errors.New("its process has ended"), m.err)
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	case <-late.C:
		return answer{}, fmt.Errorf("no answer within %v", within)
	}
}

// answerWithin is how long a member may take to answer: its heap is collected for a profile.
const answerWithin = 30 * time.Second

// tell gives a member an order and waits for its answer.
func (m *member) tell(ctx context.Context, o order) (answer, error) {
	m.turn.Lock()
	defer m.turn.Unlock()
	if err := json.NewEncoder(m.input).Encode(o); err != nil {
		return answer{}, fmt.Errorf("member %s: %w", m.name, err)
	}
	a, err := m.await(ctx, answerWithin)
	if err != nil {
		return a, fmt.Errorf("member %s: %w", m.name, err)
	}
	return a, nil
}

// leaveWithin is more than a member needs: its drain and its last commit have deadlines of their own.
const leaveWithin = time.Minute

// leave lets a member go cleanly: it finishes what runs, commits, and leaves the group.
func (s *soak) leave(m *member) error {
	s.part(m)
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
		return fmt.Errorf("member %s did not leave cleanly: %w (see its log)", m.name, m.err)
	}
	return nil
}

// kill is kill -9: the process ends where it is. There is nothing left of it when this returns.
func (s *soak) kill(m *member) error {
	s.part(m)
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill member %s: %w", m.name, err)
	}
	<-m.gone
	return nil
}

// part takes a member off the list; its end is no surprise any more.
func (s *soak) part(m *member) {
	m.parted.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members[m.index] == m {
		s.members[m.index] = nil
	}
}

// present are the members of this moment.
func (s *soak) present() (all []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m != nil {
			all = append(all, m)
		}
	}
	return all
}
