package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

const progressEvery = time.Second

// A progress is one line on a terminal that is written over and over, with
// blanks and not with an escape sequence, which not every terminal knows. It
// writes nothing where stderr is no terminal, or one that has no CR.
type progress struct {
	w           io.Writer // nil: show nothing
	now         func() time.Time
	start, last time.Time
	width       int // of what is shown, 0 for nothing

	in    *input // of lines; nil: there is none
	total int64  // bytes of in, or what was left at first; 0: not known
}

func newProgress(p *program) *progress {
	now := time.Now()
	g := &progress{now: time.Now, start: now, last: now}
	if file, ok := p.stderr.(*os.File); ok && !p.quiet && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(file.Fd())) {
		g.w = p.stderr
	}
	return g
}

// lineProgress is that of a verb which takes the lines of in.
func (p *program) lineProgress(in *input) *progress {
	g := newProgress(p)
	g.in = in
	if g.w != nil {
		g.total, _ = in.bytes()
	}
	return g
}

// lines shows how many lines are done, and how much of the files is left.
func (g *progress) lines(n int64) {
	if !g.due() {
		return
	}
	text := humanize.Comma(n) + " lines, " + g.rate(n)
	if g.total > 0 {
		text += ", " + g.shareText(float64(g.in.read.Load())/float64(g.total))
	}
	g.show(text)
}

// share shows which part of the work is done, 0 to 1.
func (g *progress) share(done float64) {
	if g.due() {
		g.show(g.shareText(done))
	}
}

// left shows how many URLs are left to be dropped.
func (g *progress) left(n int64) {
	g.total = max(g.total, n)
	if !g.due() {
		return
	}
	text := humanize.Comma(n) + " URLs left"
	if dropped := g.total - n; dropped > 0 {
		text += ", " + g.rate(dropped) + ", " + g.etaText(float64(dropped)/float64(g.total))
	}
	g.show(text)
}

// rate is n by the time that has passed.
func (g *progress) rate(n int64) string {
	return humanize.Comma(int64(math.Round(float64(n)/g.passed().Seconds()))) + "/s"
}

func (g *progress) shareText(done float64) string {
	text := fmt.Sprintf("%.0f %%", 100*min(done, 1))
	if done > 0 {
		text += ", " + g.etaText(done)
	}
	return text
}

// etaText is the time that is left if it goes on as it went.
func (g *progress) etaText(done float64) string {
	passed := g.passed().Seconds()
	left := time.Duration(passed * max(0, 1/done-1) * float64(time.Second))
	return left.Round(time.Second).String() + " to go"
}

func (g *progress) passed() time.Duration { return g.now().Sub(g.start) }

func (g *progress) due() bool {
	return g.w != nil && g.now().Sub(g.last) >= progressEvery
}

func (g *progress) show(text string) {
	g.last = g.now()
	fmt.Fprintf(g.w, "\r%-*s", g.width, text)
	g.width = len(text)
}

// clear makes room for a message.
func (g *progress) clear() {
	if g.width > 0 {
		fmt.Fprintf(g.w, "\r%*s\r", g.width, "")
		g.width = 0
	}
}

// during shows what is being done while do does it, and for how long.
func (p *program) during(what func() string, do func() error) error {
	g := newProgress(p)
	if g.w == nil {
		return do()
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			g.clear()
			return err
		case <-tick.C:
			g.show(what() + ", " + g.passed().Round(time.Second).String())
		}
	}
}

// doing is a text that does not change.
func doing(what string) func() string { return func() string { return what } }
