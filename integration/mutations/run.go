package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// verdict is what became of a mutation.
type verdict string

const (
	caught   verdict = "caught"
	survived verdict = "survived" // no test that should catch it failed
	stale    verdict = "stale"    // it no longer applies, does not compile, or its tests are gone
)

// how a test failed.
const (
	byFailing = "fail"
	byPanic   = "panic"
	byHanging = "hang"
)

// result is one line of the report.
type result struct {
	mutation
	Verdict verdict           `json:"verdict"`
	Caught  map[string]string `json:"caught_by,omitempty"` // test: how
	Missed  []string          `json:"missed_by,omitempty"` // tests that are named and passed
	Error   string            `json:"error,omitempty"`
	Seconds float64           `json:"seconds"`
	output  []byte
}

// runner puts mutations into test binaries and runs those.
type runner struct {
	*tree
	timeout time.Duration // of one test
	all     bool          // run every named test
	whole   bool          // run all tests of the package, at once
	dir     string        // for what is built
	bins    map[string]string
	alone   map[string]bool // mutations that need a binary of their own
}

// prepare builds, for each package that has tests to run, one binary with all mutations.
func (r *runner) prepare(ctx context.Context, ms []mutation) error {
	c := combined{files: map[string]*variants{}}
	r.bins, r.alone = map[string]string{}, map[string]bool{}
	for i := range ms {
		changed, err := ms[i].files(r.read)
		if err != nil {
			return err
		}
		fits, err := c.add(i+1, changed, r.read)
		if err != nil {
			return fmt.Errorf("%s: %w", ms[i].Name, err)
		}
		r.alone[ms[i].Name] = !fits
		r.bins[ms[i].Pkg] = ""
	}
	overlay := c.overlay()
	for pkg := range r.bins {
		bin, err := r.build(ctx, pkg, strings.Trim(strings.ReplaceAll(pkg, "/", "_"), "._"), overlay)
		if err != nil {
			return err
		}
		r.bins[pkg] = bin
	}
	return nil
}

// build compiles the tests of a package with other files than the tree's.
func (r *runner) build(ctx context.Context, pkg, name string, files map[string]string) (bin string, err error) {
	file, err := r.overlay(files)
	if err != nil {
		return "", err
	}
	bin = filepath.Join(r.dir, name+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", bin, "-overlay", file, "-tags", r.tags, "-ldflags=-w", pkg)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s does not compile: %w\n%s", pkg, err, out)
	}
	return bin, nil
}

// overlay writes the files to where the compiler is to read them, and the list of them that it takes.
func (r *runner) overlay(files map[string]string) (list string, err error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range files {
		to := filepath.Join(r.dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(r.root, file)] = to
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	list = filepath.Join(r.dir, "overlay.json")
	if err := os.WriteFile(list, b, 0o600); err != nil {
		return "", err
	}
	return list, nil
}

// sound runs the tests without any mutation. A test that fails then catches nothing.
func (r *runner) sound(ctx context.Context, ms []mutation) error {
	type place struct{ pkg, env string }
	tests := map[place][]string{}
	for _, m := range ms {
		at := place{m.Pkg, strings.Join(m.Env, " ")}
		for _, name := range m.Tests {
			if !slices.Contains(tests[at], name) {
				tests[at] = append(tests[at], name)
			}
		}
	}
	var failed error
	for at, names := range tests {
		m := mutation{Pkg: at.pkg, Env: strings.Fields(at.env)}
		if how, out := r.test(ctx, r.bins[at.pkg], &m, 0, strings.Join(names, "|"), 10*r.timeout); how != "" {
			failed = errors.Join(failed, fmt.Errorf("tests of %s fail without any mutation, so they prove nothing:\n%s", at.pkg, out))
		}
	}
	return failed
}

// try runs one mutation, which is the number-th of those that were prepared.
func (r *runner) try(ctx context.Context, m mutation, number int) (res result) {
	begun := time.Now()
	res.mutation, res.Caught = m, map[string]string{}
	defer func() { res.Seconds = time.Since(begun).Seconds() }()
	bin := r.bins[m.Pkg]
	if r.alone[m.Name] {
		changed, err := m.files(r.read)
		if err == nil {
			bin, err = r.build(ctx, m.Pkg, "alone", changed)
		}
		if err != nil {
			res.Verdict, res.Error = stale, err.Error()
			return res
		}
	}
	res.Verdict = survived
	if r.whole {
		how, out := r.test(ctx, bin, &m, number, ".*", r.timeout)
		res.output = out
		if how != "" {
			res.Verdict = caught
			for _, name := range failing.FindAllSubmatch(out, -1) {
				res.Caught[string(name[1])] = byFailing
			}
			if how != byFailing {
				res.Error = how
			}
		}
		return res
	}
	for _, name := range m.Tests {
		how, out := "", []byte(nil)
		for range m.Tries {
			if how, out = r.test(ctx, bin, &m, number, name, r.timeout); how != "" {
				break
			}
		}
		if ctx.Err() != nil {
			res.Error = ctx.Err().Error()
			return res
		}
		if how == "" {
			res.Missed = append(res.Missed, name)
			continue
		}
		res.Verdict = caught
		res.Caught[name] = how
		res.output = append(res.output, out...)
		if !r.all {
			break
		}
	}
	return res
}

// test runs tests of a mutant. It returns how they failed; nothing if they passed.
func (r *runner) test(ctx context.Context, bin string, m *mutation, number int, names string, timeout time.Duration) (how string, out []byte) {
	ctx, cancel := context.WithTimeout(ctx, timeout+10*time.Second) // should the mutant keep even the test's own timeout from ending it
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^("+names+")$", "-test.timeout", timeout.String(), "-test.v")
	cmd.Dir, cmd.Env = filepath.Join(r.root, m.Pkg), append(append(os.Environ(), m.Env...), fmt.Sprintf("%s=%d", selectorEnv, number))
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return "", out
	case ctx.Err() != nil, bytes.Contains(out, []byte("panic: test timed out")), bytes.Contains(out, []byte("panic: deadlock")):
		return byHanging, out
	case failing.Match(out):
		return byFailing, out
	}
	return byPanic, out
}

var failing = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
