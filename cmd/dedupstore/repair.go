package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const repairUsage = `Usage: dedupstore repair

Say what is wrong with a store, what can be had back and what is lost. Nothing
is changed without --apply. With it:

    a damaged log is read record by record, and a clean one begun;
    damaged tables, or a damaged MANIFEST, make a new store beside the old one,
    with every URL that can still be read, and the old one is left as it is;
    filters are built anew.

Nothing is deleted that cannot be read: bad files are kept with ".bad" behind
their names. The exit code is 4 if the store is damaged, and 0 once it is
repaired. It may be run again after it was cut short.

    --apply               do it
    --to DIR              where a new store goes; default: the store's directory
                          with ".repaired" behind it
    --json                print one JSON object
` + storeFlagsUsage + `
Examples:

    dedupstore repair --store crawl.store
    dedupstore repair --apply --store crawl.store
`

func newRepair(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "repair", Long: repairUsage, Args: cobra.NoArgs}
	var o store.RepairOptions
	var asJSON bool
	cmd.Flags().BoolVar(&o.Apply, "apply", false, "")
	cmd.Flags().Var(newValue(&o.To, "", "DIR", parseDir), "to", "")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return p.repair(cmd.Context(), o, asJSON)
	}
	return cmd
}

// repair repairs the store, or says how, and prints the report.
func (p *program) repair(ctx context.Context, o store.RepairOptions, asJSON bool) error {
	progress := newProgress(p)
	o.Progress = progress.share
	report, err := store.Repair(ctx, p.dir, o)
	progress.clear()
	if ctx.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = p.printJSON(report)
	} else {
		err = writeOut(p.stdout, repairText(report))
	}
	switch {
	case report.Refused != "" || len(report.Left) > 0:
		return fmt.Errorf("%s: %w", p.path(), errNotRepaired)
	case !report.Applied && !report.Sound():
		return fmt.Errorf("%s: %w", p.path(), errFaults)
	}
	return err
}

// repairText is a report in words.
func repairText(r *store.RepairReport) []byte {
	var out bytes.Buffer
	for _, f := range r.Faults {
		fmt.Fprintf(&out, "fault: %s: %s\n", f.Path, firstLine(f.Reason))
	}
	if r.Refused != "" {
		fmt.Fprintf(&out, "cannot be repaired: %s\n", r.Refused)
		return out.Bytes()
	}
	if r.Sound() {
		fmt.Fprintf(&out, "nothing to repair, %s\n", urlsText(r.URLs))
		return out.Bytes()
	}
	is := "would be"
	if r.Applied {
		is = "is"
	}
	if r.Identity != "" {
		fmt.Fprintf(&out, "identity: %s, and %s put right\n", r.Identity, is)
	}
	if r.Log != nil {
		logText(&out, r.Log)
	}
	if r.Tables != nil {
		tablesText(&out, r.Tables, is)
	}
	for _, f := range r.Filters {
		fmt.Fprintf(&out, "filter: %s %s built anew; nothing is lost with it\n", f, is)
	}
	for _, f := range r.Left {
		fmt.Fprintf(&out, "left: %s: %s: %s\n", f.Path, firstLine(f.Reason), f.Consequence)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&out, "note: %s\n", firstLine(n))
	}
	if r.Applied {
		fmt.Fprintf(&out, "repaired: %s holds %s\n", r.Store, urlsText(r.URLs))
	} else {
		fmt.Fprintf(&out, "with --apply %s would hold %s\n", r.Store, urlsText(r.URLs))
	}
	return out.Bytes()
}

func logText(out *bytes.Buffer, l *store.LogRepair) {
	for _, g := range l.Gaps {
		fmt.Fprintf(out, "log: %s at offset %d, %d bytes: %s lost%s: %s\n",
			g.Path, g.Offset, g.Bytes, recordsText(g.RecordsAtLeast, g.RecordsAtMost), lsnText(&g), firstLine(g.Reason))
	}
	fmt.Fprintf(out, "log: %s lost; %s; %s from the log are kept\n",
		recordsText(l.RecordsAtLeast, l.RecordsAtMost), newAgain(l.URLsAtMost), urlsText(l.URLs))
	for _, k := range l.Kept {
		fmt.Fprintf(out, "log: kept as %s\n", k)
	}
}

func recordsText(least, most int64) string {
	switch {
	case most < 0 && least == 0:
		return "an unknown number of records"
	case most < 0:
		return fmt.Sprintf("%s records or more", humanize.Comma(least))
	case least == most:
		return humanize.Comma(most) + " records"
	}
	return fmt.Sprintf("%s to %s records", humanize.Comma(least), humanize.Comma(most))
}

func lsnText(g *store.LogGap) string {
	if g.LastLSN < g.FirstLSN {
		return ""
	}
	return fmt.Sprintf(" (LSN %d to %d)", g.FirstLSN, g.LastLSN)
}

func newAgain(urls int64) string {
	switch {
	case urls < 0:
		return "the URLs in them are new again, and nothing tells how many"
	case urls == 0:
		return "no URL was in them"
	}
	return fmt.Sprintf("the URLs in them are new again: %s at most", humanize.Comma(urls))
}

func tablesText(out *bytes.Buffer, t *store.TablesRepair, is string) {
	for _, f := range t.Foreign {
		fmt.Fprintf(out, "tables: %s is another store's and was passed over\n", f)
	}
	about := ""
	if !t.Exact {
		about = "about "
	}
	for _, g := range t.Ranges {
		table := ""
		if g.Table != "" {
			table = ", in " + g.Table
		}
		fmt.Fprintf(out, "tables: lost: %s%s words from %s to %s of segment %d, %.3g of its 2^64%s\n",
			about, humanize.Comma(g.URLs), g.From, g.To, g.Segment, g.Share, table)
	}
	of := "of an unknown number"
	if t.Claimed >= 0 {
		of = "of " + humanize.Comma(t.Claimed)
	}
	fmt.Fprintf(out, "tables: %s can be read %s; %s%s lost, and new again\n", urlsText(t.URLs), of, about, urlsText(t.Lost))
	fmt.Fprintf(out, "tables: all that can be read %s copied to %s\n", is, t.To)
}

func urlsText(n int64) string {
	if n < 0 {
		return "an unknown number of URLs"
	}
	return humanize.Comma(n) + " URLs"
}

// firstLine is a text up to its first line's end: Pebble's errors have more.
func firstLine(s string) string {
	line, _, _ := bytes.Cut([]byte(s), []byte("\n"))
	return string(line)
}
