package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gaplesshq/gapless/integration/proof"
)

// TestMain runs the tests, or, in a process that is to be killed, a member of a group.
func TestMain(m *testing.M) {
	if text := os.Getenv(planEnv); text != "" {
		runMember(text)
		return
	}
	goleak.VerifyTestMain(m)
}

// A few rounds of whatever there is, on three brokers: C1 to C6, and C8 for stops. GAPLESS_SEED repeats them, GAPLESS_ROUNDS says how many.
func TestTorture(t *testing.T) {
	seed := number("GAPLESS_SEED", uint64(time.Now().UnixNano()%1_000_000)+1)
	var out bytes.Buffer
	code := command(t.Context(), []string{
		"--rounds", fmt.Sprint(number("GAPLESS_ROUNDS", 3)), "--seed", fmt.Sprint(seed), "--brokers", "3", "--parallel", "2",
	}, &out, &out)
	t.Logf("%s", out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var v proof.Verdict
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &v); err != nil {
		t.Errorf("the last line is no verdict: %v", err)
	}
	if code != exitGood {
		t.Errorf("exit code %d; again: GAPLESS_SEED=%d", code, seed)
	}
	if v.Records == 0 || v.Seed != seed {
		t.Errorf("verdict %+v", v)
	}
}

func number(env string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(env), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// Wrong flags end with exit code 2, and with words that say what is wrong.
func TestWrongFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--brokers 2":              "--brokers is 2: it takes 1 or 3",
		"--parallel 0":             "--parallel is 0",
		"--rounds -1":              "--rounds is -1",
		"--rounds 0":               "needs a --duration",
		"--faults kill,earthquake": `"earthquake" is not a fault`,
		"now":                      `"now" is not expected`,
		"--seeds 3":                "unknown flag: --seeds",
	} {
		var out, errs bytes.Buffer
		if code := command(t.Context(), strings.Fields(args), &out, &errs); code != exitUsage {
			t.Errorf("%s: exit code %d", args, code)
		}
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%s: it says %q, not %q", args, errs.String(), want)
		}
	}
}

// Help is no error, and lists the faults.
func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := command(t.Context(), []string{"--help"}, &out, &errs); code != exitGood {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(out.String(), "dead-letter") || !strings.Contains(out.String(), "--seed") {
		t.Errorf("help says %s", out.String())
	}
}
