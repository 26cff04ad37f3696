package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestCompletionScripts wants a script for each shell, which the shell takes if
// it is on this machine.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []struct {
		name string
		has  string
		read []string // a command that parses a script and does nothing
	}{
		{"bash", "complete -o default -F __start_dedupstore dedupstore", []string{"bash", "-n"}},
		{"zsh", "#compdef dedupstore", []string{"zsh", "-n"}},
		{"fish", "complete -c dedupstore", []string{"fish", "--no-execute"}},
		{"powershell", "Register-ArgumentCompleter -CommandName 'dedupstore'", nil},
	} {
		t.Run(shell.name, func(t *testing.T) {
			var out, stderr bytes.Buffer
			if code := run([]string{"completion", shell.name}, nil, &out, &stderr); code != exitOK || stderr.Len() > 0 {
				t.Fatalf("exit code %d, %s", code, &stderr)
			}
			if !strings.Contains(out.String(), shell.has) {
				t.Errorf("%d bytes without %q", out.Len(), shell.has)
			}
			if shell.read == nil {
				return
			}
			if _, err := exec.LookPath(shell.read[0]); err != nil {
				t.Logf("%s is not here to read the script", shell.name)
				return
			}
			cmd := exec.CommandContext(t.Context(), shell.read[0], shell.read[1:]...)
			cmd.Stdin = &out
			if says, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, says)
			}
		})
	}
}

// TestCompleteValues offers, for a flag that takes a name of a list, those that
// the flag takes, and no files for what is no file.
func TestCompleteValues(t *testing.T) {
	eachFlag(t, func(t *testing.T, p *program, cmd *cobra.Command, f *pflag.Flag, _, _ string) {
		if f.Value.Type() == "bool" {
			return
		}
		var out, stderr bytes.Buffer
		run([]string{"__complete", cmd.Name(), "--" + f.Name, ""}, nil, &out, &stderr)
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		values, directive := lines[:len(lines)-1], lines[len(lines)-1]
		want := ":4" // no files
		switch f.Value.Type() {
		case "FILE":
			want = ":0"
		case "DIR":
			want = ":16"
		}
		if directive != want {
			t.Errorf("directive %s, want %s", directive, want)
		}
		listed := f.Value.(interface{ choices() []string }).choices()
		if strings.Join(values, " ") != strings.Join(listed, " ") {
			t.Errorf("it offers %q, want %q", values, listed)
		}
		for _, v := range values {
			if err := f.Value.Set(v); err != nil {
				t.Errorf("it offers %q: %v", v, err)
			}
		}
		if kind := f.Value.Type(); f.Name != "namespace" && (kind == "NAME" || kind == "LEVEL") && len(values) == 0 {
			t.Error("it offers nothing")
		}
	})
}
