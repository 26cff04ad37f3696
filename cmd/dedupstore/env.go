package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const envPrefix = "DEDUPSTORE_"

// envName is the variable that stands for a flag, or "" if none does.
func envName(flag string) string {
	if flag == "help" || flag == "version" { // of these a script may have others
		return ""
	}
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// setFromEnv gives the flags of cmd that the command line does not name what
// their variables say. A variable that is empty says nothing. Changed goes on
// telling what the command line names.
func setFromEnv(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := envName(f.Name)
		if name == "" || f.Changed || err != nil {
			return
		}
		if text := os.Getenv(name); text != "" {
			if setErr := f.Value.Set(text); setErr != nil {
				err = fmt.Errorf("%s is %q: %s", name, text, oneLine(setErr))
			}
		}
	})
	return err
}
