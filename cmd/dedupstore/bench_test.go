package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"
)

// TestBenchInterrupted leaves nothing behind.
func TestBenchInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	b := bench{dir: t.TempDir(), workers: 2}
	_, err := b.run(ctx, &program{stderr: io.Discard}, generateLoad(5000))
	if !errors.Is(err, errInterrupted) {
		t.Errorf("got error %v, want %v", err, errInterrupted)
	}
	if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestGenerateLoad(t *testing.T) {
	l := generateLoad(5000)
	all := slices.Concat(l.keys, l.unknown)
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 10_000 {
		t.Errorf("%d distinct URLs, want 10,000", n)
	}
}

func TestLatencies(t *testing.T) {
	var took []time.Duration
	if got := latenciesOf(took); got != (latencies{}) {
		t.Errorf("of none: got %+v", got)
	}
	for i := range 1000 {
		took = append(took, time.Duration((i*7)%1000)+1)
	}
	if got, want := latenciesOf(took), (latencies{Calls: 1000, Median: 500, P99: 990, Max: 1000}); got != want {
		t.Errorf("of 1 to 1000: got %+v, want %+v", got, want)
	}
	for d, want := range map[time.Duration]string{0: "0s", 999: "999ns", 1234: "1.23µs", 12_345_678: "12.3ms"} {
		if got := short(d); got != want {
			t.Errorf("%d ns: got %s, want %s", d, got, want)
		}
	}
}
