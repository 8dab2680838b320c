// Package process runs an arm in a process of its own.
package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"github.com/gaplesshq/gapless/bench/peers/internal/cache"
	"github.com/gaplesshq/gapless/bench/peers/internal/report"
)

// Run runs an arm's process to its end, which is when ctx ends at the latest.
func Run(ctx context.Context, cmd *exec.Cmd) (r report.Run) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	dieWithParent(cmd)
	// The kernel takes the thread that started a process for its parent: it must live on.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if state := cmd.ProcessState; state != nil {
		r.Process = state.UserTime() + state.SystemTime()
	}
	if ctx.Err() != nil {
		r.Err = context.Cause(ctx)
		return r
	}
	if e := json.Unmarshal([]byte(lastLine(stdout.String())), &r.Outcome); e != nil {
		if err == nil {
			err = fmt.Errorf("its last line is not an outcome: %w", e)
		}
		r.Err = fmt.Errorf("the process said nothing: %w: %s", err, cache.Tail(stdout.String()+stderr.String(), 4))
	}
	return r
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
