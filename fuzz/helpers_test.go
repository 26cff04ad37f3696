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
