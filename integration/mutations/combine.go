package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Compiling an engine for each mutation would take an hour. So all of them go into one: a function that some mutation changes gets a
// copy beside it for each of them, and calls that where the environment names the mutation.

// selector is the variable that says which mutation a mutant is, and the name of its environment variable.
const (
	selector    = "gaplessMutant"
	selectorEnv = "GAPLESS_MUTANT"
)

// combined are files of the tree with many mutations in them.
type combined struct {
	files map[string]*variants // by path from the root
}

// variants are the copies of a file's functions.
type variants struct {
	text  string
	funcs map[string]*function
	list  []*function // in the order of the file
	pkg   string
	added strings.Builder
}

// function is a function as it stands in a file's text.
type function struct {
	decl    *ast.FuncDecl
	from    int // of decl in the text
	text    string
	numbers []int // of the mutations that change it
}

// parseFile finds the functions of a file. rest is what is no function.
func parseFile(text string) (fs map[string]*function, list []*function, pkg, rest string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, "", "", err
	}
	fs = map[string]*function{}
	at := 0
	for _, d := range f.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok || decl.Body == nil {
			continue
		}
		from, to := fset.Position(decl.Pos()).Offset, fset.Position(decl.End()).Offset
		fn := &function{decl: decl, from: from, text: text[from:to]}
		fs[fn.id(text)] = fn
		list = append(list, fn)
		rest += text[at:from]
		at = to
	}
	return fs, list, f.Name.Name, rest + text[at:], nil
}

// at is a place of the file relative to the function.
func (f *function) at(p token.Pos) int { return int(p - f.decl.Pos()) }

// id names a function with its receiver.
func (f *function) id(string) string {
	name := f.decl.Name.Name
	if r := f.decl.Recv; r != nil {
		name = f.text[f.at(r.Pos()):f.at(r.End())] + name
	}
	return name
}

// add puts in a mutation of which only functions differ from the tree. It says whether that is so.
func (c *combined) add(number int, changed map[string]string, read func(string) (string, error)) (bool, error) {
	type change struct {
		v     *variants
		id    string
		other *function
	}
	var changes []change
	for file, text := range changed {
		v := c.files[file]
		if v == nil {
			orig, err := read(file)
			if err != nil {
				return false, err
			}
			v = &variants{text: orig}
			if v.funcs, v.list, v.pkg, _, err = parseFile(orig); err != nil {
				return false, err
			}
		}
		_, _, _, rest, err := parseFile(v.text)
		if err != nil {
			return false, err
		}
		funcs, _, _, otherRest, err := parseFile(text)
		if err != nil {
			return false, err
		}
		if rest != otherRest || len(funcs) != len(v.funcs) {
			return false, nil
		}
		for id, f := range funcs {
			if was := v.funcs[id]; was == nil {
				return false, nil
			} else if was.text != f.text {
				changes = append(changes, change{v, id, f})
			}
		}
		c.files[file] = v
	}
	for _, x := range changes {
		was := x.v.funcs[x.id]
		was.numbers = append(was.numbers, number)
		fmt.Fprintf(&x.v.added, "\n%s\n", x.other.renamed(number))
	}
	return true, nil
}

func variantName(name string, number int) string { return fmt.Sprintf("%s__%d", name, number) }

// renamed is the text of the function under the name of its variant.
func (f *function) renamed(number int) string {
	name := f.decl.Name
	return f.text[:f.at(name.Pos())] + variantName(name.Name, number) + f.text[f.at(name.End()):]
}

// dispatched is the text of the function with calls of its variants at its start.
func (f *function) dispatched() string {
	var args []string
	insert := map[int]string{}       // at a place of the text
	replace := map[int]string{}      // a blank name at a place
	name := func(field *ast.Field) { // gives the parameters of a field names that can be passed on
		_, variadic := field.Type.(*ast.Ellipsis)
		pass := func(n string) {
			if variadic {
				n += "..."
			}
			args = append(args, n)
		}
		if len(field.Names) == 0 {
			n := fmt.Sprintf("arg%d_", len(args))
			insert[f.at(field.Type.Pos())] = n + " "
			pass(n)
		}
		for _, id := range field.Names {
			n := id.Name
			if n == "_" {
				n = fmt.Sprintf("arg%d_", len(args))
				replace[f.at(id.Pos())] = n
			}
			pass(n)
		}
	}
	callee := ""
	if r := f.decl.Recv; r != nil {
		name(r.List[0])
		callee, args = args[0]+".", nil
	}
	receiver := len(args)
	for _, field := range f.decl.Type.Params.List {
		name(field)
	}
	args = args[receiver:]
	var types string
	if tp := f.decl.Type.TypeParams; tp != nil {
		var names []string
		for _, field := range tp.List {
			for _, id := range field.Names {
				names = append(names, id.Name)
			}
		}
		types = "[" + strings.Join(names, ", ") + "]"
	}
	var calls strings.Builder
	fmt.Fprintf(&calls, "\nswitch %s {\n", selector)
	for _, n := range f.numbers {
		call := fmt.Sprintf("%s%s%s(%s)", callee, variantName(f.decl.Name.Name, n), types, strings.Join(args, ", "))
		if f.decl.Type.Results != nil {
			fmt.Fprintf(&calls, "case %d:\nreturn %s\n", n, call)
		} else {
			fmt.Fprintf(&calls, "case %d:\n%s\nreturn\n", n, call)
		}
	}
	calls.WriteString("}\n")
	insert[f.at(f.decl.Body.Lbrace)+1] = calls.String()

	var out strings.Builder
	at := 0
	for _, p := range slices.Sorted(maps.Keys(mergeKeys(insert, replace))) {
		out.WriteString(f.text[at:p])
		at = p
		if n, ok := replace[p]; ok {
			out.WriteString(n)
			at++ // the blank
		}
		out.WriteString(insert[p])
	}
	out.WriteString(f.text[at:])
	return out.String()
}

func mergeKeys(a, b map[int]string) map[int]string {
	m := maps.Clone(a)
	for k := range b {
		if _, ok := m[k]; !ok {
			m[k] = ""
		}
	}
	return m
}

// overlay is what the compiler is to see in the place of the tree's files, and the files that are new.
func (c *combined) overlay() map[string]string {
	out := map[string]string{}
	for file, v := range c.files {
		var b strings.Builder
		at := 0
		for _, f := range v.list {
			if len(f.numbers) == 0 {
				continue
			}
			b.WriteString(v.text[at:f.from])
			b.WriteString(f.dispatched())
			at = f.from + len(f.text)
		}
		b.WriteString(v.text[at:])
		b.WriteString(v.added.String())
		out[file] = b.String()
		out[filepath.ToSlash(filepath.Join(filepath.Dir(file), "mutant_selector.go"))] = fmt.Sprintf(`package %s

import (
	"os"
	"strconv"
)

var %s = func() int { n, _ := strconv.Atoi(os.Getenv(%q)); return n }()
`, v.pkg, selector, selectorEnv)
	}
	return out
}
