package ledger

import (
	"fmt"
	"os"
	"strings"
)

// MaxRSS is the most memory that this process had, in bytes. The kernel's accounting of resources can't be used: it counts in what
// the parent process had when it started this one.
func MaxRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kB int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kB); err == nil {
			return kB << 10
		}
	}
	return 0
}
