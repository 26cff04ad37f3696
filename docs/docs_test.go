// Package docs_test keeps the documents and the code together: what a document
// shows is run, and what it names has to exist.
package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the top of the repository.
const root = ".."

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// blocks returns the fenced blocks of a document in a language.
func blocks(text, language string) (found []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

// block returns the one fenced block that holds a text.
func block(t testing.TB, text, language, holds string) string {
	t.Helper()
	var found []string
	for _, b := range blocks(text, language) {
		if strings.Contains(b, holds) {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks of %q hold %q, want one", len(found), language, holds)
	}
	return found[0]
}

// table returns the rows of the table under a header line, their cells
// trimmed.
func table(t testing.TB, text, header string) (rows [][]string) {
	t.Helper()
	_, rest, ok := strings.Cut(text, header+"\n")
	if !ok {
		t.Fatalf("no table %q", header)
	}
	for i, line := range strings.Split(rest, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if i == 0 {
			continue // the rule under the header
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for j := range cells {
			cells[j] = strings.TrimSpace(cells[j])
		}
		rows = append(rows, cells)
	}
	return rows
}

// command runs a program in a directory and returns its stdout.
func command(t testing.TB, dir, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}
