//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// apart keeps a terminal's interrupt from a member: it is its parent that ends it. And a member that is paused while its parent
// dies is woken by the kernel, then, and sees it.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error  { return p.Signal(syscall.SIGCONT) }
