package fuzz

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
	"dedupstore/store"
)

const dir = "/s"

// levels are what a byte of an input chooses one of.
var levels = [...]store.Durability{store.Interval, store.Sync, store.NoSync}

// options are those of a store on a disk in memory.
func options(d *crashfs.Disk, level store.Durability, memtable int, span int64) *store.Options {
	o := &store.Options{
		Hash: store.HashXXH64, Durability: level,
		SyncInterval: time.Hour, // an input decides when to sync
		ExpectedURLs: 20, MemoryBytes: 1 << 20,
	}
	seams := d.Seams()
	seams.MemtableWords, seams.SpanWords = memtable, span
	store.SetSeams(o, seams)
	return o
}

// A clock is moved by the operations of an input.
type clock struct {
	mu         sync.Mutex
	wall       time.Time
	mono, boot time.Duration
	boots      byte
}

func (c *clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *clock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono
}

func (c *clock) Boot() (time.Duration, [16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot, [16]byte{c.boots, 1}
}

// pass lets time pass.
func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono, c.boot = c.wall.Add(d), c.mono+d, c.boot+d
}

// reboot lets the machine boot again, with a clock that is right, or not.
func (c *clock) reboot(wrong time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono, c.boot = c.wall.Add(time.Minute+wrong), 0, 0
	c.boots++
}

func (c *clock) set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(by)
}

var randomMu sync.Mutex

// create makes a store whose random keys are the same each time, so that the
// bytes of a corpus mean the same in each run.
func create(tb testing.TB, d *crashfs.Disk, seed byte, o *store.Options) *store.Store {
	tb.Helper()
	randomMu.Lock()
	defer randomMu.Unlock()
	was := crand.Reader
	crand.Reader = rand.NewChaCha8([32]byte{seed})
	defer func() { crand.Reader = was }()
	s, err := store.Open(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// within fails the process if f takes so long that it hangs.
func within(limit time.Duration, what string, f func()) {
	t := time.AfterFunc(limit, func() { panic(what + " hangs") })
	defer t.Stop()
	f()
}

func key(i int) string { return fmt.Sprintf("http://example.org/%d", i) }

// verify checks everything there is to check.
func verify(tb testing.TB, s *store.Store) {
	tb.Helper()
	r, err := s.Verify(context.Background(), store.VerifyOptions{Deep: true})
	if err != nil {
		tb.Fatalf("verify: %v", err)
	}
	if !r.OK() {
		tb.Fatalf("verify: %+v", r.Faults)
	}
}
