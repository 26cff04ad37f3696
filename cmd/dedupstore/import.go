package main

import (
	"errors"

	"github.com/spf13/cobra"

	"dedupstore/store"
)

var importUsage = `Usage: dedupstore import FILE...

Remember the lines of the FILEs, and print how many were new. Interrupted and
run again, it adds exactly what is missing. It ends with one line on stderr, in
which read = new + seen + invalid + errors.

With --added-to the URLs that are new are also written to the end of a file, in
their order and before they are remembered: what a kill -9 has left in the store
is in the file. Say the same file when it is run again. The file takes the
import back:

    dedupstore forget < FILE                     or, of a namespace,
    dedupstore forget --namespace NAME - < FILE

` + lineRulesUsage + `
A FILE that cannot be read counts as one error; the others are done.

    --added-to FILE       write the URLs that are new to the end of FILE; it is
                          synced at every 4096 of them at least
` + lineFlagsUsage + `
Examples:

    dedupstore import seen-so-far.txt.zst crawl.log.gz sitemap.xml a.warc.gz
    dedupstore import --format csv --column address pages.csv
    psql -Atc 'select url from pages' | dedupstore import -
    dedupstore import --added-to added.txt other-crawl.txt.gz
`

func newImport(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "import FILE...", Long: importUsage, Args: cobra.MinimumNArgs(1)}
	flags := newLineFlags(cmd)
	var addedTo string
	cmd.Flags().Var(newValue(&addedTo, "", "FILE", parseFile), "added-to", "")
	cmd.RunE = func(cmd *cobra.Command, files []string) (err error) {
		var added *addedFile
		if addedTo != "" {
			if added, err = openAdded(addedTo); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, added.file.Close()) }()
		}
		s, n, err := p.openAdding(flags.adding)
		if err != nil {
			return err
		}
		ask := addTo(n)
		if added != nil {
			ask = newMarker(realRun{n, s}, added.write).ask
		}
		return p.runLines(cmd.Context(), flags.input(p, files), flags.json, s, ask)
	}
	return cmd
}

// addTo adds the keys of a batch.
func addTo(n *store.Namespace) func(*lineRun, *batch) error {
	return func(r *lineRun, b *batch) error {
		answers := r.answersFor(b.keys)
		err := n.AddBatch(r.ctx, b.keys, answers)
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
}
