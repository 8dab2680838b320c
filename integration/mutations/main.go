package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
	}
	os.Exit(code)
}

// say writes to a terminal: where that fails, nobody is there to be told.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// options are the flags.
type options struct {
	match                           string
	list, check, write, all, asJSON bool
	whole, verbose                  bool
	timeout                         time.Duration
	playing
}

func run(ctx context.Context, args []string, out, progress io.Writer) (code int, err error) {
	var o options
	f := flag.NewFlagSet("mutations", flag.ContinueOnError)
	f.StringVar(&o.match, "run", "", "only mutations whose name matches this `regexp`")
	f.BoolVar(&o.list, "list", false, "list the mutations")
	f.BoolVar(&o.check, "check", false, "only see whether each mutation still applies and compiles, and its tests are there")
	f.BoolVar(&o.write, "write", false, "write "+page+" from the lists")
	f.BoolVar(&o.all, "all", false, "run every named test of a mutation, not only up to the first that catches it")
	f.BoolVar(&o.whole, "whole", false, "run all tests of the package, to see which catch it")
	f.BoolVar(&o.asJSON, "json", false, "a JSON object for each mutation, and one for all, on stdout")
	f.BoolVar(&o.verbose, "v", false, "show what the tests said that caught a mutation, or all that the torture did")
	f.DurationVar(&o.timeout, "timeout", 2*time.Minute, "the longest that one test may take; a mutant that takes longer hangs, and is caught")
	f.IntVar(&o.seeds, "seeds", 0, "instead of the tests, play so many rounds of the torture in process, to see which oracles catch a mutation")
	f.IntVar(&o.rounds, "rounds", 0, "the same on a real broker")
	f.Uint64Var(&o.seed, "seed", 1, "of the first of those rounds")
	f.StringVar(&o.faults, "faults", "dead-letter,fail,kill,pause,poison,slow,stop,stuck,workers", "of the rounds on a real broker")
	f.SetOutput(progress)
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0, nil
	} else if err != nil {
		return 2, err
	}
	ms, err := load()
	if err != nil {
		return 2, err
	}
	match, err := regexp.Compile(o.match)
	if err != nil {
		return 2, fmt.Errorf("-run: %w", err)
	}
	all := ms
	ms = slices.DeleteFunc(slices.Clone(ms), func(m mutation) bool { return !match.MatchString(m.Name) })
	if len(ms) == 0 {
		return 2, fmt.Errorf("no mutation has a name that matches %q: -list names them", o.match)
	}
	t, err := findTree("synctests")
	if err != nil {
		return 2, err
	}
	switch {
	case o.list:
		for _, m := range ms {
			say(out, "%-34s %-8s %s\n", m.Name, m.Clause, m.What)
		}
		return 0, nil
	case o.write:
		return 0, os.WriteFile(filepath.Join(t.root, page), table(all), 0o644) //nolint:gosec // a page of the documentation
	case o.check:
		wrong, err := t.check(ms)
		if err != nil {
			return 2, err
		}
		for _, name := range slices.Sorted(maps.Keys(wrong)) {
			say(out, "%s: %v\n", name, wrong[name])
		}
		say(out, "%d mutations, %d wrong\n", len(ms), len(wrong))
		return min(len(wrong), 1), nil
	}
	if o.seeds > 0 || o.rounds > 0 {
		if o.verbose {
			o.log = progress
		}
		return o.play(ctx, t, ms, out)
	}
	return tryAll(ctx, t, ms, o, out, progress)
}

// summary is the last object of the JSON.
type summary struct {
	Mutations int      `json:"mutations"`
	Caught    int      `json:"caught"`
	Survived  []string `json:"survived"`
	Stale     []string `json:"stale"`
	Seconds   float64  `json:"seconds"`
}

func tryAll(ctx context.Context, t *tree, ms []mutation, o options, out, progress io.Writer) (code int, err error) {
	dir, err := os.MkdirTemp("", "mutations-")
	if err != nil {
		return 2, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &runner{tree: t, timeout: o.timeout, all: o.all, whole: o.whole, dir: dir}
	begun := time.Now()
	report := out
	if o.asJSON {
		report = progress
	}
	wrong, err := t.check(ms)
	if err != nil {
		return 2, err
	}
	s := summary{Mutations: len(ms), Survived: []string{}, Stale: []string{}}
	for _, m := range ms {
		if err := wrong[m.Name]; err != nil {
			s.Stale = append(s.Stale, m.Name)
			say(report, "%s: %v\n", m.Name, err)
		}
	}
	ms = slices.DeleteFunc(ms, func(m mutation) bool { return wrong[m.Name] != nil })
	say(report, "%d mutations: compiling\n", len(ms))
	if err := r.prepare(ctx, ms); err != nil {
		return 2, err
	}
	say(report, "their tests without any of them (%.0fs)\n", time.Since(begun).Seconds())
	if err := r.sound(ctx, ms); err != nil {
		return 2, err
	}
	for i, m := range ms {
		res := r.try(ctx, m, i+1)
		if ctx.Err() != nil {
			return 2, fmt.Errorf("interrupted after %d of %d", i, len(ms))
		}
		switch res.Verdict {
		case caught:
			s.Caught++
		case survived:
			s.Survived = append(s.Survived, m.Name)
		case stale:
			s.Stale = append(s.Stale, m.Name)
		}
		say(report, "%3d/%d %-8s %-34s %s (%.1fs)\n", i+1, len(ms), res.Verdict, m.Name, res.words(), res.Seconds)
		if o.verbose {
			say(report, "%s", res.output)
		}
		if o.asJSON {
			if err := json.NewEncoder(out).Encode(res); err != nil {
				return 2, err
			}
		}
	}
	s.Seconds = time.Since(begun).Seconds()
	say(report, "%d of %d caught in %.0fs; survived: %s; stale: %s\n", s.Caught, s.Mutations, s.Seconds, orNone(s.Survived), orNone(s.Stale))
	if o.asJSON {
		if err := json.NewEncoder(out).Encode(s); err != nil {
			return 2, err
		}
	}
	if s.Caught < s.Mutations {
		return 1, nil
	}
	return 0, nil
}

// words says by which tests a mutation was caught, and how where that is not by failing.
func (r *result) words() string {
	var w []string
	for _, name := range slices.Sorted(maps.Keys(r.Caught)) {
		if how := r.Caught[name]; how != byFailing {
			name += " (" + how + ")"
		}
		w = append(w, name)
	}
	for _, name := range r.Missed {
		w = append(w, "not by "+name)
	}
	if r.Error != "" {
		w = append(w, r.Error)
	}
	return strings.Join(w, ", ")
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}
