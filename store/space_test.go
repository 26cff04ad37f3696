package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fillUp adds keys from lo on until the store says that the disk is full, and
// returns the first that was not taken.
func fillUp(t *testing.T, s *testStore, lo int) int {
	t.Helper()
	const part = 1000
	for n := lo; ; {
		answers := make([]Answer, part)
		err := s.AddBatch(t.Context(), keys(n, n+part), answers)
		for _, a := range answers {
			if a == New {
				n++
			}
		}
		if err != nil {
			is(t, "Add", err, ErrDiskFull)
			if errors.Is(err, ErrPoisoned) || s.Err() != nil {
				t.Fatalf("a full disk poisons: %v", err)
			}
			return n
		}
	}
}

// addsAgain adds a key, and as many more as fill the memtables, as soon as the
// store takes them again by itself.
func addsAgain(t *testing.T, s *testStore, name string) (added int) {
	t.Helper()
	want := min(int(3*s.Stats().Memtable.Capacity), 20_000)
	within(t, "adds", start(func() {
		for added < want {
			part := make([]string, 100)
			for i := range part {
				part[i] = fmt.Sprint(name, added+i)
			}
			answers := make([]Answer, len(part))
			err := s.AddBatch(context.Background(), part, answers)
			for _, a := range answers {
				if a == New {
					added++
				}
			}
			if errors.Is(err, ErrDiskFull) && !errors.Is(err, ErrPoisoned) {
				time.Sleep(10 * time.Millisecond)
			} else if err != nil {
				t.Errorf("AddBatch: %v", err)
				return
			}
		}
	}))
	return added
}

// TestFloor fills a disk: the store stops while there still is the space that
// it is to leave, takes it up again when there is more, and counts right.
func TestFloor(t *testing.T) {
	t.Parallel()
	const floor = 2 << 20
	w, d := onSmallDisk(t, 13<<20)
	w.o.MinFreeBytes, w.memtableWords = floor, 4000
	s := w.open()
	n := fillUp(t, s, 0)
	low := d.lowest()
	t.Logf("%d keys, and %d bytes were free at the least", n, low)
	if low < floor-2*s.space.step { // of a flush and a compaction
		t.Errorf("only %d bytes were left free, want %d", low, floor)
	}
	if n < 20_000 {
		t.Errorf("only %d keys were taken", n)
	}
	if free, _ := s.space.free(); free > 2*floor+keepLogBytes+4<<20 {
		t.Errorf("%d bytes are free, and nothing is taken", free)
	}
	s.has(Seen, keys(n-10_000, n)...)
	s.add(Seen, keys(0, 1000)...)
	s.urls(n)

	d.others(64 << 20)
	more := addsAgain(t, s, "again")
	s.add(New, keys(n, n+10_000)...)
	s.urls(n + more + 10_000)
}

// TestFloorForLogs leaves room for tables and none for a log file.
func TestFloorForLogs(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 64<<20)
	w.o.MinFreeBytes, w.memtableWords = 8<<20, 500
	s := w.open()
	d.others(w.o.MinFreeBytes + 2<<20)
	n := fillUp(t, s, 0)
	if low := d.lowest(); low < w.o.MinFreeBytes {
		t.Errorf("only %d bytes were left free", low)
	}
	s.has(Seen, keys(0, n)...)
	d.others(64 << 20)
	addsAgain(t, s, "again")
}

// TestFloorForBuilds leaves no room for a larger bitmap.
func TestFloorForBuilds(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 64<<20)
	w.small()
	w.o.MinFreeBytes = 8 << 20
	s := w.open()
	s.flush()
	var builds atomic.Int64
	d.setBefore(func(op, path string) {
		if op == "map-create" && builds.Add(1) == 1 {
			t.Errorf("%s is made below the floor", path)
		}
	})
	d.others(w.o.MinFreeBytes + 100) // a bitmap is larger
	s.add(New, keys(0, 450)...)
	eventually(t, "a build that is given up", func() bool {
		_, _ = s.Add(t.Context(), "one more") // asks the maintainer
		s.kick()
		return s.Stats().Build.GivenUp > 0
	})
	d.setBefore(nil)
	d.others(64 << 20)
	s.maintainer.mu.Lock()
	s.maintainer.noBuildBefore = s.maintainer.noBuildBefore.Add(-buildRetry)
	s.maintainer.mu.Unlock()
	s.kick()
	eventually(t, "a build", func() bool { return s.Stats().Build.Builds > 0 })
}

