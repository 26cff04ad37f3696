package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
)

// Calls of the file system fail: once, or from then on. The store says so with
// an error that has a type, nobody hangs, nothing panics, and what was
// answered is there when the disk is sound again.

var crashAllCalls = flag.Bool("crash.calls", false, "fail every call in TestEveryCallFails, and not one in four, and cut the power at more passages in TestCrashAtEachStep")

// crashDeadline is how long anything may take that does not hang.
const crashDeadline = 10 * time.Second

// crashWithin fails the test with all goroutines if f hangs, or if f is ended
// before its end.
func crashWithin(t *testing.T, what string, f func()) {
	t.Helper()
	finished := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
		finished = true
	}()
	select {
	case <-done:
		if !finished {
			t.Errorf("%s: the calling goroutine was ended", what)
		}
	case <-time.After(crashDeadline):
		stacks := make([]byte, 16<<20)
		t.Fatalf("%s hangs\n%s", what, stacks[:runtime.Stack(stacks, true)])
	}
}

// TestManifestSyncFails fails a sync of Pebble's MANIFEST under a flush. Pebble
// cannot go on; the store can say so.
func TestManifestSyncFails(t *testing.T) {
	disk := crashfs.New()
	s, err := Open(crashDir, crashOptions(disk, Sync, 50, nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	var answered, flushed []string
	add := func(i int) error {
		added, err := s.Add(ctx, crashKey(i))
		if err == nil && added {
			answered = append(answered, crashKey(i))
		}
		return err
	}
	for i := range 40 {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	flushed = append(flushed, answered...)

	var failed atomic.Int64
	disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == "sync" && strings.Contains(op.Path, "MANIFEST") {
			failed.Add(1)
			return syscall.EIO
		}
		return nil
	})
	// Waiters of each kind: for a flush, for room, for a sync.
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	crashWithin(t, "waiters", func() {
		for range 2 {
			wg.Go(func() { errs <- s.Flush(ctx) })
		}
		for w := range 3 {
			wg.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Sprint("w", w, "-", i)
					added, err := s.Add(ctx, key)
					if err != nil {
						errs <- err
						return
					}
					if !added {
						t.Errorf("%s is not new", key)
					}
				}
			})
		}
		wg.Wait()
	})
	close(errs)
	poisoned := 0
	for err := range errs {
		if err == nil {
			continue // a Flush that found nothing to do
		}
		if !errors.Is(err, ErrPoisoned) || !errors.Is(err, syscall.EIO) && !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("got %v, want ErrPoisoned and the cause", err)
		}
		poisoned++
	}
	if poisoned < 3 || s.Err() == nil || failed.Load() == 0 {
		t.Fatalf("%d calls are poisoned, %d syncs failed, Err is %v", poisoned, failed.Load(), s.Err())
	}
	crashWithin(t, "lookups", func() {
		for _, key := range flushed {
			if has, err := s.Has(ctx, key); err != nil || !has {
				t.Errorf("has %s: %v, %v", key, has, err)
			}
		}
		if has, err := s.Has(ctx, "never"); err != nil || has {
			t.Errorf("has never: %v, %v", has, err)
		}
		if st := s.Stats(); st.Err == "" {
			t.Error("Stats does not tell the poison")
		}
	})
	start := time.Now()
	crashWithin(t, "close", func() {
		if err := s.Close(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("close: %v", err)
		}
	})
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("close took %v", d)
	}
	// The directory stays this process's: Pebble may still be at it.
	if _, err := Open(crashDir, crashOptions(disk, Sync, 50, nil)); !errors.Is(err, ErrLocked) {
		t.Errorf("open in the same process: %v, want ErrLocked", err)
	}
	for _, percent := range []int{0, 100} {
		crashReopens(t, disk, percent, answered)
	}
}

// crashReopens opens what a crash leaves as another process would, and looks
// for what was answered.
func crashReopens(t *testing.T, disk *crashfs.Disk, percent int, answered []string) {
	t.Helper()
	image := disk.Clone()
	if percent == 0 {
		image = disk.Crash(rand.New(rand.NewPCG(1, 1)), 0)
	}
	s, err := Open(crashDir, crashOptions(image, Sync, 50, nil))
	if err != nil {
		if len(answered) == 0 && !crashHasStore(image) {
			return
		}
		t.Errorf("reopen, %d %%: %v", percent, err)
		return
	}
	for _, key := range answered {
		if has, err := s.Has(context.Background(), key); err != nil || !has {
			t.Errorf("reopen, %d %%: %s is lost: %v, %v", percent, key, has, err)
			break
		}
	}
	crashVerify(t, s, t.Errorf)
	if err := s.Close(); err != nil {
		t.Errorf("close after reopen, %d %%: %v", percent, err)
	}
}

func crashHasStore(disk *crashfs.Disk) bool { return disk.Read(crashDir+"/"+identityName) != nil }

