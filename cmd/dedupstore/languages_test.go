package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// TestPythonOfREADME runs the example of README as it stands there, twice: the
// second time nothing is new.
func TestPythonOfREADME(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)\n### From other languages\n.*?\n```python\n(.*?)```\n").FindSubmatch(readme)
	if found == nil {
		t.Fatal("README has no Python example")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NOT TESTED: there is no python3 on this machine to run the example of README")
	}
	dir := t.TempDir()
	for _, want := range []string{"fetch https://example.com/\nfetch https://example.com/about\n", ""} {
		cmd := exec.CommandContext(t.Context(), python, "-")
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(found[1])
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || stderr.Len() > 0 || string(out) != want {
			t.Errorf("%v, it prints %q, want %q; stderr:\n%s", err, out, want, &stderr)
		}
	}
}
