package kafkatest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process when the thread that started it ends, which is when
// our process does, provided the caller keeps that thread. An interrupt from the terminal is for our
// process alone: it may have something to do yet before its brokers end.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
