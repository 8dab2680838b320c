package process

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end an arm with us. An interrupt from the terminal is for us alone: we end the arm.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
