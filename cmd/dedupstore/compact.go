package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"dedupstore/store"
)

const compactUsage = `Usage: dedupstore compact

Merge the tables of a store until none overlaps another, and print what they
take before and after. A store merges by itself: this is for a disk that is
full, where it may use the space that the store keeps free, and its reserve.
What it writes must find space before the old tables go; if it does not, the
exit code is 5 and nothing is lost.

` + storeFlagsUsage + `
Examples:

    dedupstore compact --store crawl.store
`

func newCompact(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "compact", Long: compactUsage, Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := p.openAny(store.Options{MustExist: true})
		if err != nil {
			return err
		}
		before := s.Stats()
		tables := func() string {
			return fmt.Sprintf("%d tables, %d at first", s.Stats().Compaction.Tables, before.Compaction.Tables)
		}
		err = p.during(tables, func() error { return s.Compact(cmd.Context()) })
		if cmd.Context().Err() != nil {
			err = fmt.Errorf("%w at %s", errInterrupted, tables())
		}
		after := s.Stats()
		if err = p.close(s, err); err != nil {
			return err
		}
		return writeOut(p.stdout, fmt.Appendf(nil, "before: %d bytes in %d tables; after: %d bytes in %d tables\n",
			before.Disk.Pebble, before.Compaction.Tables, after.Disk.Pebble, after.Compaction.Tables))
	}
	return cmd
}
