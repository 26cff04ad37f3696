package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errInjected = errors.New("as a test wants it")

// failNth is the fault that lets the n-th operation that matches fail, counted
// from arm on, and every one after it. It counts them in *seen.
func failNth(w *world, n int64, err error, match func(errorfs.Op) bool) (arm func(), seen *atomic.Int64) {
	var armed atomic.Bool
	seen = new(atomic.Int64)
	w.fault = func(op errorfs.Op) error {
		if armed.Load() && match(op) && seen.Add(1) >= n {
			return err
		}
		return nil
	}
	return func() { armed.Store(true) }, seen
}

// TestPoison lets every write and every sync of the log fail in turn, each in
// a run of a short script of its own, at each level.
func TestPoison(t *testing.T) {
	for _, d := range []Durability{Interval, Sync, NoSync} {
		for what, match := range map[string]func(errorfs.Op) bool{"write": isWrite, "sync": isSync} {
			for n := int64(1); ; n++ {
				more := true
				t.Run(fmt.Sprintf("%v/%s/%d", d, what, n), func(t *testing.T) {
					more = poisonAt(t, d, n, func(op errorfs.Op) bool { return isLog(op) && match(op) })
				})
				if !more || t.Failed() {
					break
				}
			}
		}
	}
}

// poisonAt runs the script with the n-th operation failing. It reports false
// if the script has fewer.
func poisonAt(t *testing.T, d Durability, n int64, match func(errorfs.Op) bool) bool {
	w := inMemory(t)
	w.memtableWords, w.o.Durability, w.o.SyncInterval = 40, d, time.Millisecond
	arm, seen := failNth(w, n, errInjected, match)
	s := w.open()
	s.add(New, keys(0, 30)...)
	s.flush()
	arm()

	// What was answered is remembered by both: Has, and a reopen.
	ctx := t.Context()
	var mu sync.Mutex
	answered := keys(0, 30)
	var script sync.WaitGroup
	var first error
	for g := range 2 {
		script.Go(func() {
			for i := range 6 {
				part := keys(1000*g+100+i*5, 1000*g+105+i*5)
				answers := make([]Answer, len(part))
				err := s.AddBatch(ctx, part, answers)
				mu.Lock()
				for j, a := range answers {
					if a == New {
						answered = append(answered, part[j])
					} else if err == nil || a != Unanswered {
						t.Errorf("%s: got %v and error %v", part[j], a, err)
					}
				}
				if err != nil && first == nil {
					first = err
				}
				mu.Unlock()
				if i == 3 && g == 0 {
					_ = s.Sync(ctx)
				}
			}
		})
	}
	within(t, "the script", start(script.Wait))
	if err := s.Flush(ctx); err != nil && first == nil {
		first = err
	}
	poisoned := seen.Load() >= n
	if !poisoned {
		// The last operations are Close's own.
		s.once.Do(func() { s.Close() })
	} else {
		if first != nil {
			is(t, "the first error", first, ErrPoisoned, errInjected)
		}
		eventually(t, "the poison", func() bool { return s.Err() != nil })
		for _, k := range []string{"new", key(1), key(100)} {
			added, err := s.Add(ctx, k)
			is(t, "Add", err, ErrPoisoned, errInjected)
			if added {
				t.Errorf("Add of %s is answered new", k)
			}
			if !errors.Is(err, s.Err()) {
				t.Errorf("Add: got %v, want the same error for all: %v", err, s.Err())
			}
		}
		is(t, "Flush", s.Flush(ctx), ErrPoisoned)
		s.has(Seen, keys(0, 30)...) // flushed before
		// Whatever else was answered is still answered so, or with the error.
		for _, k := range answered {
			if has, err := s.Has(ctx, k); err == nil && !has {
				t.Errorf("%s was new, and is not there", k)
			} else if err != nil {
				is(t, "Has", err, ErrPoisoned)
			}
		}
		x := s.Stats()
		if x.Err == "" {
			t.Error("Stats says nothing of the poison")
		}
		var err error
		within(t, "Close", start(func() { s.once.Do(func() { err = s.Close() }) }))
		is(t, "Close", err, ErrPoisoned)
	}

	after := *w
	after.fault = nil
	again := after.open()
	again.has(Seen, answered...)
	again.add(Seen, answered...)
	again.add(New, "after")
	again.close()
	return poisoned
}

// isManifest matches what makes a change of Pebble's durable.
func isManifest(op errorfs.Op) bool {
	return strings.HasPrefix(filepath.Base(op.Path), "MANIFEST-") && (isWrite(op) || isSync(op))
}

