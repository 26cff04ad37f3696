package main

// How a run ends that somebody else ends.

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"dedupstore/store"
)

// TestInterruptedSays wants each verb that takes long to say how far it came.
// Here it came nowhere; TestFilterInterrupted and TestEachBatchEnds go further.
func TestInterruptedSays(t *testing.T) {
	dir, list := filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "list")
	filterAll(t, dir, "a\nb\n")
	write(t, list, "c\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		args string
		want string // on stderr, at its end
	}{
		{"filter LIST", `interrupted before the first line was done; run it again to go on`},
		{"import LIST", `interrupted before the first line was done; run it again to go on`},
		{"verify --deep", `interrupted at 0 %; run it again; it begins anew`},
		{"expire", `interrupted before any URLs were dropped; run it again to go on`},
		{"compact", `interrupted at [0-9]+ tables, [0-9]+ at first; run it again to go on`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(tc.args, "LIST", list) + " --store " + dir)
			var out, stderr bytes.Buffer
			code := runUntil(ctx, args, strings.NewReader(""), &out, &stderr)
			if code != 130 || !regexp.MustCompile(`(?m)^dedupstore: `+tc.want+`\n\z`).MatchString(stderr.String()) {
				t.Errorf("exit code %d, %s, want 130 and %q", code, &stderr, tc.want)
			}
			if out.Len() > 0 {
				t.Errorf("it prints %q", &out)
			}
		})
	}
	if got := filterAll(t, dir, "a\nb\nc\n"); got != "c\n" {
		t.Errorf("then filter prints %q", got)
	}
}

// TestInterruptedExpire names what is done and what is left.
func TestInterruptedExpire(t *testing.T) {
	st := store.Stats{}
	st.Expiry.DroppedURLs = 12_345
	err := interruptedExpire(st, 1000)
	if want := "interrupted after 12,345 URLs were dropped, with 1,000 left"; !errors.Is(err, errInterrupted) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestNobodyReads ends each verb quietly where nobody reads its output.
func TestNobodyReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	filterAll(t, dir, "a\n", "--namespace", "n")
	for _, args := range []string{
		"filter", "filter --verdicts", "filter --dry-run", "filter --seen-to /dev/stdout -n n", "add a", "check a", "check b",
		"namespaces", "stats", "stats --json", "verify", "verify --json", "inspect store", "inspect registry",
		"repair", "expire", "compact", "grow --urls 5", "forget b", "version",
		"help", "filter --help", "completion bash", "completion fish",
	} {
		t.Run(args, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			defer w.Close()
			cmd := exec.CommandContext(t.Context(), "dedupstore", append(strings.Fields(args), "--store", dir, "--quiet")...)
			var stderr bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("a\n"), w, &stderr
			if code := exitCode(t, cmd.Run()); code != exitOK || stderr.Len() > 0 {
				t.Errorf("exit code %d, %s", code, &stderr)
			}
		})
	}
}
