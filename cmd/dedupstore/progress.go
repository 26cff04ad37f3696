package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

const progressEvery = time.Second

// A progress is one line on a terminal that is written over and over. It
// writes nothing where stderr is no terminal.
type progress struct {
	w           io.Writer // nil: show nothing
	start, last time.Time
	shown       bool
}

func newProgress(p *program) *progress {
	now := time.Now()
	g := &progress{start: now, last: now}
	if file, ok := p.stderr.(*os.File); ok && !p.quiet && term.IsTerminal(int(file.Fd())) {
		g.w = p.stderr
	}
	return g
}

// lines shows how many lines are done.
func (g *progress) lines(n int64) {
	if g.due() {
		rate := float64(n) / time.Since(g.start).Seconds()
		g.show("%s lines, %s/s", humanize.Comma(n), humanize.Comma(int64(rate)))
	}
}

// share shows which part of the work is done, 0 to 1.
func (g *progress) share(done float64) {
	if g.due() {
		g.show("%.0f %%", 100*done)
	}
}

// left shows how many URLs are left to be dropped.
func (g *progress) left(n int64) {
	if g.due() {
		g.show("%s URLs left", humanize.Comma(n))
	}
}

func (g *progress) due() bool {
	return g.w != nil && time.Since(g.last) >= progressEvery
}

func (g *progress) show(format string, args ...any) {
	g.last = time.Now()
	g.shown = true
	fmt.Fprintf(g.w, "\r\x1b[K"+format, args...)
}

// clear makes room for a message.
func (g *progress) clear() {
	if g.shown {
		g.shown = false
		fmt.Fprint(g.w, "\r\x1b[K")
	}
}
