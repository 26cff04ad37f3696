package main

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"dedupstore/store"
)

const expireUsage = `Usage: dedupstore expire

Drop now what has expired, and the URLs of namespaces that were dropped, build
the filters that are due, and print what that was. A store does so by itself
while a process has it open: this is for one that nobody opens, or for a disk
whose space is needed. Answers do not depend on it: a URL is new again from the
moment that it expires.

It also tells a store that does not believe the clock yet, since the machine was
booted while it was closed, that the clock is right. If the clock is more than
an hour behind the time that the store was last open at, nothing is done, and
the exit code is 7: one of the two is wrong.

    --accept-clock        the clock is right, whatever the store's time is. What
                          a wrong clock has let live too long then ends a TTL
                          from now
    --memory SIZE         memory to use (default: 256MiB)
    --json                print one JSON object
` + storeFlagsUsage + `
Examples:

    dedupstore expire --store crawl.store
`

func newExpire(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "expire", Long: expireUsage, Args: cobra.NoArgs}
	o := store.Options{MustExist: true}
	var e store.ExpireOptions
	var asJSON bool
	cmd.Flags().BoolVar(&e.AcceptClock, "accept-clock", false, "")
	memoryFlag(cmd, &o)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := p.openAny(o)
		if err != nil {
			return err
		}
		progress := newProgress(p)
		left := int64(-1)
		e.Progress = func(n int64) {
			left = n
			progress.left(n)
		}
		_, err = s.Expire(cmd.Context(), e)
		progress.clear()
		st := s.Stats()
		if cmd.Context().Err() != nil {
			err = interruptedExpire(st, left)
		}
		if err := p.close(s, err); err != nil {
			return err
		}
		done := expiredOf(st)
		if asJSON {
			return p.printJSON(done)
		}
		return p.printTable([]row{
			{"dropped", humanize.Comma(done.URLs) + " URLs in " + humanize.Comma(done.Segments) + " segments"},
			{"built", humanize.Comma(done.Builds) + " filters"},
			{"left", humanize.Comma(st.URLs) + " URLs"},
			{"disk", size(st.Disk.Total)},
		})
	}
	return cmd
}

// interruptedExpire says how far it came; left is below 0 if it had not begun.
func interruptedExpire(st store.Stats, left int64) error {
	if left < 0 {
		return fmt.Errorf("%w before any URLs were dropped", errInterrupted)
	}
	return fmt.Errorf("%w after %s URLs were dropped, with %s left", errInterrupted,
		humanize.Comma(st.Expiry.DroppedURLs), humanize.Comma(left))
}

// expiredOf is what was done since the store was opened, for it may have begun
// before it was asked to.
func expiredOf(st store.Stats) store.ExpireReport {
	return store.ExpireReport{URLs: st.Expiry.DroppedURLs, Segments: st.Expiry.DroppedSegments, Builds: st.Build.Builds}
}
