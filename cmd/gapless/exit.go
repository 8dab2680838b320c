package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// The exit codes. They are part of the command's interface: scripts rely on them.
const (
	exitOK          = 0   // done; an interrupted command that stopped cleanly, too
	exitFailed      = 1   // it failed while it ran, or the verdict is bad
	exitUsage       = 2   // a flag, a variable or a key of the file is wrong
	exitUnreachable = 3   // no broker was reached, the credentials were refused, or a check at start failed
	exitStore       = 4   // the dedupe store can't go on in this process: start it again
	exitInterrupted = 130 // interrupted a second time, while it was stopping: work was abandoned
)

const exitCodesHelp = `Exit codes:
  0    done; also after an interrupt (ctrl-C, SIGTERM) and a clean stop
  1    it failed while it ran, or its verdict is bad
  2    a flag, an environment variable or a key of the configuration file is wrong
  3    no broker was reached, it refused the credentials, or a check at start failed (a dedupe store that can't be opened, too)
  4    the dedupe store can't be used in this process any more: start it again; that repairs the store, or says what to do
  130  interrupted a second time, while it was stopping: work was abandoned`

// exitError is an error that knows how the process ends.
type exitError struct {
	error
	code int
}

func (e *exitError) Unwrap() error { return e.error }

// ExitCode is the process's.
func (e *exitError) ExitCode() int { return e.code }

func usageError(format string, args ...any) error {
	return &exitError{fmt.Errorf(format, args...), exitUsage}
}

func unreachable(err error) error { return &exitError{err, exitUnreachable} }

// report prints err as the last line of the process, and gives its exit code.
func report(w io.Writer, cmd *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		code = coded.ExitCode()
	}
	_, _ = fmt.Fprintf(w, "gapless: %s\n", trimPrefix(err.Error()))
	if cmd != nil && cmd.Name() == "help" {
		cmd = cmd.Root() // the help of help would not tell the commands
	}
	if code == exitUsage && cmd != nil {
		_, _ = fmt.Fprintf(w, "See %q.\n", cmd.CommandPath()+" --help")
	}
	return code
}
