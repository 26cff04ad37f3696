package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// snapshotSteps are the points that a snapshot passes.
var snapshotSteps = []string{"snapshot-cut", "snapshot-copied", "snapshot-whole", "snapshot-renamed"}

// TestSnapshotCrash cuts the power at each step of a snapshot. The store is as
// it was, and the copy is whole or not there, and then can be made.
func TestSnapshotCrash(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		for _, at := range append(snapshotSteps, "returned") {
			t.Run(fmt.Sprint(at, percent), func(t *testing.T) {
				rng := seeded(t)
				w := inMemory(t).spanned()
				w.o.Durability = Sync
				var after *world
				w.point = func(point string) {
					if point == at {
						after = w.crash(rng, percent)
					}
				}
				s := w.open()
				s.add(New, keys(0, 500)...)
				s.flush()
				s.add(New, keys(500, 700)...)
				s.snapshot("/copy")
				if at == "returned" {
					after = w.crash(rng, percent)
				}
				s = after.open()
				s.urls(700)
				s.has(Seen, keys(0, 700)...)
				copied := after.restored("/copy")
				is := isThere(t, after.mem.Stat, copied.dir)
				whole := isThere(t, after.mem.Stat, "/copy.tmp/"+identityName)
				switch {
				case at == "returned" && !is:
					t.Fatal("there is no copy")
				case is:
					copied.verify()
				case whole: // it takes somebody who says what is to become of it
					if err := s.Snapshot(t.Context(), copied.dir); err == nil {
						t.Error("a whole store was replaced")
					}
					copied = after.restored("/copy.tmp")
					copied.verify()
				default:
					s.add(New, keys(700, 710)...)
					s.snapshot(copied.dir)
				}
				copied.open().has(Seen, keys(0, 700)...)
			})
		}
	}
}

// TestSnapshotCallsFail fails each call of the file system that a snapshot
// makes, once; one in so many under the race detector. There is an error and no copy, and the store goes on.
func TestSnapshotCallsFail(t *testing.T) {
	for n := int64(1); ; n += damageThin {
		var at string
		var calls atomic.Int64
		var armed atomic.Bool
		w := inMemory(t).spanned()
		w.o.Durability = NoSync // no sync beside the calls
		w.fault = func(op errorfs.Op) error {
			if !armed.Load() || calls.Add(1) != n {
				return nil
			}
			at = fmt.Sprintf("call %d, %v of %s", n, op.Kind, op.Path)
			return syscall.EIO
		}
		s := w.open()
		s.add(New, keys(0, 500)...)
		s.flush()
		s.healthy()
		must(t, s.Compact(t.Context()))
		s.add(New, keys(500, 600)...)
		must(t, s.Sync(t.Context()))
		s.idle()
		armed.Store(true)
		err := s.Snapshot(t.Context(), "/copy")
		armed.Store(false)
		if at == "" {
			must(t, err)
			w.restored("/copy").verify()
			t.Logf("%d calls", n-1)
			return
		}
		if err == nil {
			w.restored("/copy").verify() // it did without what has failed
		} else {
			if !errors.Is(err, ErrLocked) { // what a lock in memory says, whatever it was
				is(t, at, err, syscall.EIO)
			}
			if isThere(t, w.mem.Stat, "/copy") {
				t.Errorf("%s: there is a copy", at)
			}
		}
		must(t, s.Err())
		s.add(New, keys(600, 1000)...)
		s.flush()
		switch err := s.Snapshot(t.Context(), "/again"); {
		case err != nil:
			t.Fatalf("%s: the next snapshot: %v", at, err)
		default:
			w.restored("/again").verify()
		}
		s.urls(1000)
		s.close()
		if t.Failed() {
			t.Fatal(at)
		}
	}
}

// TestSnapshotOnFullDisk has the disk full at each moment of a snapshot. It
// leaves nothing, and what is free is what was free before.
func TestSnapshotOnFullDisk(t *testing.T) {
	const n = 20_000
	w, disk := onSmallDisk(t, 64<<20)
	w.o.MinFreeBytes = 1 << 20
	s := w.open()
	s.add(New, keys(0, n)...)
	s.flush()
	s.add(New, keys(n, n+5000)...)
	s.healthy()
	made := false
	for free := int64(0); !made; free += 256 << 10 {
		if free > 32<<20 {
			t.Fatal("no space is enough")
		}
		disk.others(free)
		err := s.Snapshot(t.Context(), "/copy")
		if made = err == nil; made {
			break
		}
		is(t, fmt.Sprint(free, " free"), err, ErrDiskFull)
		s.leftNothing("/copy")
	}
	disk.others(32 << 20)
	eventually(t, "the store takes adds", func() bool {
		_, err := s.Add(context.Background(), key(n+5000))
		return !errors.Is(err, ErrDiskFull)
	})
	r := w.restored("/copy")
	r.verify()
	c := r.open()
	c.urls(n + 5000)
	c.has(Seen, keys(0, n+5000)...)
	if !slices.Contains(r.files(func(string) bool { return true }), bitmapName(2)) {
		eventually(t, "the bitmap is built", func() bool { return len(c.Stats().Degraded) == 0 })
	}
}

// TestSnapshotOpenedFull copies a store that was opened on a full disk: not to
// that disk, and as soon as there is space.
func TestSnapshotOpenedFull(t *testing.T) {
	w, disk := onSmallDisk(t, 64<<20)
	s := w.open()
	s.add(New, keys(0, 1000)...)
	s.close()
	disk.others(0)
	s = w.open()
	is(t, "full", s.Snapshot(t.Context(), "/copy"), ErrDiskFull)
	s.leftNothing("/copy")
	disk.others(32 << 20)
	s.snapshot("/copy").open().has(Seen, keys(0, 1000)...)
}

// TestSnapshotOfCrashed copies what a power loss has left, torn tail and all,
// from a store that is opened read-only, which recovers nothing.
func TestSnapshotOfCrashed(t *testing.T) {
	rng := seeded(t)
	for i := range 20 {
		w := inMemory(t).spanned()
		w.o.Durability = NoSync
		s := w.open()
		s.add(New, keys(0, 300+10*i)...)
		if i%2 == 0 {
			s.flush()
		}
		for j := range 30 {
			s.add(New, keys(1000+10*j, 1010+10*j)...)
		}
		after := w.crash(rng, rng.IntN(101))
		var urls int64
		after.openReadOnly(func(s *testStore) {
			urls = s.Stats().URLs
			s.snapshot("/copy")
		})
		after.restored("/copy").open().urls(int(urls))
		after.open().urls(int(urls))
	}
}
