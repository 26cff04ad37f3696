package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"dedupstore/store"
)

const (
	watchHeaderEvery = 20 // lines, on a terminal

	// watchPatience is how long a line waits for figures newer than those of
	// the line before: longer than the time between two publications.
	watchPatience = 5 * time.Second
	watchPoll     = 50 * time.Millisecond
)

// A watchLine is what has changed from one publication to a later one. Rates
// are nil where there are no two of one process.
type watchLine struct {
	When       time.Time     `json:"when"`
	Age        time.Duration `json:"age_ns"`
	URLs       int64         `json:"urls"`
	NewPerSec  *float64      `json:"new_per_s"`
	SeenPerSec *float64      `json:"seen_per_s"`
	DiskBytes  int64         `json:"disk_bytes"`
	LogLag     int64         `json:"log_lag"` // records that are not synced
	Flushes    int64         `json:"flushes"`
	Builds     int64         `json:"builds"`
}

// newWatchLine compares two publications.
func newWatchLine(before, now *store.Status, age time.Duration) watchLine {
	l := watchLine{
		When: now.When, Age: age, URLs: now.URLs, DiskBytes: now.Disk.Total, LogLag: now.Log.UnsyncedRecords,
	}
	seconds := now.When.Sub(before.When).Seconds()
	if seconds <= 0 || now.PID != before.PID || !now.Opened.Equal(before.Opened) {
		return l
	}
	rate := func(before, now int64) *float64 { r := float64(now-before) / seconds; return &r }
	l.NewPerSec = rate(before.Answers.New, now.Answers.New)
	l.SeenPerSec = rate(before.Answers.Seen, now.Answers.Seen)
	l.Flushes = now.Flush.Flushes - before.Flush.Flushes
	l.Builds = now.Build.Builds - before.Build.Builds
	return l
}

const (
	watchHeader = "    time     age             URLs        new/s       seen/s        disk   log lag  flushes  builds\n"
	watchFormat = "%s  %6s  %15s  %11s  %11s  %10s  %8s  %7d  %6d\n"
)

func (l watchLine) String() string {
	rate := func(r *float64) string {
		if r == nil {
			return "-"
		}
		return humanize.Comma(int64(*r + 0.5))
	}
	return fmt.Sprintf(watchFormat, l.When.Local().Format("15:04:05"), fmt.Sprintf("%.1fs", l.Age.Seconds()),
		humanize.Comma(l.URLs), rate(l.NewPerSec), rate(l.SeenPerSec), size(l.DiskBytes),
		humanize.Comma(l.LogLag), l.Flushes, l.Builds)
}

// A watch prints a line every interval until the holder of the store ends, an
// interrupt comes, or count lines are printed.
type watch struct {
	interval time.Duration
	count    int // 0: no end
	json     bool
}

// errHolderEnded means that there is nobody to watch any more.
var errHolderEnded = errors.New("the process that held the store has let it go")

func (p *program) watch(ctx context.Context, w watch, first *store.Status) error {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	before := first
	for n := 0; w.count == 0 || n < w.count; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now, err := p.newerStatus(ctx, before, watchPatience)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == errHolderEnded:
			p.note("%v", err)
			return nil
		case err != nil:
			return err
		}
		if err := p.printWatchLine(w, n, newWatchLine(before, now, max(0, time.Since(now.When)))); err != nil {
			return err
		}
		before = now
	}
	return nil
}

func (p *program) printWatchLine(w watch, n int, l watchLine) error {
	if w.json {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		return writeOut(p.stdout, append(b, '\n'))
	}
	text := l.String()
	if n == 0 || n%watchHeaderEvery == 0 && isTerminal(p.stdout) {
		text = watchHeader + text
	}
	return writeOut(p.stdout, []byte(text))
}

func isTerminal(w any) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// newerStatus reads what was published after before. It waits for that, and
// when its patience ends returns the old figures: of a process that publishes
// none any more, a full disk may be why.
func (p *program) newerStatus(ctx context.Context, before *store.Status, patience time.Duration) (*store.Status, error) {
	poll := time.NewTicker(watchPoll)
	defer poll.Stop()
	for start := time.Now(); ; {
		st, err := store.ReadStatus(p.dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, errHolderEnded
		case err != nil:
			return nil, err
		case !st.When.Equal(before.When):
			return st, nil
		case time.Since(start) > patience:
			holder, err := store.Holder(p.dir)
			if err == nil && holder == nil {
				err = errHolderEnded // it was killed
			}
			return st, err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
