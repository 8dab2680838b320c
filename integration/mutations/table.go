package main

import (
	"bytes"
	"fmt"
	"strings"
)

// page is where the table stands.
const page = "docs/proof-mutations.md"

// table is the page of the documentation that says which test catches which fault.
func table(ms []mutation) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Engines that are broken on purpose

Each of these %d faults is put into the engine, one at a time, by

    go run ./integration/mutations

which runs the tests beside it and fails if none of them does. The clauses are those of the delivery contract in
[`+"`engine/doc.go`"+`](../engine/doc.go). The faults themselves, line by line, are in
[`+"`integration/mutations/lists`"+`](../integration/mutations/lists).

<!-- Written by: go run ./integration/mutations -write -->
`, len(ms))
	group := ""
	for _, m := range ms {
		if g, _, _ := strings.Cut(m.Name, "/"); g != group {
			group = g
			fmt.Fprintf(&b, "\n## %s\n\n| name | what is wrong | clause | caught by |\n|---|---|---|---|\n", group)
		}
		_, name, _ := strings.Cut(m.Name, "/")
		var tests []string
		for _, t := range m.Tests {
			tests = append(tests, "`"+t+"`")
		}
		by := strings.Join(tests, ", ")
		if m.Pkg != "./"+group {
			by += " in `" + strings.TrimPrefix(m.Pkg, "./") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, strings.ReplaceAll(m.What, "|", `\|`), m.Clause, by)
	}
	return b.Bytes()
}
