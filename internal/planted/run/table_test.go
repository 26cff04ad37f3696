package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTable checks that the table names every constant of package planted, in
// both of its forms and with the right value of the environment variable, and
// that every test it names is there.
func TestTable(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	on := constants(t, filepath.Join("..", "on.go"))
	off := constants(t, filepath.Join("..", "off.go"))
	rows := map[string]bool{}
	for _, row := range table {
		rows[row.constant] = true
		if on[row.constant] != row.fault {
			t.Errorf("%s: the table says %q, on.go %q", row.constant, row.fault, on[row.constant])
		}
		if !hasTest(t, filepath.Join(root, row.pkg), row.test) {
			t.Errorf("%s: there is no %s in %s", row.constant, row.test, row.pkg)
		}
	}
	for name := range on {
		if !rows[name] {
			t.Errorf("no row of the table has %s", name)
		}
		if _, ok := off[name]; !ok {
			t.Errorf("%s is in on.go and not in off.go", name)
		}
	}
	for name := range off {
		if _, ok := on[name]; !ok {
			t.Errorf("%s is in off.go and not in on.go", name)
		}
	}
}

// constants returns the exported names of a file, and the string in the
// expression of each.
func constants(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			values, ok := spec.(*ast.ValueSpec)
			if !ok || !values.Names[0].IsExported() {
				continue
			}
			names[values.Names[0].Name] = ""
			ast.Inspect(values.Values[0], func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					names[values.Names[0].Name] = strings.Trim(lit.Value, `"`)
				}
				return true
			})
		}
	}
	return names
}

// hasTest reports whether a package has a test of that name.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(src), "\nfunc "+name+"(t *testing.T) {") {
			return true
		}
	}
	return false
}
