package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	for _, c := range []struct{ in, want string }{
		{"http://a/\nhttp://b/\n\nhttp://a/\n", "http://a/\nhttp://b/\n"},
		{"http://b/\nhttp://c/\n", "http://c/\n"},
		{strings.Repeat("http://c/\nhttp://d/\n", batchLinks), "http://d/\n"},
	} {
		var out strings.Builder
		if err := run(t.Context(), dir, strings.NewReader(c.in), &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("got %q, want %q", out.String(), c.want)
		}
	}
}
