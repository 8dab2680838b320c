package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tree is the source that mutations are put into.
type tree struct {
	root     string
	tags     string
	fset     *token.FileSet
	pkgs     map[string]*listed // by import path
	files    map[string]*ast.File
	outlines map[string]*ast.File // files without the bodies of their functions
	imp      types.Importer
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Error                   *struct{ Err string }
}

// findTree looks for the root of the tree that the working directory is in.
func findTree(tags string) (*tree, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.work")); err == nil {
			return &tree{root: at, tags: tags}, nil
		}
		if at == filepath.Dir(at) {
			return nil, fmt.Errorf("no go.work in %s or above: run this in the tree", dir)
		}
	}
}

func (t *tree) read(file string) (string, error) {
	b, err := os.ReadFile(filepath.Join(t.root, file))
	return string(b), err
}

// list has go say what the packages are made of, and where the compiled forms of what they import lie.
func (t *tree) list(dirs []string) error {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-tags", t.tags, "-json=ImportPath,Dir,Export,GoFiles,Error"}, dirs...)...)
	cmd.Dir, cmd.Stderr = t.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	t.pkgs, t.files, t.outlines, t.fset = map[string]*listed{}, map[string]*ast.File{}, map[string]*ast.File{}, token.NewFileSet()
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listed{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		t.pkgs[p.ImportPath] = p
	}
	t.imp = importer.ForCompiler(t.fset, "gc", func(path string) (io.ReadCloser, error) {
		p := t.pkgs[path]
		if p == nil || p.Export == "" {
			return nil, fmt.Errorf("%s is not compiled", path)
		}
		return os.Open(p.Export)
	})
	return nil
}

// at is the package in a directory.
func (t *tree) at(dir string) *listed {
	for _, p := range t.pkgs {
		if p.Dir == dir {
			return p
		}
	}
	return nil
}

// check finds the mutations that do not apply any more, do not compile, or name tests that are not there. Compiling is left to
// the type checker, which takes the packages that are not changed from the build cache: that makes it fast enough for every change.
func (t *tree) check(ms []mutation) (wrong map[string]error, err error) {
	dirs := map[string]bool{}
	for _, m := range ms {
		for _, e := range m.edits {
			dirs["./"+filepath.ToSlash(filepath.Dir(e.file))] = true
		}
	}
	var all []string
	for d := range dirs {
		all = append(all, d)
	}
	slices.Sort(all)
	if err := t.list(all); err != nil {
		return nil, err
	}
	wrong = map[string]error{}
	tests := map[string]string{}
	for i := range ms {
		m := &ms[i]
		if err := t.compiles(m); err != nil {
			wrong[m.Name] = err
		} else if err := t.hasTests(m, tests); err != nil {
			wrong[m.Name] = err
		}
	}
	return wrong, nil
}

// compiles type-checks the packages that a mutation changes. Where it changes nothing but the bodies of functions, the bodies in other files
// are what they were, and are left out. Of what a compiler would say only this is missed: that a variable has come to need itself by way of one.
func (t *tree) compiles(m *mutation) error {
	changed, err := m.files(t.read)
	if err != nil {
		return fmt.Errorf("it no longer applies: %w", err)
	}
	dirs := map[string]bool{}
	within := true
	for file, text := range changed {
		dirs[filepath.Join(t.root, filepath.Dir(file))] = true
		was, err := t.read(file)
		if err != nil {
			return err
		}
		within = within && outside(was) == outside(text)
	}
	for dir := range dirs {
		p := t.at(dir)
		if p == nil {
			return fmt.Errorf("%s has no package", dir)
		}
		var files []*ast.File
		whole := map[string]bool{} // files of which all is there
		for _, name := range p.GoFiles {
			path := filepath.Join(dir, name)
			rel, _ := filepath.Rel(t.root, path)
			text := changed[filepath.ToSlash(rel)]
			whole[path] = text != "" || !within
			f, err := t.parsed(path, text, !whole[path])
			if err != nil {
				return fmt.Errorf("it does not compile: %w", err)
			}
			files = append(files, f)
		}
		var wrong error
		conf := types.Config{Importer: t.imp, Error: func(err error) {
			var te types.Error
			if wrong == nil && (!errors.As(err, &te) || whole[te.Fset.Position(te.Pos).Filename]) {
				wrong = fmt.Errorf("it does not compile: %w", err)
			}
		}}
		_, _ = conf.Check(p.ImportPath, t.fset, files, nil) // an outline has imports that it does not use: what counts went to Error
		if wrong != nil {
			return wrong
		}
	}
	return nil
}

// outside is the text of a file without the bodies of its functions; all of it if that is no Go.
func outside(text string) string {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return text
	}
	var out strings.Builder
	at := 0
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			out.WriteString(text[at:fset.Position(fn.Body.Lbrace).Offset])
			at = fset.Position(fn.Body.Rbrace).Offset
		}
	}
	return out.String() + text[at:]
}

// parsed is a file of the tree, or its outline, or what a mutation has made of it.
func (t *tree) parsed(path, changed string, outline bool) (*ast.File, error) {
	if changed != "" {
		return parser.ParseFile(t.fset, path, changed, parser.SkipObjectResolution)
	}
	cache := t.files
	if outline {
		cache = t.outlines
	}
	if f := cache[path]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(t.fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if outline {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				fn.Body = nil
			}
		}
	}
	cache[path] = f
	return f, nil
}

// hasTests looks for the tests that a mutation names. cache holds the text of the test files by package.
func (t *tree) hasTests(m *mutation, cache map[string]string) error {
	if _, ok := cache[m.Pkg]; !ok {
		names, err := filepath.Glob(filepath.Join(t.root, m.Pkg, "*_test.go"))
		if err != nil {
			return err
		}
		var text strings.Builder
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text.Write(b)
			text.WriteByte('\n')
		}
		cache[m.Pkg] = text.String()
	}
	for _, name := range m.Tests {
		if !strings.Contains(cache[m.Pkg], "\nfunc "+name+"(") {
			return fmt.Errorf("%s has no test %s", m.Pkg, name)
		}
	}
	return nil
}
