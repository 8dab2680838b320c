//go:build unix

package ledger

import (
	"syscall"
	"time"
)

// cpuTime is what this process has used of its processors, in its own name and in the kernel's.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
