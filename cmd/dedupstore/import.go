package main

import (
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const importUsage = `Usage: dedupstore import FILE...

Remember the lines of the FILEs, and print how many were new. Interrupted and
run again, it adds exactly what is missing. It ends with one line on stderr, in
which read = new + seen + invalid + errors.

` + lineRulesUsage + `
A FILE that cannot be read counts as one error; the others are done.

` + lineFlagsUsage + `
Examples:

    dedupstore import seen-so-far.txt.zst
    psql -Atc 'select url from pages' | dedupstore import -
`

func newImport(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "import FILE...", Long: importUsage, Args: cobra.MinimumNArgs(1)}
	flags := newLineFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		return p.runLines(cmd.Context(), files, flags, importBatch)
	}
	return cmd
}

func importBatch(r *lineRun, b *batch) error {
	answers := r.answersFor(b.keys)
	err := r.store.AddBatch(r.ctx, b.keys, answers)
	for _, a := range answers {
		switch a {
		case store.New:
			r.tally.New++
		case store.Seen:
			r.tally.Seen++
		default:
			r.tally.Errors++
		}
	}
	return err
}