// TestPebbleCannotGoOn fails Pebble's MANIFEST under a flush, and under a
// compaction. Pebble is not to be touched then but for Gets; nobody hangs.
func TestPebbleCannotGoOn(t *testing.T) {
	for _, where := range []string{"flush", "compaction"} {
		t.Run(where, func(t *testing.T) {
			w := inMemory(t)
			w.memtableWords = 400
			arm, _ := failNth(w, 1, errInjected, isManifest)
			s := w.open()
			s.add(New, keys(0, 300)...)
			s.flush()
			s.has(Seen, keys(0, 100)...)
			s.add(New, keys(300, 400)...)
			if where == "flush" {
				arm()
				is(t, "Flush", s.Flush(t.Context()), ErrPoisoned)
			} else {
				s.flush()
				arm()
				// In Pebble's own goroutine, which ends there.
				go func() { _ = s.db.Compact(context.Background(), []byte{0, 0, 0, 1}, []byte{0, 0, 0, 2}, false) }()
			}
			eventually(t, "the poison", func() bool { return s.Err() != nil })
			_, err := s.Add(t.Context(), "new")
			is(t, "Add", err, ErrPoisoned)
			within(t, "what goes on", start(func() {
				s.has(Seen, keys(0, 300)...)
				_ = s.Stats()
				_, err := s.Verify(t.Context(), VerifyOptions{Deep: true})
				is(t, "Verify", err, ErrPoisoned)
			}))
			within(t, "Close", start(func() { s.once.Do(func() { err = s.Close() }) }))
			is(t, "Close", err, ErrPoisoned)

			// A new process opens what is on the disk.
			after := w.crash(seeded(t), 100)
			again := after.open()
			again.add(Seen, keys(0, 400)...)
			again.add(New, "new")
		})
	}
}

// TestIngestAfterDeadCompaction has a compaction's MANIFEST sync fail between
// a flush's beginning and its ingest, whose own sync then succeeds, over bytes
// that are gone: nothing may rest on it.
func TestIngestAfterDeadCompaction(t *testing.T) {
	w := inMemory(t)
	g := newGate(t)
	var held atomic.Bool
	w.point = func(name string) {
		if name == "flush" && held.Load() {
			g.pass()
		}
	}
	var failing atomic.Bool
	w.fault = func(op errorfs.Op) error {
		if isManifest(op) && isSync(op) && failing.CompareAndSwap(true, false) {
			return errInjected
		}
		return nil
	}
	s := w.open()
	for i := range 2 {
		s.add(New, keys(i*100, i*100+100)...)
		s.flush()
	}
	s.add(New, keys(200, 300)...)
	held.Store(true)
	var err error
	flushed := start(func() { err = s.Flush(t.Context()) })
	within(t, "the flush", g.reached)
	failing.Store(true)
	go func() { _ = s.db.Compact(context.Background(), []byte{0, 0, 0, 1}, []byte{0, 0, 0, 2}, false) }()
	eventually(t, "the poison", func() bool { return s.Err() != nil })
	g.open()
	within(t, "Flush", flushed)
	is(t, "Flush", err, ErrPoisoned)
	s.once.Do(func() { err = s.Close() })
	is(t, "Close", err, ErrPoisoned)
	names, err := w.mem.List(w.mem.PathJoin(w.dir, logDir))
	must(t, err)
	if len(names) < 2 {
		t.Errorf("the log file of a flush that did not count is gone; there are %v", names)
	}
	w.crash(seeded(t), 100).open().add(Seen, keys(0, 300)...)
}

// TestOpenWherePebbleCannotGoOn fails the MANIFEST in the recovery of a store,
// and in the creation of one: Open returns, it does not end the goroutine that
// called it.
func TestOpenWherePebbleCannotGoOn(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.add(New, keys(0, 100)...)
	killed := w.crash(seeded(t), 100)
	s.close()
	for what, place := range map[string]*world{"recovery": killed, "creation": inMemory(t)} {
		var armed atomic.Bool
		armed.Store(true)
		place.fault = func(op errorfs.Op) error {
			if armed.Load() && isManifest(op) && isSync(op) {
				return errInjected
			}
			return nil
		}
		var err error
		returned := false
		within(t, "Open", start(func() {
			_, err = Open(place.dir, place.options())
			returned = true
		}))
		if !returned {
			t.Errorf("%s: Open has ended its goroutine", what)
		} else if err == nil {
			t.Errorf("%s: Open has opened the store", what)
		}
	}
	after := killed.crash(seeded(t), 100)
	after.open().add(Seen, keys(0, 100)...)
}

// TestBitmapSyncFails poisons the store by the bitmap.
func TestBitmapSyncFails(t *testing.T) {
	w := inMemory(t)
	var armed atomic.Bool
	w.twin.Fail = func(op, _ string) error {
		if op == "sync" && armed.Load() {
			return errInjected
		}
		return nil
	}
	s := w.open()
	s.add(New, keys(0, 100)...)
	armed.Store(true)
	_ = s.Flush(t.Context()) // the words are in Pebble before the sync fails
	eventually(t, "the poison", func() bool { return s.Err() != nil })
	_, err := s.Add(t.Context(), "new")
	is(t, "Add", err, ErrPoisoned, errInjected)
	s.has(Seen, keys(0, 100)...)
	within(t, "Close", start(func() { s.once.Do(func() { err = s.Close() }) }))
	is(t, "Close", err, ErrPoisoned)
	armed.Store(false)
	w.crash(seeded(t), 0).open().add(Seen, keys(0, 100)...)
}

