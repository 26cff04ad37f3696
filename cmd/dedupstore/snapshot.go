package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const snapshotUsage = `Usage: dedupstore snapshot DIR

Make DIR a copy of a store, in seconds: the files of its tables, which never
change, get a second name, and are copied only to another disk. DIR must not
exist, and not be in the store. The bitmap and what belongs to it is left out:
the first command that adds builds it, beside its work. The store is not
changed. A store that another process holds, only that process can copy.

DIR is a store like any other. To restore it, copy it, as often as need be, by
"cp -r" or by this command, and use the copy. It is whole or not there: an error
or the end of the process leaves DIR.tmp at most, which the next run replaces.

    --json                print one JSON object
` + storeFlagsUsage + `
Examples:

    dedupstore snapshot backup/monday --store crawl.store
    dedupstore snapshot crawl.store --store backup/monday
`

func newSnapshot(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "snapshot DIR", Long: snapshotUsage}
	var asJSON bool
	jsonFlag(cmd, &asJSON)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) != 1:
			return errors.New("want one directory")
		case args[0] == "":
			return errors.New("want the name of a directory")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return p.snapshot(cmd.Context(), args[0], asJSON)
	}
	return cmd
}

// snapshot makes the copy and prints what it is.
func (p *program) snapshot(ctx context.Context, dir string, asJSON bool) error {
	s, err := p.openAny(store.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	err = s.Snapshot(ctx, dir)
	made := s.Stats().Snapshots
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = errInterrupted
	}
	if err = closeStore(s, err); err != nil {
		return err
	}
	if asJSON {
		return p.printJSON(made)
	}
	return writeOut(p.stdout, fmt.Appendf(nil, "%s: %s URLs, %s: %s linked, %s copied; in %v\n",
		dir, humanize.Comma(made.URLs), size(made.LinkedBytes+made.CopiedBytes),
		size(made.LinkedBytes), size(made.CopiedBytes), made.Time.Round(time.Millisecond)))
}
