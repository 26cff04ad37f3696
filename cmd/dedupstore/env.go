package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envOf is the environment variable that stands in for a flag.
func envOf(flag string) string {
	return "DEDUPSTORE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// setFromEnv gives the flags of cmd that the command line leaves out what the
// environment says. An empty variable says nothing.
func setFromEnv(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		text := os.Getenv(envOf(f.Name))
		if f.Changed || text == "" || f.Name == "help" || f.Name == "version" || err != nil {
			return
		}
		if setErr := f.Value.Set(text); setErr != nil {
			err = fmt.Errorf("invalid value %q of %s: %w", text, envOf(f.Name), setErr)
		}
	})
	return err
}