// TestDiskFull fills the disk under a flush: adds go on as long as there is
// room in the memtables, and then say ErrDiskFull without marking anything;
// lookups go on; space heals.
func TestDiskFull(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 200
	s := w.open()
	s.add(New, keys(0, 100)...)
	s.flush()
	w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 10, TotalBytes: 1 << 30})
	n := 100
	var err error
	for n < 10_000 && err == nil {
		var added bool
		if added, err = s.Add(t.Context(), key(n)); err == nil {
			if !added {
				t.Fatalf("%s is seen", key(n))
			}
			n++
		}
	}
	is(t, "Add", err, ErrDiskFull)
	if n < 300 {
		t.Errorf("only %d keys were taken", n)
	}
	s.has(Seen, keys(0, n)...)
	s.has(New, key(n))
	s.add(Seen, keys(0, n)...)
	is(t, "Flush", s.Flush(t.Context()), ErrDiskFull)
	if err := s.Err(); err != nil {
		t.Errorf("a full disk poisons: %v", err)
	}
	if x := s.Stats(); len(x.Warnings) == 0 {
		t.Error("Stats does not warn of the full disk")
	}
	w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 29, TotalBytes: 1 << 30})
	s.flush() // at once, not when it was tried for the last time
	s.add(New, keys(n, n+500)...)
	s.urls(n + 500)
}

// TestDiskFullAtClose closes a store that cannot flush. Nothing is lost.
func TestDiskFullAtClose(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.add(New, keys(0, 100)...)
	w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 10, TotalBytes: 1 << 30})
	var err error
	within(t, "Close", start(func() { s.once.Do(func() { err = s.Close() }) }))
	is(t, "Close", err, ErrDiskFull)
	w.verify()

	full := w.open() // serves lookups
	full.has(Seen, keys(0, 100)...)
	_, err = full.Add(t.Context(), "new")
	is(t, "Add", err, ErrDiskFull)
	full.urls(100)
	full.close()

	w.mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 29, TotalBytes: 1 << 30})
	s = w.open()
	s.add(Seen, keys(0, 100)...)
	s.add(New, "new")
}

// TestFlushMakesRoom has no room on the disk for the next log file until the
// frozen memtable's is unlinked.
func TestFlushMakesRoom(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 100
	var s *testStore
	hold := newGate(t)
	w.point = func(name string) {
		if name == "flush" {
			hold.pass()
		}
	}
	var full atomic.Bool
	w.fault = func(op errorfs.Op) error {
		if full.Load() && isLog(op) && op.Kind == errorfs.OpCreate {
			names, err := w.mem.List(w.mem.PathJoin(w.dir, logDir))
			if err != nil || len(names) >= 2 {
				return syscall.ENOSPC
			}
		}
		return nil
	}
	s = w.open()
	full.Store(true)
	defer full.Store(false)
	within(t, "adds", start(func() {
		n := 0
		for ; s.current.Load().frozen == nil && n < 150; n++ {
			if n == 90 {
				full.Store(false)
				eventually(t, "the next log file", s.log.Prepared)
				full.Store(true)
			}
			s.add(New, key(n))
		}
		hold.open()
		// The memtable fills up to where the next log file is made, which
		// there is no room for before the frozen one's file has gone.
		for range 400 {
			var err error
			for range 1000 {
				var added bool
				if added, err = s.Add(context.Background(), key(n)); !errors.Is(err, ErrDiskFull) {
					if err == nil && !added {
						t.Errorf("%s is seen", key(n))
					}
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err != nil {
				t.Errorf("Add: %v", err)
				return
			}
			n++
		}
	}))
}

// TestDiskFullForCompactions leaves no room for what Pebble merges, so that a
// flush has to wait without end: adds say ErrDiskFull, and so does Close.
func TestDiskFullForCompactions(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 100
	var full atomic.Bool
	w.fault = func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate && filepath.Base(filepath.Dir(op.Path)) == pebbleDir && filepath.Ext(op.Path) == ".sst" {
			return syscall.ENOSPC
		}
		return nil
	}
	s := w.open()
	full.Store(true)
	var err error
	n := 0
	within(t, "adds", start(func() {
		for ; n < 10_000 && err == nil; n++ {
			_, err = s.Add(context.Background(), key(n))
		}
	}))
	n--
	is(t, "Add", err, ErrDiskFull)
	s.has(Seen, keys(0, n)...)
	s.has(New, key(n))
	within(t, "Flush", start(func() { is(t, "Flush", s.Flush(context.Background()), ErrDiskFull) }))
	if err := s.Err(); err != nil {
		t.Errorf("a full disk poisons: %v", err)
	}
	full.Store(false)
	eventually(t, "a flush", func() bool { return s.Flush(context.Background()) == nil })
	s.add(New, keys(n, n+1000)...)
	s.urls(n + 1000)
}