// crashScript does a bit of everything and returns what was answered as new,
// and the errors on the way.
func crashScript(t *testing.T, disk *crashfs.Disk) (answered []string, errs []error) {
	ctx := t.Context()
	s, err := Open(crashDir, crashOptions(disk, Sync, 20, nil))
	if err != nil {
		return nil, []error{err}
	}
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for i := range 50 {
		// A full disk is waited for by nobody for ever.
		added, err := s.Add(ctx, crashKey(i))
		if note(err); err == nil && added {
			answered = append(answered, crashKey(i))
		}
		if i%25 == 24 {
			note(s.Flush(ctx))
		}
	}
	for _, key := range answered {
		// What was answered is answered again, or there is an error.
		if has, err := s.Has(ctx, key); err == nil && !has {
			t.Errorf("%s was answered, and is new with a failing disk", key)
		}
	}
	s.Stats()
	note(s.Sync(ctx))
	note(s.Close())
	return answered, errs
}

// TestEveryCallFails fails the n-th call of the file system, for every n: with
// a full disk and with an error of the disk, once and from then on.
func TestEveryCallFails(t *testing.T) {
	rng := rand.New(rand.NewPCG(crashNewSeed(t), 6))
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
		for _, sticky := range []bool{false, true} {
			counts := map[string]int{}
			for n := int64(1); ; n++ {
				if !*crashAllCalls {
					n += rng.Int64N(7)
				}
				disk := crashfs.New()
				f := &crashfs.Failures{Err: errno, N: n, Sticky: sticky, Can: func(op crashfs.Op) bool { return crashCanFail(op, errno) }}
				disk.Fail(f)
				var answered []string
				var errs []error
				crashWithin(t, fmt.Sprintf("%v at call %d, sticky %v", errno, n, sticky), func() {
					answered, errs = crashScript(t, disk)
				})
				if f.Calls() < n {
					t.Logf("%v, sticky %v: %d calls: %v", errno, sticky, n-1, counts)
					break
				}
				what := fmt.Sprintf("%v at call %d (%s), sticky %v", errno, n, f.Where(), sticky)
				for _, err := range errs {
					if !crashTyped(err, errno) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if len(errs) == 0 {
					counts["unnoticed"]++
				} else if errors.Is(errs[0], ErrDiskFull) {
					counts["disk full"]++
				} else if errors.Is(errs[0], ErrPoisoned) {
					counts["poisoned"]++
				} else {
					counts["open fails"]++
				}
				disk.SetHook(nil)
				crashWithin(t, what+": reopen", func() { crashReopens(t, disk, 100, answered) })
				crashWithin(t, what+": reopen", func() { crashReopens(t, disk, 0, answered) })
				if t.Failed() {
					t.Fatalf("stopped at %s", what)
				}
			}
		}
	}
}

// TestOpenOnFullDisk opens what a kill has left, on a disk that is full: by
// what it says of itself, or from some call on. What was answered is served,
// nothing is taken, and with space it is a store like any other.
func TestOpenOnFullDisk(t *testing.T) {
	killed := damageStores(t)["killed"]
	served := 0
	for n := int64(-1); n < 60; n++ {
		disk := killed.Clone()
		var calls atomic.Int64
		if n < 0 {
			disk.SetFree(1 << 20)
		} else {
			disk.SetHook(func(op crashfs.Op) error {
				if crashCanFail(op, syscall.ENOSPC) && calls.Add(1) > n {
					return syscall.ENOSPC
				}
				return nil
			})
		}
		what := fmt.Sprintf("full after %d calls", n)
		crashWithin(t, what, func() {
			s, err := Open(crashDir, crashOptions(disk, Sync, 30, nil))
			if err != nil {
				if n <= 0 || !crashTyped(err, syscall.ENOSPC) {
					t.Errorf("%s: %v", what, err)
				}
				return
			}
			if n := len(crashLook(t, s)); n != damageKeys+1 {
				t.Errorf("%s: %d keys are seen, want %d", what, n, damageKeys+1)
			}
			if _, err := s.Add(t.Context(), "new"); errors.Is(err, ErrDiskFull) {
				served++
			} else if err != nil && !errors.Is(err, ErrPoisoned) {
				t.Errorf("%s: add: %v", what, err)
			}
			if n < 0 {
				crashVerify(t, s, t.Errorf)
			}
			_ = s.Close() // it may be unable to flush
		})
		disk = disk.Clone()
		s, err := Open(crashDir, crashOptions(disk, Sync, 30, nil))
		if err != nil {
			t.Fatalf("%s: with space again: %v", what, err)
		}
		seen := crashLook(t, s)
		for i := range damageKeys + 1 {
			if !seen[crashKey(i)] {
				t.Errorf("%s: key %d is lost", what, i)
			}
		}
		crashVerify(t, s, t.Errorf)
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
		}
	}
	t.Logf("served without taking: %d of 61", served)
	if served < 10 {
		t.Errorf("a full disk keeps the store from opening")
	}
}

// crashCanFail says which calls fail: those that need space, or all.
func crashCanFail(op crashfs.Op, errno syscall.Errno) bool {
	if errno != syscall.ENOSPC {
		return op.Kind != "lock"
	}
	switch op.Kind {
	case "create", "link", "rename", "mkdir", "write", "preallocate", "sync", "map-create", "map-rename", "map-sync":
		return true
	}
	return false
}

// crashTyped reports whether an error of the script says what to do. What the
// disk says in Open is the caller's to see as it is.
func crashTyped(err error, errno syscall.Errno) bool {
	for _, target := range []error{ErrDiskFull, ErrPoisoned, errno, ErrCorrupt} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
