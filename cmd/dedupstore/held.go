package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"dedupstore/store"
)

// A heldStatus is what the process that holds a store has published, and how
// old that is.
type heldStatus struct {
	*store.Status
	Age time.Duration `json:"age_ns"`
}

// readHeld looks for the figures of a store that could not be opened for
// openErr. It returns openErr if that does not mean a process which publishes
// some: what is there may be left from one that was killed.
func (p *program) readHeld(openErr error) (heldStatus, error) {
	held, ok := errors.AsType[*store.LockedError](openErr)
	if !ok {
		return heldStatus{}, openErr
	}
	st, err := store.ReadStatus(p.dir)
	if err != nil || st.When.Before(held.Since) {
		return heldStatus{}, openErr
	}
	return heldStatus{st, max(0, time.Since(st.When))}, nil
}

// printHeld prints them as stats does.
func (p *program) printHeld(h heldStatus, asJSON bool) error {
	if asJSON {
		return p.printJSON(h)
	}
	return p.printTable(append([]row{
		{"as of", fmt.Sprintf("%s ago, by process %d on %s", ageText(h.Age), h.PID, h.Host)},
		{"answers", fmt.Sprintf("%s new, %s seen, %s busy since it was opened %s ago", humanize.Comma(h.Answers.New),
			humanize.Comma(h.Answers.Seen), humanize.Comma(h.Answers.Busy), ageText(h.When.Sub(h.Opened)))},
		{"claims", fmt.Sprintf("%s held; %s were granted, %s have expired, %s were lost when they were used", humanize.Comma(h.Claims.Held),
			humanize.Comma(h.Claims.Granted), humanize.Comma(h.Claims.Expired), humanize.Comma(h.Claims.Lost))},
		{"forgotten", fmt.Sprintf("%s URLs; %s dropped, in %s segments", humanize.Comma(h.Expiry.Forgotten),
			humanize.Comma(h.Expiry.DroppedURLs), humanize.Comma(h.Expiry.DroppedSegments))},
	}, statsRows(h.Stats)...))
}

// ageText is a duration to the second, or to the tenth of one.
func ageText(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
