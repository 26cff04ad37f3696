package main

import (
	"bytes"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const verifyUsage = `Usage: dedupstore verify

Look for damage in a store, and print each fault with its file, its place, and
what it means. Nothing is changed. The exit code is 4 if there is any.

    --deep                read everything; without it only headers, checksums,
                          the log and the registry are read
    --repair              then say what "dedupstore repair" would do about it;
                          with --json that report alone, which has the faults
    --json                print one JSON object
` + storeFlagsUsage + `
Examples:

    dedupstore verify --deep --store crawl.store
`

func newVerify(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "verify", Long: verifyUsage, Args: cobra.NoArgs}
	var o store.VerifyOptions
	var asJSON, repair bool
	cmd.Flags().BoolVar(&repair, "repair", false, "")
	cmd.Flags().BoolVar(&o.Deep, "deep", false, "")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		progress := newProgress(p)
		var share float64
		o.Progress = func(done float64) {
			share = done
			progress.share(done)
		}
		report, err := store.Verify(cmd.Context(), p.dir, o)
		progress.clear()
		if cmd.Context().Err() != nil {
			return fmt.Errorf("%w at %.0f %%", errVerifyInterrupted, 100*share)
		}
		if err != nil {
			return err
		}
		repair = repair && !report.OK()
		switch {
		case asJSON && repair:
		case asJSON:
			err = p.printJSON(report)
		default:
			err = writeOut(p.stdout, reportText(report))
		}
		if repair && err == nil {
			// A dry run: to change anything takes "repair --apply".
			return p.repair(cmd.Context(), store.RepairOptions{}, asJSON)
		}
		if !report.OK() {
			return fmt.Errorf("%s: %w", p.path(), errFaults)
		}
		return err
	}
	return cmd
}

// reportText is a report in words, a fault or a note a line.
func reportText(r *store.Report) []byte {
	var out bytes.Buffer
	for _, f := range r.Faults {
		place := f.Path
		if f.Offset >= 0 {
			place = fmt.Sprintf("%s at offset %d", f.Path, f.Offset)
		}
		fmt.Fprintf(&out, "fault: %s: %s: %s\n", place, f.Reason, f.Consequence)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&out, "note: %s\n", n)
	}
	urls := "number of URLs not known"
	if r.URLs >= 0 {
		urls = humanize.Comma(r.URLs) + " URLs"
	}
	depth := "quick"
	if r.Deep {
		depth = "deep"
	}
	fmt.Fprintf(&out, "%s, %d faults found by the %s check\n", urls, len(r.Faults), depth)
	return out.Bytes()
}
