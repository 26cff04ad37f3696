package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagTexts are for each flag, or its kind, a value that is taken, and one that
// is not, if there is any.
var flagTexts = map[string]struct{ good, bad string }{
	"bool": {"true", "maybe"}, "DIR": {good: "d"}, "FILE": {good: "f"}, "REGEXP": {"a.*", "("},
	"SIZE": {"64MiB", "1"}, "N": {"5", "-5"}, "TIME": {"2s", "2"},
	"--canon": {"none", "no"}, "--hash": {"xxh64", "md5"}, "--namespace": {good: "x"}, "--durability": {"sync", "always"},
	"--profile": {"crawl", "no"}, "--diff": {"std,crawl", "std"}, "W": {"2", "none"},
	"FORMAT": {"csv", "rdb"}, "COLUMN": {good: "c"}, "FIELD": {good: "f"},
}

// eachFlag calls do for every flag of every verb that a variable stands for.
// Each time they are new.
func eachFlag(t *testing.T, do func(t *testing.T, p *program, cmd *cobra.Command, f *pflag.Flag, good, bad string)) {
	t.Helper()
	for _, cmd := range newRoot(&program{}).Commands() {
		flags := cmd.Flags()
		flags.AddFlagSet(cmd.InheritedFlags())
		flags.VisitAll(func(f *pflag.Flag) {
			if envName(f.Name) == "" {
				return
			}
			t.Run(cmd.Name()+"/"+f.Name, func(t *testing.T) {
				texts, ok := flagTexts["--"+f.Name]
				if !ok {
					texts, ok = flagTexts[f.Value.Type()]
				}
				if !ok {
					t.Fatalf("no texts for a flag of kind %s", f.Value.Type())
				}
				p := &program{}
				again, _, err := newRoot(p).Find([]string{cmd.Name()})
				if err != nil {
					t.Fatal(err)
				}
				again.Flags().AddFlagSet(again.InheritedFlags())
				do(t, p, again, again.Flags().Lookup(f.Name), texts.good, texts.bad)
			})
		})
	}
}

// TestEnv takes each flag from its variable, unless the command line has it or
// the variable is empty.
func TestEnv(t *testing.T) {
	eachFlag(t, func(t *testing.T, _ *program, cmd *cobra.Command, f *pflag.Flag, good, bad string) {
		name := "DEDUPSTORE_" + strings.ReplaceAll(strings.ToUpper(f.Name), "-", "_")
		unset := f.Value.String()
		t.Setenv(name, "")
		if err := setFromEnv(cmd); err != nil || f.Value.String() != unset {
			t.Errorf("empty: %q, %v, want %q", f.Value, err, unset)
		}
		t.Setenv(name, good)
		if err := setFromEnv(cmd); err != nil || f.Value.String() != good {
			t.Errorf("%s: %q, %v", name, f.Value, err)
		}
		t.Setenv(name, bad)
		if err := setFromEnv(cmd); bad != "" && (err == nil || !strings.HasPrefix(err.Error(), name+" is "+`"`+bad+`": `)) {
			t.Errorf("%s=%s: %v", name, bad, err)
		}
		if err := cmd.Flags().Set(f.Name, good); err != nil {
			t.Fatal(err)
		}
		if err := setFromEnv(cmd); err != nil || f.Value.String() != good {
			t.Errorf("with a flag: %q, %v, want %q", f.Value, err, good)
		}
	})
}

// TestBadEnv ends with the exit code of a bad flag, and names the variable.
func TestBadEnv(t *testing.T) {
	t.Chdir(t.TempDir())
	args := map[string][]string{"import": {"f"}, "add": {"u"}, "why": {"u"}, "snapshot": {"d"}, "inspect": {"store"}}
	eachFlag(t, func(t *testing.T, _ *program, cmd *cobra.Command, f *pflag.Flag, _, bad string) {
		if bad == "" {
			return // every text is good
		}
		t.Setenv(envName(f.Name), bad)
		var stderr bytes.Buffer
		code := run(append([]string{cmd.Name()}, args[cmd.Name()]...), strings.NewReader(""), &stderr, &stderr)
		if code != 2 || !strings.HasPrefix(stderr.String(), "dedupstore: "+envName(f.Name)+" is ") {
			t.Errorf("exit code %d, %s", code, &stderr)
		}
		if left, err := filepath.Glob("*"); err != nil || left != nil {
			t.Errorf("it made %q, %v", left, err)
		}
	})
}
