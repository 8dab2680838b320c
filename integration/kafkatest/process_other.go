//go:build !linux

package kafkatest

import "os/exec"

// dieWithParent does nothing: only Linux offers it.
func dieWithParent(*exec.Cmd) {}
