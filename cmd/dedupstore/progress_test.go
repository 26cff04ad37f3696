package main

import (
	"strings"
	"testing"
	"time"
)

// TestProgress shows lines as they are due, each over the one before.
func TestProgress(t *testing.T) {
	var out strings.Builder
	in := &input{}
	in.read.Store(250)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g := &progress{w: &out, in: in, now: func() time.Time { return now }, start: now, last: now}
	shows := func(show func(), want string) {
		t.Helper()
		out.Reset()
		now = now.Add(progressEvery)
		show()
		if got := out.String(); got != want {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	shows(func() { g.lines(4_000_000) }, "\r4,000,000 lines, 4,000,000/s")
	g.total = 1000
	shows(func() { g.lines(4_000_000) }, "\r4,000,000 lines, 2,000,000/s, 25 %, 6s to go")
	shows(func() { g.share(0) }, "\r0 %"+strings.Repeat(" ", 41))
	shows(func() { g.share(0.5) }, "\r50 %, 4s to go")
	shows(g.clear, "\r"+strings.Repeat(" ", 14)+"\r")
	shows(g.clear, "")
	g.total = 0
	shows(func() { g.left(7_000_000) }, "\r7,000,000 URLs left")
	shows(func() { g.left(3_500_000) }, "\r3,500,000 URLs left, 437,500/s, 8s to go")
	shows(func() { g.last = now; g.share(0.5) }, "")
	if strings.Contains(out.String(), "\x1b") {
		t.Error("it writes escape sequences")
	}
}

// TestNoProgress shows nothing where stderr is no terminal.
func TestNoProgress(t *testing.T) {
	var out strings.Builder
	g := newProgress(&program{stderr: &out})
	g.last = time.Time{}
	g.lines(1)
	g.clear()
	if out.String() != "" {
		t.Errorf("it shows %q", out.String())
	}
}
