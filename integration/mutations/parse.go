package main

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// mutation is one deliberate fault.
type mutation struct {
	Name   string   `json:"name"`   // package/words
	What   string   `json:"what"`   // is wrong in the engine that has it
	Clause string   `json:"clause"` // of the contract that it breaks
	Pkg    string   `json:"package"`
	Tests  []string `json:"tests"`         // that are to catch it, in Pkg
	Env    []string `json:"env,omitempty"` // for the tests
	Tries  int      `json:"tries"`         // a race does not come each time: so often each test is run, at most
	edits  []edit
}

// edit replaces lines of a file. Lines are compared without the space around them.
type edit struct {
	file     string // from the root of the tree
	old, new []string
}

//go:embed lists/*.txt
var lists embed.FS

// load reads all mutations. The form of a list, where # begins a comment:
//
//	== engine/commit-position
//	the offset committed is the position, not the frontier
//	clause: C1
//	test: ./engine TestCommitStaysBelowTheUnfinished TestRevokeGivesUpTheQueue
//	env: GAPLESS_KILLS=16
//	tries: 20
//	file: engine/offer.go
//	 a line that stays, by which the place is found
//	-a line that goes
//	+a line that comes
//
// A file line begins a place to change, and there may be several. The lines that stay and go must be in the file at exactly one place.
func load() ([]mutation, error) {
	var all []mutation
	names, err := fs.Glob(lists, "lists/*.txt")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := lists.ReadFile(name)
		if err != nil {
			return nil, err
		}
		ms, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%w", name, err)
		}
		all = append(all, ms...)
	}
	seen := map[string]bool{}
	for _, m := range all {
		if seen[m.Name] {
			return nil, fmt.Errorf("two mutations have the name %s", m.Name)
		}
		seen[m.Name] = true
	}
	return all, nil
}

func parse(text string) (all []mutation, err error) {
	var m *mutation
	for i, line := range strings.Split(text, "\n") {
		fail := func(what string) error { return fmt.Errorf("%d: %s: %q", i+1, what, line) }
		if name, ok := strings.CutPrefix(line, "== "); ok {
			all = append(all, mutation{Name: strings.TrimSpace(name), Tries: 1})
			m = &all[len(all)-1]
			continue
		}
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		if m == nil {
			return nil, fail("a mutation begins with == and its name")
		}
		if strings.ContainsRune(" \t-+", rune(line[0])) {
			if len(m.edits) == 0 {
				return nil, fail("no file was named")
			}
			m.edits[len(m.edits)-1].add(line[0], strings.TrimSpace(line[1:]))
			continue
		}
		word, rest, _ := strings.Cut(line, ": ")
		switch rest = strings.TrimSpace(rest); {
		case word == "clause":
			m.Clause = rest
		case word == "test":
			m.Tests = strings.Fields(rest)
			if len(m.Tests) < 2 {
				return nil, fail("a package and its tests are to be named")
			}
			m.Pkg, m.Tests = m.Tests[0], m.Tests[1:]
		case word == "env":
			m.Env = strings.Fields(rest)
		case word == "tries":
			if m.Tries, err = strconv.Atoi(rest); err != nil || m.Tries < 1 {
				return nil, fail("a number above 0 is due")
			}
		case word == "file":
			m.edits = append(m.edits, edit{file: rest})
		case m.What == "":
			m.What = strings.TrimSpace(line)
		default:
			return nil, fail("not known")
		}
	}
	for i := range all {
		if err := all[i].complete(); err != nil {
			return nil, fmt.Errorf(" %s: %w", all[i].Name, err)
		}
	}
	return all, nil
}

func (e *edit) add(kind byte, line string) {
	if kind != '+' {
		e.old = append(e.old, line)
	}
	if kind != '-' {
		e.new = append(e.new, line)
	}
}

func (m *mutation) complete() error {
	switch {
	case m.What == "" || m.Clause == "" || m.Pkg == "":
		return fmt.Errorf("what is wrong, the clause or the tests are missing")
	case len(m.edits) == 0:
		return fmt.Errorf("nothing is changed")
	}
	for _, e := range m.edits {
		if len(e.old) == 0 || slices.Equal(e.old, e.new) {
			return fmt.Errorf("%s: no place, or no change", e.file)
		}
	}
	return nil
}

// files are those that the mutation changes, as they are with it. read returns a file of the tree.
func (m *mutation) files(read func(file string) (string, error)) (map[string]string, error) {
	changed := map[string]string{}
	for _, e := range m.edits {
		text, ok := changed[e.file]
		if !ok {
			var err error
			if text, err = read(e.file); err != nil {
				return nil, err
			}
		}
		text, err := e.apply(text)
		if err != nil {
			return nil, err
		}
		changed[e.file] = text
	}
	return changed, nil
}

func (e *edit) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	at, places := 0, 0
	for i := 0; i+len(e.old) <= len(lines); i++ {
		if slices.EqualFunc(e.old, lines[i:i+len(e.old)], func(old, line string) bool { return old == strings.TrimSpace(line) }) {
			at = i
			places++
		}
	}
	if places != 1 {
		return "", fmt.Errorf("%s has %d places with the lines\n\t%s", e.file, places, strings.Join(e.old, "\n\t"))
	}
	return strings.Join(slices.Replace(lines, at, at+len(e.old), e.new...), "\n"), nil
}
