package kafkatest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process when the thread that started it ends, which is when
// our process does, provided the caller keeps that thread.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
