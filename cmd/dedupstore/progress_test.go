package main

import (
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var out strings.Builder
	long := time.Now().Add(-2 * progressEvery)
	g := &progress{w: &out, start: long, last: long}
	g.lines(4_000_000)
	if got := out.String(); !strings.HasPrefix(got, "\r\x1b[K4,000,000 lines, ") || !strings.HasSuffix(got, "/s") {
		t.Errorf("it shows %q", got)
	}
	out.Reset()
	g.share(0.5)
	if out.String() != "" {
		t.Errorf("it shows %q too soon", out.String())
	}
	g.clear()
	g.clear()
	if out.String() != "\r\x1b[K" {
		t.Errorf("clear writes %q", out.String())
	}
	out.Reset()
	g.last = long
	g.share(0.5)
	if out.String() != "\r\x1b[K50 %" {
		t.Errorf("it shows %q", out.String())
	}
	out.Reset()
	g.last = long
	g.left(12_345)
	if out.String() != "\r\x1b[K12,345 URLs left" {
		t.Errorf("it shows %q", out.String())
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
