package wal

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestFailEverywhere fails every single write-side operation of a scenario in
// turn. From then on nothing is written or synced, everybody gets the same
// error, and what was acknowledged is there after a crash.
func TestFailEverywhere(t *testing.T) {
	eio := errors.New("injected")
	for n := 0; ; n++ {
		mem := vfs.NewCrashableMem()
		var ops int
		var failed *errorfs.Op
		fs := hook(mem, func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpCreate:
			default:
				return nil
			}
			if failed != nil {
				t.Errorf("after operation %d, %v of %s, failed: %v of %s", n, failed.Kind, failed.Path, op.Kind, op.Path)
			}
			if ops++; ops == n+1 {
				failed = &op
				return eio
			}
			return nil
		})
		var told []error
		l, err := Create(fs, "", firstStart, Options{StoreID: testStore, OnPoison: func(err error) {
			told = append(told, err)
		}})
		if err != nil {
			if !errors.Is(err, eio) {
				t.Errorf("operation %d: Create returned %v", n, err)
			}
			continue
		}
		var acked LSN
		var first error
		check := func(err error) {
			if first != nil && err != first {
				t.Errorf("operation %d: got error %v, then %v", n, first, err)
			}
			if err != nil {
				first = err
			}
		}
		for file := range 3 {
			for i := range 3 {
				lsn := l.Append(testKind, payload(l.Next()))
				check(l.WaitWritten(lsn))
				if i == 1 {
					check(l.WaitSynced(lsn))
					if first == nil {
						acked = lsn
					}
				}
			}
			if file == 2 {
				break
			}
			check(l.Prepare(testMeta(0)))
			if l.Prepared() {
				l.Switch()
			}
		}
		check(l.Close())
		check(l.Close())
		if failed == nil {
			must(t, first)
			if n < 15 {
				t.Errorf("only %d operations were tried", n)
			}
			break
		}
		if !errors.Is(first, ErrPoisoned) || !errors.Is(first, eio) || l.Err() != first {
			t.Errorf("operation %d: got error %v, and %v from Err", n, first, l.Err())
		}
		if len(told) != 1 || told[0] != first {
			t.Errorf("operation %d: OnPoison was told %v", n, told)
		}
		if acked > 0 {
			must(t, l.WaitSynced(acked))
		}
		c, err := Read(mem.CrashClone(vfs.CrashCloneCfg{}), "", testStore)
		must(t, err)
		if c.Last < acked {
			t.Errorf("operation %d: last is %d, acknowledged was %d", n, c.Last, acked)
		}
		replay(t, c)
	}
}

// TestFailedSyncTakesBackWritten: after a failed sync, what was written and
// not synced is not answered any more, for it may be gone.
func TestFailedSyncTakesBackWritten(t *testing.T) {
	fail := false
	l := newLog(t, hook(vfs.NewMem(), func(op errorfs.Op) error {
		if fail && op.Kind == errorfs.OpFileSyncData {
			return syscall.EIO
		}
		return nil
	}), firstStart, Options{})
	add(t, l, 2)
	mustSync(t, l)
	add(t, l, 1)
	fail = true
	err := l.WaitSynced(3)
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	must(t, l.WaitWritten(2))
	must(t, l.WaitSynced(2))
	if got := l.WaitWritten(3); got != err {
		t.Errorf("got %v for a record that may be gone, want %v", got, err)
	}
}

// TestFailedWriteKeepsWritten: after a failed write, what was written before
// is still answered at that level.
func TestFailedWriteKeepsWritten(t *testing.T) {
	fail := false
	l := newLog(t, hook(vfs.NewMem(), func(op errorfs.Op) error {
		if fail && op.Kind == errorfs.OpFileWrite {
			return syscall.EIO
		}
		return nil
	}), firstStart, Options{})
	add(t, l, 2)
	fail = true
	if err := l.WaitWritten(l.Append(testKind, nil)); !errors.Is(err, ErrPoisoned) {
		t.Errorf("got %v, want ErrPoisoned", err)
	}
	must(t, l.WaitWritten(2))
	if err := l.WaitSynced(2); !errors.Is(err, ErrPoisoned) {
		t.Errorf("got %v from a sync after a failed write, want ErrPoisoned", err)
	}
	if s := l.Stats(); s.PendingBytes != 0 {
		t.Errorf("%d bytes wait to be written after a failed write", s.PendingBytes)
	}
}

type shortFS struct {
	vfs.FS
	short *bool
}

func (fs shortFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return shortFile{f, fs.short}, err
}

type shortFile struct {
	vfs.File
	short *bool
}

func (f shortFile) Write(b []byte) (int, error) {
	if *f.short {
		return f.File.Write(b[:len(b)/2])
	}
	return f.File.Write(b)
}

