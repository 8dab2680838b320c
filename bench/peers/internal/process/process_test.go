package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// childEnv makes this test's program an arm, which does what it says.
const childEnv = "GAPLESS_PROCESS_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		os.Exit(m.Run())
	case "good":
		fmt.Println("some words of a tool\n" + `{"distinct":7,"seconds":0.5}`)
	case "failed":
		fmt.Fprintln(os.Stderr, "no such class")
		os.Exit(3)
	case "silent":
	case "endless":
		time.Sleep(time.Hour) // until it is killed
	}
}

func child(ctx context.Context, what string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	return cmd
}

func TestOutcomeIsTheLastLine(t *testing.T) {
	r := Run(t.Context(), child(t.Context(), "good"))
	if r.Err != nil || r.Outcome.Distinct != 7 || r.Outcome.Seconds != 0.5 || r.Process <= 0 {
		t.Errorf("%+v", r)
	}
}

func TestProcessThatFailsSaysWhy(t *testing.T) {
	if r := Run(t.Context(), child(t.Context(), "failed")); r.Err == nil || !strings.Contains(r.Err.Error(), "exit status 3: no such class") {
		t.Errorf("it failed: %v", r.Err)
	}
	if r := Run(t.Context(), child(t.Context(), "silent")); r.Err == nil || !strings.Contains(r.Err.Error(), "not an outcome") {
		t.Errorf("it said nothing: %v", r.Err)
	}
}

func TestProcessEndsWithItsTime(t *testing.T) {
	late := errors.New("it was ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cmd := child(ctx, "endless")
	time.AfterFunc(10*time.Millisecond, func() { cancel(late) })
	if r := Run(ctx, cmd); !errors.Is(r.Err, late) {
		t.Errorf("%v", r.Err)
	}
}
