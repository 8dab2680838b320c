package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// playing is the torture with broken engines in the place of the tests. It says nothing of the engine but of the oracles: which of them has
// been seen to catch something.
type playing struct {
	rounds int    // on real brokers; 0: in process, under virtual time
	seeds  int    // in process
	faults string // of the rounds
	seed   uint64
	log    io.Writer // what they print; nil: nowhere
}

// patience is how long a broken engine may take for its rounds. One that takes longer hangs, and is caught.
const patience = 6 * time.Minute

// play lets all of the mutations play.
func (p playing) play(ctx context.Context, t *tree, ms []mutation, out io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "mutations-")
	if err != nil {
		return 2, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &runner{tree: t, dir: dir}
	c := combined{files: map[string]*variants{}}
	var played []int
	for i := range ms {
		changed, err := ms[i].files(r.read)
		if err != nil {
			return 2, err
		}
		fits, err := c.add(i+1, changed, r.read)
		if err != nil {
			return 2, fmt.Errorf("%s: %w", ms[i].Name, err)
		}
		if fits {
			played = append(played, i)
		} else {
			say(out, "%s changes more than functions, and is left out\n", ms[i].Name)
		}
	}
	bin, err := p.build(ctx, r, c.overlay())
	if err != nil {
		return 2, err
	}
	if saw, err := p.one(ctx, r, bin, 0); err != nil || saw != "" {
		return 2, errors.Join(err, fmt.Errorf("without any mutation it is not good, so it proves nothing: %s", saw))
	}
	caughtOnes := 0
	for _, i := range played {
		begun := time.Now()
		saw, err := p.one(ctx, r, bin, i+1)
		if ctx.Err() != nil {
			return 2, fmt.Errorf("interrupted at %s", ms[i].Name)
		}
		verdict := survived
		if err != nil {
			saw = err.Error()
		}
		if saw != "" {
			verdict = caught
			caughtOnes++
		}
		say(out, "%-8s %-34s %-8s %s (%.0fs)\n", verdict, ms[i].Name, ms[i].Clause, saw, time.Since(begun).Seconds())
	}
	say(out, "%d of %d caught by %s\n", caughtOnes, len(played), p)
	return 0, nil
}

func (p playing) String() string {
	if p.rounds > 0 {
		return fmt.Sprintf("%d rounds on a real broker, seed %d, faults %s", p.rounds, p.seed, p.faults)
	}
	return fmt.Sprintf("%d rounds in process, from seed %d on", p.seeds, p.seed)
}

func (p playing) build(ctx context.Context, r *runner, files map[string]string) (bin string, err error) {
	if p.rounds == 0 {
		return r.build(ctx, "./integration/torture/virtual", "seeds", files)
	}
	file, err := r.overlay(files)
	if err != nil {
		return "", err
	}
	bin = filepath.Join(r.dir, "torture")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "-overlay", file, "./integration/torture")
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the torture does not compile: %w\n%s", err, out)
	}
	return bin, nil
}

// one has a mutation play, 0 for none, and says what the oracles saw.
func (p playing) one(ctx context.Context, r *runner, bin string, number int) (saw string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^TestSeeds$", "-test.timeout", patience.String())
	cmd.Dir = filepath.Join(r.root, "integration", "torture", "virtual")
	if p.rounds > 0 {
		cmd = exec.CommandContext(ctx, bin, "--rounds", fmt.Sprint(p.rounds), "--seed", fmt.Sprint(p.seed), "--faults", p.faults, "--brokers", "1", "--parallel", "3")
	}
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", selectorEnv, number), fmt.Sprintf("GAPLESS_FIRST_SEED=%d", p.seed), fmt.Sprintf("GAPLESS_SEEDS=%d", p.seeds))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // which ends the brokers as well
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.CombinedOutput()
	if p.log != nil {
		_, _ = p.log.Write(out)
	}
	if err == nil {
		return "", nil
	}
	if saw := findings(out); saw != "" {
		return saw, nil
	}
	for _, kind := range []string{"panic: test timed out", "panic: deadlock", "panic: "} {
		if _, what, ok := bytes.Cut(out, []byte(kind)); ok {
			what, _, _ = bytes.Cut(what, []byte("\n"))
			return kind + string(what), nil
		}
	}
	if ctx.Err() != nil {
		return byHanging, nil
	}
	last := bytes.TrimSpace(out)
	return "something else: " + string(last[bytes.LastIndexByte(last, '\n')+1:]), nil
}

// finding is how both print what is wrong.
var finding = regexp.MustCompile(`(?m)^.*\b(lost|committed_past_unfinished|order_violations|overlaps|redone|business_duplicates|stuck|rewound|foreign): [^ ]*\[-?\d+\]`)

// findings counts them by the oracle that made them. A round that finds very much prints only some.
func findings(out []byte) string {
	counts := map[string]int{}
	for _, m := range finding.FindAllSubmatch(out, -1) {
		counts[string(m[1])]++
	}
	var words []string
	for _, oracle := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s %d", strings.ReplaceAll(oracle, "_", " "), counts[oracle]))
	}
	return strings.Join(words, ", ")
}