// TestShortWrite: half a record may be in the file then, and nothing follows.
func TestShortWrite(t *testing.T) {
	mem, short := vfs.NewMem(), false
	l := newLog(t, shortFS{mem, &short}, firstStart, Options{})
	add(t, l, 2)
	short = true
	if err := l.WaitWritten(l.Append(testKind, payload(3))); !errors.Is(err, ErrPoisoned) {
		t.Errorf("got %v, want ErrPoisoned", err)
	}
	short = false
	if err := l.WaitWritten(l.Append(testKind, payload(4))); !errors.Is(err, ErrPoisoned) {
		t.Errorf("got %v, want ErrPoisoned", err)
	}
	_ = l.Close()
	c, err := Read(mem, "", testStore)
	must(t, err)
	if got := replay(t, c); len(got) != 2 || c.Torn == nil {
		t.Errorf("got records %v, torn %v", got, c.Torn)
	}
}

// TestNoSpace: a full disk changes nothing, and everything goes on when there
// is space again.
func TestNoSpace(t *testing.T) {
	for _, kind := range []errorfs.OpKind{
		errorfs.OpFilePreallocate, errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync,
	} {
		mem, full := vfs.NewMem(), false
		l := newLog(t, hook(mem, func(op errorfs.Op) error {
			if full && op.Kind == kind && op.Path != "" {
				return fmt.Errorf("injected: %w", syscall.ENOSPC)
			}
			return nil
		}), firstStart, Options{PreallocateBytes: 4 << 10, OnPoison: func(err error) { t.Error(err) }})
		add(t, l, 1)
		full = true
		room, size := l.Room(), l.Stats()
		if err := l.Prepare(testMeta(1)); !errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%v: Prepare returned %v, want ErrNoSpace", kind, err)
		}
		if kind == errorfs.OpFilePreallocate {
			if err := l.Reserve(room + 1); !errors.Is(err, ErrNoSpace) {
				t.Errorf("Reserve returned %v, want ErrNoSpace", err)
			}
		}
		must(t, l.Reserve(room))
		if names, _ := mem.List(""); len(names) != 1 {
			t.Errorf("%v: files left: %v", kind, names)
		}
		if l.Prepared() || l.Room() != room || l.Stats() != size {
			t.Errorf("%v: something has changed", kind)
		}
		if kind == errorfs.OpFilePreallocate { // appending needs no new space
			add(t, l, 1)
			mustSync(t, l)
		}
		full = false
		must(t, l.Reserve(room+1))
		if l.Room() < room+1 {
			t.Errorf("room %d after reserving %d", l.Room(), room+1)
		}
		mustSwitch(t, l)
		add(t, l, 1)
		must(t, l.Close())
		c, err := Read(mem, "", testStore)
		must(t, err)
		if c.Torn != nil || c.Last != l.Last() || len(c.Files) != 2 {
			t.Errorf("%v: last %d, want %d, torn %v", kind, c.Last, l.Last(), c.Torn)
		}
	}
}

// TestReserve: room is what was asked for at least, in steps, and appending
// takes exactly what FrameBytes says.
func TestReserve(t *testing.T) {
	l := newLog(t, vfs.NewMem(), firstStart, Options{PreallocateBytes: 4 << 10})
	for _, n := range []int64{0, 1, 4 << 10, 5 << 10, 1 << 20} {
		must(t, l.Reserve(n))
		room := l.Room()
		if room < n {
			t.Errorf("room %d after reserving %d", room, n)
		}
		must(t, l.Reserve(n))
		if l.Room() != room {
			t.Errorf("reserving what there is changed the room from %d to %d", room, l.Room())
		}
		l.Append(testKind, make([]byte, 100))
		if got := room - l.Room(); got != FrameBytes(100) {
			t.Errorf("a record took %d bytes, want %d", got, FrameBytes(100))
		}
	}
}

// TestCreateRefuses: no existing log file is ever written over.
func TestCreateRefuses(t *testing.T) {
	fs := vfs.NewMem()
	must(t, newLog(t, fs, firstStart, Options{}).Close())
	for _, s := range []Start{
		{File: 1, FirstLSN: 1}, {File: 1, FirstLSN: 9, SealedEnd: headerBytes}, // there
		{File: 2, FirstLSN: 1},                                           // not sealed
		{File: 2, FirstLSN: 1, SealedEnd: 8},                             // no such end
		{File: 2, SealedEnd: headerBytes}, {SealedEnd: 136, FirstLSN: 1}, // no LSN, no number
	} {
		l, err := Create(fs, "", s, Options{})
		if err == nil {
			t.Errorf("created %+v", s)
			_ = l.Close()
		}
		if s.File == 1 && !errors.Is(err, iofs.ErrExist) {
			t.Errorf("got %v, want ErrExist", err)
		}
	}
	if _, err := Create(fs, "", firstStart, Options{PreallocateBytes: -1, SyncInterval: -1}); err == nil ||
		strings.Count(err.Error(), "negative") != 2 {
		t.Errorf("bad options: got %v", err)
	}
}

