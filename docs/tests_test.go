package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`([a-z]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]+)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9_]+)\(`)
)

// TestNamedTests looks for every test that the documents name, as
// `package.TestName`, in the directory of that name.
func TestNamedTests(t *testing.T) {
	have := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllStringSubmatch(string(b), -1) {
			have[filepath.Base(filepath.Dir(path))+"."+m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, path := range documents(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testName.FindAllStringSubmatch(string(b), -1) {
			named++
			if !have[m[1]+"."+m[2]] {
				t.Errorf("%s names %s.%s, which there is not", path, m[1], m[2])
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test")
	}
}