// compactable makes a store with tables in several sublevels.
func compactable(s *testStore, n int) {
	s.w.t.Helper()
	for i := range 5 {
		s.add(New, keys(i*n, i*n+n)...)
		s.flush()
	}
}

// TestCompactionMeetsFloor lets Pebble merge by itself with no space for it:
// that fails, is survived, and is done when there is space.
func TestCompactionMeetsFloor(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 256<<20)
	w.o.MinFreeBytes = 8 << 20
	s := w.open()
	compactable(s, 5000)
	d.others(w.o.MinFreeBytes + 100)
	err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false)
	is(t, "a compaction", err, syscall.ENOSPC)
	if low := d.lowest(); low < w.o.MinFreeBytes-s.space.step || s.Err() != nil {
		t.Errorf("%d bytes were left free, Err is %v", low, s.Err())
	}
	s.has(Seen, keys(20_000, 25_000)...)
	eventually(t, "a warning", func() bool { return len(s.Stats().Warnings) > 0 })
	d.others(64 << 20)
	must(t, s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	s.has(Seen, keys(20_000, 25_000)...)
	eventually(t, "no warning", func() bool { return len(s.Stats().Warnings) == 0 })
}

// reserveIs checks whether the reserve is there.
func reserveIs(t *testing.T, d *smallDisk, want int64, when string) {
	t.Helper()
	if got := d.size("/store/" + reserveName); got != want {
		t.Errorf("%s the reserve has %d bytes, want %d", when, got, want)
	}
}

// TestReserve has somebody else fill the disk to the last byte between the
// tables of a flush and their ingest: Pebble's MANIFEST gets the reserve, which
// is made again when there is space.
func TestReserve(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 64<<20)
	w.o.MinFreeBytes = 32 << 20
	s := w.open()
	reserveIs(t, d, reserveBytes, "in a new store")
	s.add(New, keys(0, 1000)...)
	var once sync.Once
	d.setBefore(func(op, path string) {
		if op == "link" {
			once.Do(func() { d.others(0) })
		}
	})
	s.flush()
	reserveIs(t, d, -1, "after a MANIFEST on a full disk")
	n := fillUp(t, s, 1000)
	s.has(Seen, keys(0, n)...)
	err := s.Store.Close()
	is(t, "Close", err, ErrDiskFull)
	s.once.Do(func() {})
	w.verify()

	d.others(64 << 20)
	s = w.open()
	reserveIs(t, d, reserveBytes, "with space again")
	s.has(Seen, keys(0, n)...)
	s.urls(n)

	// And without an open.
	s.space.giveUp()
	reserveIs(t, d, -1, "given up")
	s.kick()
	eventually(t, "the reserve", func() bool { return d.size("/store/"+reserveName) == reserveBytes })
}

// TestReserveIsNoFile has the reserve missing, cut short and of other bytes:
// nothing rests on it.
func TestReserveIsNoFile(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 64<<20)
	w.open().close()
	write := func(text string) {
		f, err := d.Create("/store/"+reserveName, vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = f.Write([]byte(text))
		must(t, errors.Join(err, f.Close()))
	}
	for what, damage := range map[string]func(){
		"missing":     func() { must(t, d.Remove("/store/"+reserveName)) },
		"empty":       func() { write("") },
		"short":       func() { write("x") },
		"other bytes": func() { write(strings.Repeat("x", reserveBytes)) },
	} {
		damage()
		w.verify()
		s := w.open()
		s.add(New, what)
		s.close()
		reserveIs(t, d, reserveBytes, what)
	}
}

