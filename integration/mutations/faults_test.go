package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// faultsPage lists what went wrong for users of other engines and clients, and the tests that keep it out.
const faultsPage = "docs/proof-faults.md"

// testDocs are the doc comments of the functions in a package's test files, each as one line, by name.
func testDocs(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]string{}
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				docs[fn.Name.Name] = strings.ReplaceAll(fn.Doc.Text(), "\n", " ")
			}
		}
	}
	return docs
}

// Each fault of the page has its tests, each of these names the source, and one of them names the clauses. And what a test names is on the
// page.
func TestFaultsHaveTheirTests(t *testing.T) {
	tr, err := findTree("")
	if err != nil {
		t.Fatal(err)
	}
	text, err := tr.read(faultsPage)
	if err != nil {
		t.Fatal(err)
	}
	docs := map[string]map[string]string{} // by package
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 4 || cells[0] == " source" {
			continue
		}
		rows++
		source, _, _ := strings.Cut(strings.TrimSpace(cells[0]), ", #")
		if first, _, more := strings.Cut(source, ", "); more && !strings.HasPrefix(source, "twmb/franz-go, where") {
			source = first
		}
		clauses := map[string]bool{}
		for _, c := range strings.Split(strings.TrimSpace(cells[2]), ", ") {
			clauses[c] = true
		}
		for _, part := range strings.Split(strings.TrimSpace(cells[3]), "; ") {
			names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(part, -1)
			if len(names) < 2 {
				t.Errorf("%s: no tests in %q", source, part)
				continue
			}
			for _, n := range names[1:] {
				pkg := names[0][1]
				if docs[pkg] == nil {
					docs[pkg] = testDocs(t, filepath.Join(tr.root, pkg))
				}
				doc := docs[pkg][n[1]]
				if !strings.Contains(doc, source) {
					t.Errorf("%s: %s in %s does not name it: %q", source, n[1], pkg, doc)
				}
				for c := range clauses {
					if strings.Contains(doc, c) {
						delete(clauses, c)
					}
				}
			}
		}
		if len(clauses) > 0 {
			t.Errorf("%s: no test of it names %v", source, slices.Sorted(maps.Keys(clauses)))
		}
	}
	if rows < 40 {
		t.Errorf("%d rows were read", rows)
	}
}
