package wal

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// hook returns fs with a function that every operation asks first: it may
// block, count, or fail the operation.
func hook(fs vfs.FS, f func(op errorfs.Op) error) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(f))
}

// A gate holds up syncs of log files until they are let through.
type gate struct {
	started, pass chan struct{}
}

// newGate returns a log whose syncs, from now on, pass the gate. It must be
// used in a synctest bubble.
func newGate(t *testing.T, fs vfs.FS) (*Log, gate) {
	g := gate{make(chan struct{}, 100), make(chan struct{})}
	shut := false
	l := newLog(t, hook(fs, func(op errorfs.Op) error {
		if shut && op.Kind == errorfs.OpFileSyncData {
			g.started <- struct{}{}
			<-g.pass
		}
		return nil
	}), firstStart, Options{})
	shut = true
	t.Cleanup(func() { shut = false; close(g.pass) })
	return l, g
}

// waitSynced waits in a goroutine; the channel gets the result.
func waitSynced(l *Log, lsn LSN) chan error {
	c := make(chan error, 1)
	go func() { c <- l.WaitSynced(lsn) }()
	return c
}

// pending reports whether nothing has come through c once everything stands
// still.
func pending(c chan error) bool {
	synctest.Wait()
	return len(c) == 0
}

// TestWaitSyncedWaits: an answer that rests on a sync is not given before it.
func TestWaitSyncedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := newGate(t, vfs.NewMem())
		a := waitSynced(l, l.Append(testKind, payload(1)))
		if !pending(a) {
			t.Fatal("a record counts as synced while its sync is running")
		}
		if l.Written() != 1 || l.Synced() != 0 {
			t.Errorf("written %d, synced %d, want 1 and 0", l.Written(), l.Synced())
		}
		g.pass <- struct{}{}
		must(t, <-a)
	})
}

// TestGroupCommit is rule "covered only by a sync that started after the bytes
// were written": a record that is written while a sync runs needs the next
// one, and all such records share it.
func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, g := newGate(t, vfs.NewMem())
		a := waitSynced(l, l.Append(testKind, payload(1)))
		if !pending(a) || len(g.started) != 1 {
			t.Fatal("the first sync has not started")
		}
		const more = 5
		var late []chan error
		for range more {
			late = append(late, waitSynced(l, l.Append(testKind, payload(l.Next()))))
		}
		synctest.Wait()
		if l.Written() != 1+more {
			t.Errorf("written %d, want %d: a write waits for a sync", l.Written(), 1+more)
		}
		g.pass <- struct{}{}
		must(t, <-a)
		for _, c := range late {
			if !pending(c) {
				t.Fatal("a record that was written during a sync counts as synced by it")
			}
		}
		if l.Synced() != 1 {
			t.Errorf("synced %d, want 1", l.Synced())
		}
		g.pass <- struct{}{}
		for _, c := range late {
			must(t, <-c)
		}
		if n := len(g.started); n != 2 {
			t.Errorf("%d syncs for two groups, want 2", n)
		}
	})
}

// TestSyncSpansFiles: what is in a new file counts as synced only after the
// end of the file before was synced.
func TestSyncSpansFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		l, g := newGate(t, fs)
		add(t, l, 1)
		must(t, l.Prepare(testMeta(0)))
		l.Switch()
		a := waitSynced(l, l.Append(testKind, payload(3)))
		for range 2 { // the old file, the new one
			if !pending(a) {
				t.Fatal("a record counts as synced before both files are")
			}
			g.pass <- struct{}{}
		}
		must(t, <-a)
		c, err := Read(fs.CrashClone(vfs.CrashCloneCfg{}), "", testStore)
		must(t, err)
		if c.Last != 3 || c.Torn != nil {
			t.Errorf("after a crash, last is %d, torn %v", c.Last, c.Torn)
		}
	})
}

// TestSyncInterval: the sync goroutine syncs within the interval, and puts the
// sync on record, once, when nothing follows.
func TestSyncInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		l := newLog(t, fs, firstStart, Options{SyncInterval: time.Second})
		recorded := func() LSN {
			c, err := Read(fs.CrashClone(vfs.CrashCloneCfg{}), "", testStore)
			must(t, err)
			return c.Synced
		}
		add(t, l, 3)
		l.Append(testKind, payload(4)) // nobody waits for it
		time.Sleep(time.Second)
		synctest.Wait()
		if l.Synced() != 4 || recorded() != 0 {
			t.Errorf("after an interval, synced %d with %d on record, want 4 and 0", l.Synced(), recorded())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if recorded() != 4 {
			t.Errorf("after an idle interval, %d is on record, want 4", recorded())
		}
		bytes, syncs := l.Stats().Bytes, l.Stats().Syncs
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := l.Stats(); s.Bytes != bytes || s.Syncs != syncs {
			t.Errorf("an idle log wrote %d bytes and synced %d times", s.Bytes-bytes, s.Syncs-syncs)
		}
	})
}

