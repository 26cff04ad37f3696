package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

const versionUsage = `Usage: dedupstore version

Print the version of the program, the commit it was built from, and the Go that
built it.
`

func newVersion(p *program) *cobra.Command {
	return &cobra.Command{
		Use: "version", Long: versionUsage, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return writeOut(p.stdout, []byte(versionText()+"\n"))
		},
	}
}

func versionText() string {
	version, commit := "(unknown)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = " commit " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				commit += " (modified)"
			}
		}
	}
	return fmt.Sprintf("dedupstore %s%s %s %s/%s",
		version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
