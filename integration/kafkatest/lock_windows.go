package kafkatest

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile waits until no one else holds the file's lock. The lock goes with the file handle, so it
// keeps out other clusters of this process as well, and a process that dies gives it back.
func lockFile(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, new(windows.Overlapped))
}