// TestMarksLeaveRoom: sync marks take none of the caller's room, however many
// there are, and there is always room for a switch.
func TestMarksLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		l := newLog(t, fs, firstStart, Options{SyncInterval: time.Second, PreallocateBytes: 1 << 20})
		for range 5 * markBudget {
			before := l.Room()
			add(t, l, 1)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if used := before - l.Room(); used != FrameBytes(len(payload(l.Last()))) {
				t.Fatalf("a record of %d bytes and a mark took %d of the room", FrameBytes(len(payload(l.Last()))), used)
			}
			l.mu.Lock()
			if l.mu.recorded != l.mu.last || l.mu.cur.hidden < switchBytes+markBytes {
				t.Fatalf("%d of %d is on record, %d bytes hidden", l.mu.recorded, l.mu.last, l.mu.cur.hidden)
			}
			l.mu.Unlock()
		}
		mustSwitch(t, l)
		must(t, l.Close())
		c, err := Read(fs, "", testStore)
		must(t, err)
		if c.Synced != c.Last || c.Torn != nil {
			t.Errorf("synced %d, last %d, torn %v", c.Synced, c.Last, c.Torn)
		}
	})
}

// TestCloseEndsWaits: waiters of what Close writes get nil, and what comes
// later is not accepted.
func TestCloseEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		l, g := newGate(t, fs)
		a := waitSynced(l, l.Append(testKind, payload(1)))
		synctest.Wait()
		b := waitSynced(l, l.Append(testKind, payload(2)))
		must(t, l.Prepare(testMeta(0)))
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		if !pending(closed) {
			t.Fatal("Close does not wait for the sync")
		}
		l.Switch() // has no effect either
		late := l.Append(testKind, payload(4))
		if err := l.WaitWritten(late); !errors.Is(err, ErrClosed) {
			t.Errorf("a record that came during Close: got %v, want ErrClosed", err)
		}
		for range 3 { // the first group, the second, the final mark
			g.pass <- struct{}{}
		}
		must(t, <-a)
		must(t, <-b)
		must(t, <-closed)
		must(t, l.Close())
		must(t, l.Err())
		must(t, l.WaitSynced(2))
		for _, err := range []error{
			l.WaitSynced(late), l.WaitWritten(l.Append(testKind, nil)), l.Reserve(1), l.Prepare(testMeta(0)),
		} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: got %v, want ErrClosed", err)
			}
		}
		c, err := Read(fs, "", testStore)
		must(t, err)
		if c.Last != 2 || c.Synced != 2 || c.Torn != nil || len(c.Files) != 1 {
			t.Errorf("last %d, synced %d, want 2, %d files, torn %v", c.Last, c.Synced, len(c.Files), c.Torn)
		}
	})
}

// TestSyncLoopPoison: the goroutine that syncs announces its failure, and Close
// joins it.
func TestSyncLoopPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eio := errors.New("injected")
		var told []error
		l := newLog(t, hook(vfs.NewMem(), func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncData {
				return eio
			}
			return nil
		}), firstStart, Options{SyncInterval: time.Second, OnPoison: func(err error) { told = append(told, err) }})
		add(t, l, 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(told) != 1 || !errors.Is(told[0], eio) || l.Err() != told[0] {
			t.Errorf("told %v, poison %v", told, l.Err())
		}
		if err := l.Close(); err != l.Err() || err == nil {
			t.Errorf("Close returned %v, want the poison", err)
		}
	})
}

// TestCloseRemovesPrepared: a file that was never switched to is not left.
func TestCloseRemovesPrepared(t *testing.T) {
	fs := vfs.NewMem()
	l := newLog(t, fs, firstStart, Options{})
	add(t, l, 1)
	must(t, l.Prepare(testMeta(0)))
	must(t, l.Prepare(testMeta(0)))
	must(t, l.Close())
	if names, _ := fs.List(""); len(names) != 1 {
		t.Errorf("files %v are left, want one", names)
	}
	defer func() {
		if recover() == nil {
			t.Error("a switch without a prepared file does not panic")
		}
	}()
	l.Switch()
}

// TestPoisonBetweenFiles: a sync fails while a write that spans two files is in
// the first one. Nothing goes to the second.
func TestPoisonBetweenFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		shut, syncs, writes := false, make(chan error), make(chan error)
		l := newLog(t, hook(fs, func(op errorfs.Op) error {
			switch {
			case shut && op.Kind == errorfs.OpFileSyncData:
				return <-syncs
			case shut && op.Kind == errorfs.OpFileWrite:
				return <-writes
			}
			return nil
		}), firstStart, Options{})
		add(t, l, 1)
		must(t, l.Prepare(testMeta(0)))
		shut = true
		a := waitSynced(l, 1)
		synctest.Wait()
		l.Append(testKind, payload(2))
		l.Switch()
		b := waitSynced(l, l.Append(testKind, payload(4)))
		synctest.Wait()
		syncs <- errors.New("injected")
		if err := <-a; !errors.Is(err, ErrPoisoned) {
			t.Errorf("got %v, want ErrPoisoned", err)
		}
		if !pending(b) {
			t.Fatal("the write is over")
		}
		writes <- nil
		if err := <-b; err == nil || err != l.Err() {
			t.Errorf("got %v, want %v", err, l.Err())
		}
		if n := len(readFile(t, fs, fileName(2))); n != headerBytes {
			t.Errorf("the second file has %d bytes, want its header only", n)
		}
	})
}
