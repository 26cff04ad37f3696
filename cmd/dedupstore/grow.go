package main

import (
	"errors"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const growUsage = `Usage: dedupstore grow

Make the bitmap of a store large enough for a number of URLs, and record the
number as a floor: the bitmap is never made smaller. It grows by itself when it
is full; a store that is known to become large is spared the sizes in between.
Interrupted, it is done by whoever opens the store next.

    --urls N              URLs to be ready for: 1e6, 20M, 2e9, 1_000_000
    --memory SIZE         memory to use (default: 256MiB)
    --json                print one JSON object
` + storeFlagsUsage + `
Examples:

    dedupstore grow --store crawl.store --urls 2e9
`

func newGrow(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "grow", Long: growUsage, Args: cobra.NoArgs}
	o := store.Options{MustExist: true}
	var urls int64
	var asJSON bool
	cmd.Flags().Var(newValue(&urls, "", "N", parseCount), "urls", "")
	memoryFlag(cmd, &o)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if urls == 0 {
			return usageError(cmd, errors.New("--urls is missing"))
		}
		s, err := p.openAny(o)
		if err != nil {
			return err
		}
		err = p.during(doing("building the bitmap"), func() error { return s.Grow(cmd.Context(), urls) })
		if cmd.Context().Err() != nil {
			err = errInterrupted
		}
		st := s.Stats()
		if err := p.close(s, err); err != nil {
			return err
		}
		made := birthOf(st)
		if asJSON {
			return p.printJSON(made)
		}
		return p.printTable([]row{
			{"URLs", humanize.Comma(st.URLs)},
			{"expected URLs", humanize.Comma(made.ExpectedURLs)},
			{"bitmap", humanize.IBytes(uint64(made.BitmapBytes))},
		})
	}
	return cmd
}
