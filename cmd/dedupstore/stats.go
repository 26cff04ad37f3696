package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const statsUsage = `Usage: dedupstore stats

Print the figures of a store: the exact number of URLs, bytes on disk and of
memory by part, the bitmap, the log, the segments, what opening it took, and
warnings. Any number of processes may look at a store at once, and none while
a process adds to it.

    --json                print one JSON object, with every figure
` + storeFlagsUsage + `
Examples:

    dedupstore stats --store crawl.store
    dedupstore stats --json | jq .urls
`

func newStats(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "stats", Long: statsUsage, Args: cobra.NoArgs}
	var asJSON bool
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		s, err := store.Open(p.dir, &store.Options{ReadOnly: true})
		if err != nil {
			return err
		}
		st := s.Stats()
		if asJSON {
			err = p.printJSON(st)
		} else {
			err = p.printTable(statsRows(st))
		}
		return closeStore(s, err)
	}
	return cmd
}

// statsRows are the figures that mean something for a store at rest.
func statsRows(st store.Stats) []row {
	rows := []row{
		{"URLs", humanize.Comma(st.URLs)},
		{"store", st.Dir},
		{"hash", st.Hash},
		{"key profile", st.KeyProfile},
		{"disk", fmt.Sprintf("%s: Pebble %s, bitmap %s, log %s, reserve %s; %.1f bytes a URL", size(st.Disk.Total),
			size(st.Disk.Pebble), size(st.Disk.Bitmap), size(st.Disk.Log), size(st.Disk.Reserve), st.Disk.PerURL)},
		{"memory", fmt.Sprintf("%s anonymous: memtables %s, cache %s, block cache %s, log %s; %s of mapped files",
			size(st.Memory.Anonymous), size(st.Memory.Memtables), size(st.Memory.Cache),
			size(st.Memory.BlockCache), size(st.Memory.Log), size(st.Memory.FileBacked))},
		{"bitmap", fmt.Sprintf("sized for %s URLs, load %.1f %%, fill %.1f %%, designed false-positive rate %.3g %%",
			humanize.Comma(st.Bitmap.Capacity), 100*st.Bitmap.Load, 100*st.Bitmap.Fill, 100*st.Bitmap.DesignedRate)},
		{"log", fmt.Sprintf("%d files, %s records not in Pebble", st.Log.Files,
			humanize.Comma(st.Memtable.Active+st.Memtable.Frozen))},
		{"segments", segmentsText(st.Segments)},
		{"opening", recoveryText(st.Recovery)},
		{"odds", fmt.Sprintf("%.2g that a new URL is taken for a seen one, %.2g pairs of URLs expected to share a digest",
			st.FalseSeenOdds, st.AnyCollisionOdds)},
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

func segmentsText(segments []store.SegmentStats) string {
	closed := 0
	for _, s := range segments {
		if s.Closed {
			closed++
		}
	}
	return fmt.Sprintf("%d, of which %d closed", len(segments), closed)
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