// TestOpenedFull opens a store on a full disk. It serves, refuses, and goes on
// by itself when there is space, while it is asked without an error.
func TestOpenedFull(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 64<<20)
	s := w.open()
	s.add(New, keys(0, 1000)...)
	d.others(0)
	is(t, "Close", s.Store.Close(), ErrDiskFull)
	s.once.Do(func() {})

	s = w.open()
	s.has(Seen, keys(0, 1000)...)
	s.has(New, keys(1000, 2000)...)
	_, err := s.Add(t.Context(), "new")
	is(t, "Add", err, ErrDiskFull)
	_, _, err = s.Claim(t.Context(), "new", 0)
	is(t, "Claim", err, ErrDiskFull)
	is(t, "Flush", s.Flush(t.Context()), ErrDiskFull)
	is(t, "Sync", s.Sync(t.Context()), ErrDiskFull)
	if x := s.Stats(); x.URLs != 1000 || len(x.Warnings) == 0 || s.Err() != nil {
		t.Errorf("%d URLs, warnings %q, Err %v", x.URLs, x.Warnings, s.Err())
	}
	if _, err := Open(w.dir, w.options()); !errors.Is(err, ErrLocked) {
		t.Errorf("a second Open: %v, want ErrLocked", err)
	}
	var stop atomic.Bool
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for !stop.Load() {
				s.has(Seen, keys(0, 100)...)
				s.has(New, "never added")
			}
		})
	}
	d.others(64 << 20)
	more := addsAgain(t, s, "again")
	must(t, s.claim(New, "claimed", 0).Commit(t.Context(), 0))
	s.add(Seen, "claimed")
	more++
	stop.Store(true)
	asking.Wait()
	s.add(Seen, keys(0, 1000)...)
	s.add(New, keys(1000, 5000)...)
	s.flush()
	s.urls(5000 + more)
	if len(s.Stats().Warnings) != 0 {
		t.Errorf("healed, and warnings %q", s.Stats().Warnings)
	}
	s.close()
	_, err = s.Add(t.Context(), "closed")
	is(t, "Add", err, ErrClosed)
}

// TestOpenedFullMethods calls every method of a store that was opened on a
// full disk: it only stands for another one, so each has to pass the call on.
func TestOpenedFullMethods(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 64<<20)
	w.open().close()
	d.others(0)
	s := w.open()
	store := reflect.ValueOf(s.Store)
	for i := range store.NumMethod() {
		name, method := store.Type().Method(i).Name, store.Method(i)
		if name == "Close" {
			continue
		}
		var args []reflect.Value
		for j := range method.Type().NumIn() {
			switch in := method.Type().In(j); in {
			case reflect.TypeFor[context.Context]():
				args = append(args, reflect.ValueOf(t.Context()))
			case reflect.TypeFor[[]string]():
				args = append(args, reflect.ValueOf([]string{"x"}))
			case reflect.TypeFor[[]Digest]():
				args = append(args, reflect.ValueOf(make([]Digest, 1)))
			case reflect.TypeFor[[]Answer]():
				args = append(args, reflect.ValueOf(make([]Answer, 1)))
			case reflect.TypeFor[[]Claim]():
				args = append(args, reflect.ValueOf(make([]Claim, 1)))
			case reflect.TypeFor[[]bool]():
				args = append(args, reflect.ValueOf(make([]bool, 1)))
			case reflect.TypeFor[string]():
				arg := "x"
				if name == "DropNamespace" {
					arg = "" // the one that there is
				}
				args = append(args, reflect.ValueOf(arg))
			case reflect.TypeFor[int64]():
				args = append(args, reflect.ValueOf(int64(10)))
			default:
				args = append(args, reflect.Zero(in))
			}
		}
		call := method.Call
		if method.Type().IsVariadic() {
			call = method.CallSlice
		}
		results := call(args)
		if last := results[len(results)-1]; last.Type() == reflect.TypeFor[error]() && !last.IsNil() {
			is(t, name, last.Interface().(error), ErrDiskFull)
		}
	}
}

// TestOpenedFullCannotOpen has a store that cannot be opened again when there
// is space: calls say so, and Close lets the directory go.
func TestOpenedFullCannotOpen(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 64<<20)
	s := w.open()
	s.add(New, keys(0, 1000)...)
	s.close()
	d.others(0)
	s = w.open()
	identity := d.FS.PathJoin(w.dir, identityName)
	must(t, d.FS.Rename(identity, identity+"-away"))
	d.others(64 << 20)
	eventually(t, "the error", func() bool { return s.Err() != nil })
	_, err := s.Has(t.Context(), key(0))
	is(t, "Has", err, ErrPoisoned, ErrNotExist)
	if x := s.Stats(); x.Err == "" || x.URLs != 1000 {
		t.Errorf("Stats: Err %q, %d URLs", x.Err, x.URLs)
	}
	s.once.Do(func() { err = s.Store.Close() })
	is(t, "Close", err, ErrPoisoned)
	must(t, d.FS.Rename(identity+"-away", identity))
	w.open().add(Seen, keys(0, 1000)...)
}

