package docs_test

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// buildCommand builds the command and returns its path.
func buildCommand(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dedupstore")
	command(t, root, "", "go", "build", "-o", path, "./cmd/dedupstore")
	return path
}

// TestReadmeCommand compares README's tables with what the command says of
// itself, which a test of its own compares with its flags.
func TestReadmeCommand(t *testing.T) {
	readme := read(t, "README.md")
	path := buildCommand(t)
	help := command(t, root, "", path, "help")

	var codes []string
	_, text, _ := strings.Cut(help, "Exit codes:\n\n")
	text, _, _ = strings.Cut(text, "\n\n")
	for line := range strings.Lines(text) {
		code, meaning, _ := strings.Cut(strings.TrimSpace(line), " ")
		codes = append(codes, code+" "+strings.TrimSpace(meaning))
	}
	var documented []string
	for _, row := range table(t, readme, "| exit code | |") {
		documented = append(documented, row[0]+" "+row[1])
	}
	if !slices.Equal(documented, codes) {
		t.Errorf("exit codes are %q, the command says %q", documented, codes)
	}

	commands := map[string]string{}
	for _, row := range table(t, readme, "| command | |") {
		commands[strings.Fields(strings.Trim(row[0], "`"))[0]] = strings.Trim(row[0], "`")
	}
	want := map[string][]string{} // flag: commands
	for name, synopsis := range commands {
		usage := command(t, root, "", path, "help", name)
		if !strings.HasPrefix(usage, "Usage: dedupstore "+synopsis+"\n") {
			t.Errorf("%q is not the synopsis of %s", synopsis, name)
		}
		for line := range strings.Lines(usage) {
			if flag, ok := strings.CutPrefix(line, "    --"); ok {
				flag, _, _ = strings.Cut(flag, "  ")
				want[flag] = append(want[flag], name)
			}
		}
	}
	for line := range strings.Lines(help) {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "    dedupstore ") || words[1] == "completion" || words[1] == "help" {
			continue
		}
		if _, ok := commands[words[1]]; !ok {
			t.Errorf("README does not name the command %s", words[1])
		}
	}
	got := map[string][]string{}
	for _, row := range table(t, readme, "| flag | commands | |") {
		names := strings.Fields(row[1])
		if names[0] == "all" { // or "all but canon"
			but := append(names[1:], "version")
			names = slices.DeleteFunc(slices.Collect(maps.Keys(commands)), func(name string) bool { return slices.Contains(but, name) })
		}
		got[strings.Trim(row[0], "`-")] = names
	}
	for flag := range maps.Keys(want) {
		slices.Sort(want[flag])
		slices.Sort(got[flag])
		if !slices.Equal(got[flag], want[flag]) {
			t.Errorf("README gives --%s to %v, the command to %v", flag, got[flag], want[flag])
		}
	}
	for flag := range maps.Keys(got) {
		if want[flag] == nil {
			t.Errorf("README names --%s, which no command takes", flag)
		}
	}
}

// storeAPI returns the exported functions and methods of package store, and
// its exported errors.
func storeAPI(t testing.TB) (funcs, errs []string) {
	t.Helper()
	fset := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(root, "store", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				d.Body, d.Doc = nil, nil
				var b strings.Builder
				if err := printer.Fprint(&b, fset, d); err != nil {
					t.Fatal(err)
				}
				funcs = append(funcs, b.String())
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
						for _, name := range v.Names {
							if strings.HasPrefix(name.Name, "Err") {
								errs = append(errs, name.Name)
							}
						}
					}
				}
			}
		}
	}
	return funcs, errs
}

// TestReadmeAPI compares the signatures and errors that README lists with the
// code's: all of Store's methods, and functions that exist.
func TestReadmeAPI(t *testing.T) {
	readme := read(t, "README.md")
	funcs, errs := storeAPI(t)
	var listed []string
	for line := range strings.Lines(block(t, readme, "go", "type Store")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "func ") {
			listed = append(listed, line)
		}
	}
	for _, f := range listed {
		if !slices.Contains(funcs, f) {
			t.Errorf("README lists %q, which is not in the code", f)
		}
	}
	method := regexp.MustCompile(`^func \(s \*Store\) [A-Z]`)
	for _, f := range funcs {
		if method.MatchString(f) && !slices.Contains(listed, f) {
			t.Errorf("README does not list %q", f)
		}
	}
	named := regexp.MustCompile("`(Err[A-Z][A-Za-z]+)`").FindAllStringSubmatch(readme, -1)
	var names []string
	for _, m := range named {
		names = append(names, m[1])
	}
	slices.Sort(names)
	slices.Sort(errs)
	if names = slices.Compact(names); !slices.Equal(names, errs) {
		t.Errorf("README names %v, the code has %v", names, errs)
	}
}
