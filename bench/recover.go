package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"dedupstore/store"
)

func recoverCommand(args []string) error {
	f := newFlags("recover")
	n := f.Int("n", 2_000_000, "distinct URLs in the store")
	dir := f.String("store", "", "directory of the store; empty: a temporary one")
	memory := f.Int64("memory", 0, "Options.MemoryBytes; 0: the default")
	if err := f.Parse(args); err != nil {
		return err
	}
	path, clean, err := tempStore(*dir)
	if err != nil {
		return err
	}
	defer clean()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	fill := exec.Command(self, "fill", "-crash", "-n", strconv.Itoa(*n), "-store", path,
		"-memory", strconv.FormatInt(*memory, 10))
	fill.Stdout, fill.Stderr = os.Stdout, os.Stderr
	if err := fill.Run(); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	for _, how := range []string{"kill -9", "Close"} {
		if err := reopen(path, how, *n, *memory); err != nil {
			return err
		}
	}
	return nil
}

// reopen opens the store with a cold cache, prints how long that took, and
// closes it.
func reopen(path, after string, n int, memory int64) error {
	cache := dropCaches()
	start := time.Now()
	s, err := store.Open(path, &store.Options{MustExist: true, MemoryBytes: memory})
	if err != nil {
		return err
	}
	took := time.Since(start)
	st := s.Stats()
	fmt.Printf("open after %s, %s: %v; replayed %d words of %d log files, set the bits of %d again\n",
		after, cache, took.Round(time.Millisecond), st.Recovery.Words, st.Recovery.LogFiles, st.Recovery.BitsSetAgain)
	if st.URLs < int64(n) {
		return fmt.Errorf("the store has %d URLs, want %d", st.URLs, n)
	}
	return s.Close()
}
