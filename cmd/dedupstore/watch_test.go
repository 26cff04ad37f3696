package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"dedupstore/internal/seam"
	"dedupstore/store"
)

// published is a STATUS for tests.
func published(second, news, seen, flushes, builds int64) *store.Status {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &store.Status{When: start.Add(time.Duration(second) * time.Second), PID: 7, Host: "h", Opened: start}
	s.URLs, s.Answers = news, store.AnswerStats{New: news, Seen: seen}
	s.Flush.Flushes, s.Build.Builds = flushes, builds
	s.Disk.Total, s.Log.UnsyncedRecords = 3<<30, 12_345
	return s
}

// TestWatchLine compares two publications.
func TestWatchLine(t *testing.T) {
	before := published(10, 1_000_000, 5000, 3, 1)
	text := func(now *store.Status) string {
		line := newWatchLine(before, now, 1500*time.Millisecond).String()
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ") // the time of day is the zone's
		return strings.Join(strings.Fields(line), " ")
	}
	other, reopened := published(14, 2_000_000, 0, 1, 0), published(14, 2_000_000, 0, 1, 0)
	other.PID = 8
	reopened.Opened = reopened.Opened.Add(time.Second)
	for name, test := range map[string]struct {
		now  *store.Status
		want string
	}{
		"later":         {published(14, 3_469_134, 25_000, 8, 2), "1.5s 3,469,134 617,284 5,000 3.0 GiB 12,345 5 1"},
		"nothing done":  {published(12, 1_000_000, 5000, 3, 1), "1.5s 1,000,000 0 0 3.0 GiB 12,345 0 0"},
		"none later":    {before, "1.5s 1,000,000 - - 3.0 GiB 12,345 0 0"},
		"clock is back": {published(9, 2_000_000, 5000, 3, 1), "1.5s 2,000,000 - - 3.0 GiB 12,345 0 0"},
		"another one":   {other, "1.5s 2,000,000 - - 3.0 GiB 12,345 0 0"},
		"reopened":      {reopened, "1.5s 2,000,000 - - 3.0 GiB 12,345 0 0"},
	} {
		if got := text(test.now); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	line := newWatchLine(before, before, 0).String()
	if len(line) != len(watchHeader) {
		t.Errorf("a line has %d characters, its header %d:\n%s%s", len(line), len(watchHeader), watchHeader, line)
	}
	var flat map[string]any
	b, err := json.Marshal(newWatchLine(before, before, 0))
	if err := json.Unmarshal(b, &flat); err != nil || flat["new_per_s"] != nil {
		t.Errorf("got %s, %v, want a rate that is null", b, err)
	}
	if err != nil {
		t.Error(err)
	}
}

// holding opens a store that publishes all the time.
func holding(t *testing.T) (dir string, s *store.Store) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "s")
	o := &store.Options{ExpectedURLs: 1000}
	store.SetSeams(o, seam.Seams{StatusInterval: time.Millisecond})
	s, err := store.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return dir, s
}

// watching starts a watch and returns it behind its first line.
func watching(t *testing.T, dir string) (cmd *exec.Cmd, lines *bufio.Scanner, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), "dedupstore", "stats", "--watch", "2ms", "--store", dir)
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	_, stdout := startPiped(t, cmd)
	lines = bufio.NewScanner(stdout)
	for range 2 {
		if !lines.Scan() {
			t.Fatalf("no line: %s", stderr)
		}
	}
	return cmd, lines, stderr
}

// TestWatchInterrupted ends a watch, which is how one ends.
func TestWatchInterrupted(t *testing.T) {
	dir, _ := holding(t)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, lines, stderr := watching(t, dir)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
		}
		if code := exitCode(t, cmd.Wait()); code != exitOK || stderr.Len() > 0 {
			t.Errorf("%v: exit code %d and %q, want 0 and nothing", sig, code, stderr)
		}
	}
}

// TestWatchEnds closes the store that is watched.
func TestWatchEnds(t *testing.T) {
	dir, s := holding(t)
	cmd, lines, stderr := watching(t, dir)
	if _, err := s.Add(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() && strings.Fields(lines.Text())[2] != "1" {
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if code := exitCode(t, cmd.Wait()); code != exitOK || !strings.Contains(stderr.String(), errHolderEnded.Error()) {
		t.Errorf("exit code %d and %q, want 0 and a word about it", code, stderr)
	}
}

// TestWatchReaderGone ends a watch that nobody reads.
func TestWatchReaderGone(t *testing.T) {
	dir, _ := holding(t)
	cmd := exec.CommandContext(t.Context(), "dedupstore", "stats", "--watch", "1ms", "--store", dir)
	_, stdout := startPiped(t, cmd)
	stdout.Close()
	if code := exitCode(t, cmd.Wait()); code != exitOK {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestWatchWaits looks for figures that do not come: of a process that goes on,
// and of one that was killed.
func TestWatchWaits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	o := &store.Options{ExpectedURLs: 1000}
	store.SetSeams(o, seam.Seams{StatusInterval: time.Hour})
	s, err := store.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{dir: dir}
	before, err := store.ReadStatus(dir)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := p.newerStatus(t.Context(), before, 1); err != nil || !now.When.Equal(before.When) {
		t.Errorf("of a process that is there: got %+v, %v", now, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.newerStatus(ctx, before, time.Hour); err != context.Canceled {
		t.Errorf("interrupted: got error %v", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "STATUS"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "STATUS"), string(text))
	if _, err := p.newerStatus(t.Context(), before, 1); err != errHolderEnded {
		t.Errorf("of a process that was killed: got error %v", err)
	}
}
