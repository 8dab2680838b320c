package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Each mutation still applies, compiles, and names tests that are there. Whether the tests catch it is for the command to say.
func TestMutationsApply(t *testing.T) {
	ms, err := load()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := findTree("synctests")
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := tr.check(ms)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range wrong {
		t.Errorf("%s: %v", name, err)
	}
	// And one function after the other, they all fit into one tree.
	c := combined{files: map[string]*variants{}}
	for i := range ms {
		if wrong[ms[i].Name] != nil {
			continue
		}
		changed, err := ms[i].files(tr.read)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.add(i+1, changed, tr.read); err != nil {
			t.Errorf("%s: %v", ms[i].Name, err)
		}
	}
	for file, text := range c.overlay() {
		if _, _, _, _, err := parseFile(text); err != nil {
			t.Errorf("%s with all its mutations: %v", file, err)
		}
	}
}

func TestPageIsUpToDate(t *testing.T) {
	ms, err := load()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := findTree("")
	if err != nil {
		t.Fatal(err)
	}
	got, err := tr.read(page)
	if err != nil || got != string(table(ms)) {
		t.Errorf("%s is not what the lists say (%v): go run ./integration/mutations -write", page, err)
	}
}

func TestListsThatAreWrong(t *testing.T) {
	head := "== a/b\nwrong\nclause: C1\ntest: ./p TestP\n"
	for text, want := range map[string]string{
		"file: x\n":                             "begins with ==",
		"== a/b\n-x\n":                          "no file was named",
		"== a/b\nwrong\nwronger\n":              "not known",
		"== a/b\nwrong\ntest: ./p\n":            "its tests are to be named",
		"== a/b\nwrong\ntries: none\n":          "a number",
		"== a/b\nwrong\n":                       "are missing",
		head:                                    "nothing is changed",
		head + "file: x\n a line\n":             "no change",
		head + "file: x\n+a line\n":             "no place",
		head + "file: x\n-a line\n+\ta  line\n": "",
	} {
		_, err := parse(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

const fixture = `package p

const limit = 3

type stack[T any] struct{ items []T }

func (s *stack[T]) push(items ...T) int {
	s.items = append(s.items, items...)
	return len(s.items)
}

type nothing struct{}

func (nothing) double(n int, _ string) (twice int) {
	twice = 2 * n
	return twice
}

func first[K comparable, V any](m map[K]V, k K) V { return m[k] }

func count(done func(int)) {
	for i := range limit {
		done(i)
	}
}

func unused() int { return 1 }
`

const fixtureTest = `package p

import "testing"

func TestPush(t *testing.T) {
	var s stack[int]
	if s.push(1, 2) != 2 {
		t.Fatal("wrong")
	}
}

func TestDouble(t *testing.T) {
	if (nothing{}).double(2, "") != 4 {
		t.Fatal("wrong")
	}
}

func TestFirst(t *testing.T) {
	if first(map[string]int{"a": 1}, "a") != 1 {
		t.Fatal("wrong")
	}
}

func TestCount(t *testing.T) {
	n := 0
	count(func(int) { n++ })
	if n != 3 {
		t.Fatal("wrong")
	}
}
`

const fixtureList = `
== p/variadic
a method with a type parameter and variadic ones
clause: C1
test: ./p TestPush
file: p/p.go
-return len(s.items)
+return len(items) + 1

== p/blank
a method whose receiver and parameter have no name
clause: C1
test: ./p TestPush TestDouble
file: p/p.go
-twice = 2 * n
+twice = 3 * n

== p/panics
a function with type parameters
clause: C1
test: ./p TestFirst
file: p/p.go
-func first[K comparable, V any](m map[K]V, k K) V { return m[k] }
+func first[K comparable, V any](m map[K]V, k K) V { panic(k) }

== p/hangs
a function without results
clause: C1
test: ./p TestCount
file: p/p.go
 for i := range limit {
+for range make(chan int) {
+}
 done(i)
 }

== p/constant
what is no function
clause: C1
test: ./p TestCount
file: p/p.go
-const limit = 3
+const limit = 4

== p/unseen
nobody looks
clause: C1
test: ./p TestPush TestCount
file: p/p.go
-func unused() int { return 1 }
+func unused() int { return 2 }
`

// Every kind of function can be mutated, and every way of being caught, or not, is told.
func TestVerdicts(t *testing.T) {
	t.Setenv("GOWORK", "off")
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module fixture\n\ngo 1.26\n", "p/p.go": fixture, "p/p_test.go": fixtureTest,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ms, err := parse(fixtureList)
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{root: root}
	if wrong, err := tr.check(ms); err != nil || len(wrong) > 0 {
		t.Fatal(wrong, err)
	}
	r := &runner{tree: tr, timeout: 10 * time.Second, all: true, dir: t.TempDir()}
	if err := r.prepare(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	if err := r.sound(t.Context(), ms); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"p/variadic": "TestPush", "p/blank": "TestDouble, not by TestPush", "p/panics": "TestFirst", "p/hangs": "TestCount (panic)",
		"p/constant": "TestCount", "p/unseen": "not by TestPush, not by TestCount",
	}
	for i, m := range ms {
		res := r.try(t.Context(), m, i+1)
		if words := res.words(); words != want[m.Name] && words != strings.ReplaceAll(want[m.Name], "(panic)", "(hang)") || (res.Verdict == survived) != (m.Name == "p/unseen") {
			t.Errorf("%s: %s %s, want %s", m.Name, res.Verdict, words, want[m.Name])
		}
	}

	gone := slices.Clone(ms[:2])
	gone[0].edits = []edit{{file: "p/p.go", old: []string{"return 0"}, new: []string{"return 1"}}}
	gone[1].edits = []edit{{file: "p/p.go", old: []string{"twice = 2 * n"}, new: []string{"twice = twice2"}}}
	wrong, err := tr.check(gone)
	if err != nil || len(wrong) != 2 || !strings.Contains(wrong["p/variadic"].Error(), "no longer applies") || !strings.Contains(wrong["p/blank"].Error(), "does not compile") {
		t.Errorf("%v, %v", wrong, err)
	}
	gone = slices.Clone(ms[:1])
	gone[0].Tests = []string{"TestGone"}
	if wrong, err := tr.check(gone); err != nil || wrong["p/variadic"] == nil {
		t.Errorf("%v, %v", wrong, err)
	}
}

// The flags say what is wrong with them.
func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-run", "("}, {"-run", "^nothing$"}, {"-nonsense"}} {
		var out, progress bytes.Buffer
		if code, _ := run(t.Context(), args, &out, &progress); code != 2 {
			t.Errorf("%v: exit %d", args, code)
		}
	}
	var out, progress bytes.Buffer
	if code, err := run(t.Context(), []string{"-list", "-run", "^tracker/torn"}, &out, &progress); code != 0 || err != nil || !strings.Contains(out.String(), "second reading") {
		t.Errorf("exit %d, %v: %s", code, err, out.String())
	}
}
