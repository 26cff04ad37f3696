package docs_test

import (
	"strings"
	"testing"
)

// TestImports holds the direction of dependencies, tests aside: cmd -> store ->
// wal, mmapfilter, counting and Pebble; cmd -> urlkey.
func TestImports(t *testing.T) {
	const format = `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`
	for line := range strings.Lines(command(t, root, "", "go", "list", "-f", format, "./...")) {
		fields := strings.Fields(line)
		of, imports := fields[0], fields[1:]
		for _, path := range imports {
			if reason := wrongImport(of, path); reason != "" {
				t.Errorf("%s imports %s: %s", of, path, reason)
			}
		}
	}
}

// wrongImport says why a package may not import another, or "".
func wrongImport(of, path string) string {
	const (
		module = "dedupstore/"
		pebble = "github.com/cockroachdb/pebble/v2"
	)
	if of == "dedupstore/fuzz" || of == "dedupstore/internal/crashfs" {
		return "" // they import all, and only tests import them
	}
	leaf := of == "dedupstore/wal" || of == "dedupstore/mmapfilter" || of == "dedupstore/counting" ||
		of == "dedupstore/urlkey"
	switch {
	case strings.HasPrefix(path, "dedupstore/fuzz"), path == "dedupstore/internal/crashfs":
		return "only tests import what is for tests"
	case leaf && strings.HasPrefix(path, module) && path != "dedupstore/internal/planted":
		return "a leaf imports nothing of ours but the planted faults"
	case strings.HasPrefix(path, "dedupstore/cmd/"):
		return "nothing imports a command"
	case path == "dedupstore/internal/seam" && of != "dedupstore/store":
		return "only the store has seams"
	case path == pebble+"/vfs" && (of == "dedupstore/wal" || of == "dedupstore/internal/seam"):
		return ""
	case strings.HasPrefix(path, pebble) && of != "dedupstore/store":
		return "only the store sees Pebble"
	}
	return ""
}

// TestWrongImport shows that the rules can be broken.
func TestWrongImport(t *testing.T) {
	const pebble = "github.com/cockroachdb/pebble/v2"
	for _, c := range []struct {
		of, path string
		wrong    bool
	}{
		{"dedupstore/wal", "dedupstore/internal/planted", false},
		{"dedupstore/wal", pebble + "/vfs", false},
		{"dedupstore/wal", pebble, true},
		{"dedupstore/wal", "dedupstore/mmapfilter", true},
		{"dedupstore/mmapfilter", "dedupstore/store", true},
		{"dedupstore/counting", "dedupstore/mmapfilter", true},
		{"dedupstore/urlkey", "dedupstore/store", true},
		{"dedupstore/counting", "dedupstore/internal/planted", false},
		{"dedupstore/mmapfilter", pebble + "/vfs", true},
		{"dedupstore/store", pebble + "/sstable", false},
		{"dedupstore/store", "dedupstore/cmd/dedupstore", true},
		{"dedupstore/cmd/dedupstore", "dedupstore/store", false},
		{"dedupstore/cmd/dedupstore", pebble, true},
		{"dedupstore/cmd/dedupstore", "dedupstore/fuzz", true},
		{"dedupstore/store", "dedupstore/internal/crashfs", true},
		{"dedupstore/internal/crashfs", pebble + "/vfs", false},
		{"dedupstore/cmd/dedupstore", "dedupstore/internal/seam", true},
	} {
		if got := wrongImport(c.of, c.path); (got != "") != c.wrong {
			t.Errorf("%s imports %s: %q, want wrong=%v", c.of, c.path, got, c.wrong)
		}
	}
}