func TestQuarantine(t *testing.T) {
	fs := vfs.NewMem()
	for _, want := range []string{"0000000003.log.bad", "0000000003.log.2.bad", "0000000003.log.3.bad"} {
		writeFile(t, fs, fileName(3), []byte(want))
		got, err := Quarantine(fs, "", 3)
		must(t, err)
		if got != want || string(readFile(t, fs, want)) != want {
			t.Errorf("got name %q, want %q", got, want)
		}
	}
	if _, err := Quarantine(fs, "", 3); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	if err := Remove(fs, "", 3); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

// randomPayload returns a payload of up to 6000 bytes that its LSN tells, so
// that records cross the blocks that a crash keeps or loses.
func randomPayload(n LSN) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, rng.IntN(6000))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// afterCrash reads what a crash left, and verifies that it is a prefix of what
// was appended which has everything acknowledged.
func afterCrash(t *testing.T, fs vfs.FS, acked, last LSN) *Chain {
	t.Helper()
	c, err := Read(fs, "", testStore)
	must(t, err)
	if c.Last < acked || c.Last > last {
		t.Fatalf("recovered through %d, acknowledged %d, appended %d; torn %+v", c.Last, acked, last, c.Torn)
	}
	for i := range c.Files {
		must(t, c.Replay(i, func(r Record) error {
			if !slices.Equal(r.Payload, randomPayload(r.LSN)) {
				t.Errorf("record %d differs", r.LSN)
			}
			return nil
		}))
	}
	return c
}

// recoverLog continues the log as a store does.
func recoverLog(t *testing.T, fs vfs.FS, c *Chain) *Log {
	t.Helper()
	for _, f := range slices.Backward(c.Files) {
		if f.Prepared {
			must(t, Remove(fs, "", f.File))
		} else if f.Discard {
			_, err := Quarantine(fs, "", f.File)
			must(t, err)
		}
	}
	return newLog(t, fs, c.Next(testMeta(0)), Options{})
}

// TestCrash crashes a log at random moments, several times in a row, and goes
// on with what is left.
func TestCrash(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprintf("unsynced=%d", percent), func(t *testing.T) {
			rng := newRand(t)
			for range 25 {
				fs := vfs.NewCrashableMem()
				l := newLog(t, fs, firstStart, Options{})
				var acked LSN
				lowest := uint64(1)
				for range 60 {
					switch rng.IntN(12) {
					case 0, 1, 2, 3:
						l.Append(testKind, randomPayload(l.Next()))
					case 4, 5, 6:
						must(t, l.WaitWritten(l.Last()))
					case 7, 8:
						must(t, l.WaitSynced(l.Last()))
						acked = l.Last()
					case 9:
						must(t, l.Prepare(testMeta(0)))
					case 10:
						if l.Prepared() {
							l.Switch()
						}
					case 11:
						crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
						c := afterCrash(t, crashed, acked, l.Last())
						l = recoverLog(t, crashed, c)
						fs, acked = crashed, c.Last
						// Old files leave, as after a flush, or not.
						if rng.IntN(2) == 0 {
							for ; lowest < l.File(); lowest++ {
								must(t, Remove(fs, "", lowest))
							}
						}
					}
				}
			}
		})
	}
}

// TestCreateSyncsBefore: a process is killed, the next one reads what was only
// written and vouches for it, and then the power fails.
func TestCreateSyncsBefore(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := newLog(t, fs, firstStart, Options{})
	add(t, l, 2)
	mustSwitch(t, l)
	add(t, l, 2)
	c, err := Read(fs, "", testStore)
	must(t, err)
	newLog(t, fs, c.Next(testMeta(0)), Options{})
	c, err = Read(fs.CrashClone(vfs.CrashCloneCfg{}), "", testStore)
	must(t, err)
	if got := replay(t, c); len(got) != 4 || c.Synced != 5 {
		t.Errorf("got records %v, synced %d, want 4 and 5", got, c.Synced)
	}
}

// TestCrashConcurrent takes crash images while many append and wait.
func TestCrashConcurrent(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l := newLog(t, fs, firstStart, Options{})
	var mu sync.Mutex
	var acked atomic.Uint64
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; i < 400 && !stopped.Load(); i++ {
				if i%40 == 10*w {
					if err := l.Prepare(testMeta(0)); err != nil {
						t.Error(err)
					}
				}
				mu.Lock()
				if i%40 == 10*w && l.Prepared() {
					l.Switch()
				}
				lsn := l.Append(testKind, randomPayload(l.Next()))
				mu.Unlock()
				if err := l.WaitSynced(lsn); err != nil {
					t.Error(err)
				}
				for {
					old := acked.Load()
					if uint64(lsn) <= old || acked.CompareAndSwap(old, uint64(lsn)) {
						break
					}
				}
			}
		})
	}
	rng := newRand(t)
	for i := range 12 {
		a := LSN(acked.Load())
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: i % 3 * 50, RNG: rng})
		afterCrash(t, clone, a, l.Last())
	}
	stopped.Store(true)
	wg.Wait()
}
