//go:build !linux

package process

import "os/exec"

// dieWithParent does nothing: only Linux offers it.
func dieWithParent(*exec.Cmd) {}
