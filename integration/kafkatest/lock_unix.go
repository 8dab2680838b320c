//go:build unix

package kafkatest

import (
	"errors"
	"os"
	"syscall"
)

// lockFile waits until no one else holds the file's lock. The lock goes with the file handle, so it
// keeps out other clusters of this process as well, and a process that dies gives it back.
func lockFile(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