// TestCompact merges what overlaps, with space and below the floor, and takes
// the reserve.
func TestCompact(t *testing.T) {
	t.Parallel()
	for _, free := range []int64{64 << 20, 2 << 20, 0} {
		t.Run(fmt.Sprint(free), func(t *testing.T) {
			w, d := onSmallDisk(t, 256<<20)
			s := w.open()
			compactable(s, 5000)
			before := s.Stats()
			d.others(free)
			must(t, s.Compact(t.Context()))
			x := s.Stats()
			t.Logf("%d bytes in %d tables, %d in %d after", before.Disk.Pebble, before.Compaction.Tables, x.Disk.Pebble, x.Compaction.Tables)
			if x.Compaction.Tables >= before.Compaction.Tables || x.Compaction.L0Sublevels != 0 {
				t.Errorf("%d tables of %d are left, %d sublevels", x.Compaction.Tables, before.Compaction.Tables, x.Compaction.L0Sublevels)
			}
			if names, err := d.List(d.PathJoin(w.dir, pebbleDir)); err != nil || tables(names) != int(x.Compaction.Tables) {
				t.Errorf("%d tables are on disk, want %d: %v", tables(names), x.Compaction.Tables, err)
			}
			if free < 64<<20 {
				reserveIs(t, d, -1, "after a compaction of a full disk")
			} else {
				reserveIs(t, d, reserveBytes, "after a compaction")
			}
			s.has(Seen, keys(20_000, 25_000)...)
			d.others(64 << 20)
			addsAgain(t, s, "again")
			s.close()
			is(t, "Compact", s.Compact(t.Context()), ErrClosed)
		})
	}
}

// tables counts the names of tables.
func tables(names []string) (n int) {
	for _, name := range names {
		if filepath.Ext(name) == ".sst" {
			n++
		}
	}
	return n
}

// TestCompactOpenedFull compacts a store that was opened on a full disk.
func TestCompactOpenedFull(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 256<<20)
	s := w.open()
	compactable(s, 5000)
	s.add(New, keys(25_000, 26_000)...)
	d.others(0)
	is(t, "Close", s.Store.Close(), ErrDiskFull)
	s.once.Do(func() {})
	s = w.open()
	before := s.Stats()
	must(t, s.Compact(t.Context()))
	x := s.Stats()
	if x.Compaction.Tables >= before.Compaction.Tables || x.URLs != 26_000 {
		t.Errorf("%d tables of %d are left, %d URLs", x.Compaction.Tables, before.Compaction.Tables, x.URLs)
	}
	s.has(Seen, keys(0, 26_000)...)
	_, err := s.Add(t.Context(), "new")
	is(t, "Add", err, ErrDiskFull)
	d.others(64 << 20)
	s.urls(26_000 + addsAgain(t, s, "again"))
	must(t, s.Compact(t.Context()))
}

// TestCompactWithoutSpace has less space than a compaction needs, with the
// reserve: ErrDiskFull, and nothing is lost.
func TestCompactWithoutSpace(t *testing.T) {
	t.Parallel()
	w, d := onSmallDisk(t, 256<<20)
	w.memtableWords = 30_000
	s := w.open()
	compactable(s, 26_000) // tables of more than the reserve has
	d.others(0)
	is(t, "Compact", s.Compact(t.Context()), ErrDiskFull)
	if s.Err() != nil {
		t.Errorf("a full disk poisons: %v", s.Err())
	}
	s.has(Seen, keys(0, 10_000)...)
	d.others(64 << 20)
	must(t, s.Compact(t.Context()))
	addsAgain(t, s, "again")
}

// TestCompactEnds ends a compaction: by a context, and by Close.
func TestCompactEnds(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"context", "Close"} {
		t.Run(by, func(t *testing.T) {
			w, d := onSmallDisk(t, 256<<20)
			s := w.open()
			compactable(s, 5000)
			g := newGate(t)
			d.setBefore(func(op, path string) {
				if op == "create" && isTable(path) && isIn(path, pebbleDir) {
					g.pass()
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			compacted := start(func() { err = s.Compact(ctx) })
			within(t, "the compaction", g.reached)
			if by == "context" {
				cancel()
				within(t, "Compact", compacted)
				is(t, "Compact", err, context.Canceled)
				g.open()
				s.add(New, "new")
				return
			}
			closed := start(func() { must(t, s.Store.Close()) })
			s.once.Do(func() {})
			within(t, "Compact", compacted)
			is(t, "Compact", err, ErrClosed)
			g.open()
			within(t, "Close", closed)
			w.verify()
		})
	}
}
