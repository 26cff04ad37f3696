package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const statsUsage = `Usage: dedupstore stats

Print the figures of a store: the exact number of URLs, bytes on disk and of
memory by part, the bitmap, the log, the segments and when the first of them
expires, the store's time, what opening it took, and warnings. Any number of
processes may look at a store at once. While a process adds to it, the figures
are those that this process has published, every two seconds, and their age is
printed first.

    --watch TIME          print a line every TIME, like 2s, of what the process
                          that adds has done since the line before, until it
                          lets the store go or an interrupt comes
    --count N             with --watch: print N lines
    --json                print one JSON object, with every figure; with
                          --watch one a line
` + storeFlagsUsage + `
Examples:

    dedupstore stats --store crawl.store
    dedupstore stats --json | jq .urls
    dedupstore stats --watch 2s
`

func newStats(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "stats", Long: statsUsage, Args: cobra.NoArgs}
	var w watch
	jsonFlag(cmd, &w.json)
	cmd.Flags().Var(newValue(&w.interval, "", "TIME", parseInterval), "watch", "")
	cmd.Flags().Var(newValue(&w.count, "", "N", parseWhole), "count", "")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if w.count > 0 && w.interval == 0 {
			return usageError(cmd, errors.New("--count is the number of lines of --watch"))
		}
		s, err := p.openAny(store.Options{ReadOnly: true})
		if err == nil {
			return closeStore(s, p.stats(s, w))
		}
		held, err := p.readHeld(err)
		switch {
		case err != nil:
			return err
		case w.interval > 0:
			return p.watch(cmd.Context(), w, held.Status)
		}
		return p.printHeld(held, w.json)
	}
	return cmd
}

// stats prints the figures of a store that nobody adds to.
func (p *program) stats(s *store.Store, w watch) error {
	switch {
	case w.interval > 0:
		return fmt.Errorf("no process has %s open for writing: there is nothing to watch", p.path())
	case w.json:
		return p.printJSON(s.Stats())
	}
	return p.printTable(statsRows(s.Stats()))
}

func parseInterval(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, errors.New("want a time like 2s or 500ms")
	}
	return d, nil
}

// statsRows are the figures that mean something for a store at rest.
func statsRows(st store.Stats) []row {
	rows := []row{
		{"URLs", humanize.Comma(st.URLs)},
		{"TTL", ttlText(st.TTL)},
		{"namespaces", humanize.Comma(int64(st.Namespaces))},
		{"store", st.Dir},
		{"hash", st.Hash},
		{"key profile", st.KeyProfile},
		{"disk", fmt.Sprintf("%s: Pebble %s, bitmap %s, log %s, reserve %s; %.1f bytes a URL", size(st.Disk.Total),
			size(st.Disk.Pebble), size(st.Disk.Bitmap), size(st.Disk.Log), size(st.Disk.Reserve), st.Disk.PerURL)},
		{"memory", fmt.Sprintf("%s anonymous: memtables %s, cache %s, block cache %s, log %s, claims %s; %s of mapped files",
			size(st.Memory.Anonymous), size(st.Memory.Memtables), size(st.Memory.Cache),
			size(st.Memory.BlockCache), size(st.Memory.Log), size(st.Memory.Claims), size(st.Memory.FileBacked))},
		{"bitmap", fmt.Sprintf("sized for %s URLs, load %.1f %%, fill %.1f %%, designed false-positive rate %.3g %%",
			humanize.Comma(st.Bitmap.Capacity), 100*st.Bitmap.Load, 100*st.Bitmap.Fill, 100*st.Bitmap.DesignedRate)},
		{"log", fmt.Sprintf("%d files, %s records not in Pebble", st.Log.Files,
			humanize.Comma(st.Memtable.Active+st.Memtable.Frozen))},
		{"segments", spansText(st.Spans)},
		{"clock", clockText(st.Clock)},
		{"opening", recoveryText(st.Recovery)},
		{"odds", fmt.Sprintf("%.2g that a new URL is taken for a seen one, %.2g pairs of URLs expected to share a digest",
			st.FalseSeenOdds, st.AnyCollisionOdds)},
	}
	if due := st.Expiry.DueURLs; due > 0 {
		rows = append(rows, row{"to be dropped", humanize.Comma(due) + " URLs, which are new"})
	}
	for _, w := range st.Warnings {
		rows = append(rows, row{"warning", w})
	}
	if st.Err != "" {
		rows = append(rows, row{"error", st.Err})
	}
	return rows
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// spansText counts segments, and says when the next of them ends.
func spansText(spans []store.SpanStats) string {
	segments, closed := 0, 0
	var next time.Time
	for _, sp := range spans {
		segments += sp.Segments
		if sp.Closed {
			closed++
		}
		if !sp.Ends.IsZero() && (next.IsZero() || sp.Ends.Before(next)) {
			next = sp.Ends
		}
	}
	text := fmt.Sprintf("%d in %d spans, of which %d closed", segments, len(spans), closed)
	if !next.IsZero() {
		text += ", the first ends at " + next.Format(time.RFC3339)
	}
	return text
}

// clockText is the store's time, and the wall clock's if it is another one.
func clockText(c store.ClockStats) string {
	text := c.StoreTime.Format(time.RFC3339)
	if c.Wall.Sub(c.StoreTime).Abs() >= time.Second {
		text += ", the wall clock says " + c.Wall.Format(time.RFC3339)
	}
	if !c.DropsAllowed {
		text += ", not believed yet"
	}
	return text
}

func recoveryText(r store.RecoveryStats) string {
	took := r.Time.Round(time.Millisecond)
	if r.Clean {
		return fmt.Sprintf("clean, %v", took)
	}
	parts := []string{fmt.Sprintf("replayed %d log files, %s records in %v",
		r.LogFiles, humanize.Comma(r.Records), took)}
	if r.BitsSetAgain > 0 {
		parts = append(parts, fmt.Sprintf("set the bits of %s words again", humanize.Comma(r.BitsSetAgain)))
	}
	if r.TornFile != "" {
		parts = append(parts, fmt.Sprintf("%s torn off %s at offset %d, on which no answer rested",
			size(r.TornBytes), r.TornFile, r.TornOffset))
	}
	if len(r.Removed) > 0 {
		parts = append(parts, "removed "+strings.Join(r.Removed, ", "))
	}
	return strings.Join(parts, "; ")
}
