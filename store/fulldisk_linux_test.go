package store

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// fullMoments are when somebody else fills a disk of 64 MiB to the last byte:
// at a named point of the store's code, or before an operation on its files.
// The last one is the test's own.
var fullMoments = []struct {
	name  string
	point string
	op    func(errorfs.Op) bool
}{
	{name: "full-in-flush", point: "flush"},
	{name: "full-in-tables", op: func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpCreate && isTable(op.Path) && isIn(op.Path, tmpDir)
	}},
	{name: "full-in-ingest", op: func(op errorfs.Op) bool { return op.Kind == errorfs.OpLink }},
	{name: "full-in-compaction", op: func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpCreate && isTable(op.Path) && isIn(op.Path, pebbleDir)
	}},
	{name: "full-before-build", point: "step"},
	{name: "full-in-build", point: "build-begun"},
	{name: "full-in-close"},
}

func init() {
	for i := range fullMoments {
		realfsChildren[fullMoments[i].name] = func(t *testing.T, dir string) { fullAt(t, dir, i, realfsMounted(t, dir)) }
	}
}

// TestRealfsFullMoments fills the disk at each of the moments.
func TestRealfsFullMoments(t *testing.T) {
	for i, m := range fullMoments {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel() // each is a process of its own
			realfsOnFullDisk(t, m.name, func(t *testing.T, dir string, d realfsDisk) { fullAt(t, dir, i, d) })
		})
	}
}

func fullAt(t *testing.T, dir string, moment int, d realfsDisk) {
	m := fullMoments[moment]
	var armed, filled atomic.Bool
	fill := func() {
		if armed.Load() && filled.CompareAndSwap(false, true) {
			d.fill(0)
		}
	}
	o := d.options()
	o.ExpectedURLs = 30_000 // so that the bitmap grows
	o.seams.Point = func(name string) {
		if m.point != "" && name == m.point {
			fill()
		}
	}
	if o.seams.FS == nil {
		o.seams.FS = vfs.Default
	}
	o.seams.FS = errorfs.Wrap(o.seams.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if m.op != nil && m.op(op) {
			fill()
		}
		return nil
	}))
	path := filepath.Join(dir, "s")
	s, err := Open(path, o)
	realfsMust(t, err)
	realfsAdd(t, s, realfsKeys(0, 20_000), New)
	realfsMust(t, s.Flush(t.Context()))
	armed.Store(true)

	// Adds go on until the store says that it is full: at once, and in a type.
	have, slowest := 20_000, time.Duration(0)
	add := func(n int) error {
		answers := make([]Answer, n)
		start := time.Now()
		err := s.AddBatch(t.Context(), realfsKeys(have, n), answers)
		slowest = max(slowest, time.Since(start))
		for _, a := range answers {
			if a == New {
				have++
			}
		}
		return err
	}
	err = nil
	for have < 2_000_000 && err == nil {
		err = add(500)
		if have == 150_000 {
			fill() // at the latest
		}
	}
	if !errors.Is(err, ErrDiskFull) || errors.Is(err, ErrPoisoned) || s.Err() != nil {
		t.Fatalf("after %d keys: %v, Err %v, want ErrDiskFull", have, err, s.Err())
	}
	if !filled.Load() {
		t.Fatal("the moment did not come")
	}
	t.Logf("%d keys; then: %v", have, err)

	// It waits, and costs nothing.
	busy := cpuShare(t, func() { time.Sleep(fullWait()) })
	if busy > maxWaitingShare {
		t.Errorf("waiting takes %.0f %% of a processor", 100*busy)
	}
	realfsHas(t, s, realfsKeys(have-10_000, 10_000), Seen)
	realfsHas(t, s, realfsKeys(5_000_000, 1000), New)
	if err := add(1); err != nil && !errors.Is(err, ErrDiskFull) {
		t.Errorf("Add: %v, want ErrDiskFull", err)
	}

	closing := func(full bool) time.Duration {
		start := time.Now()
		err := s.Close()
		took := time.Since(start)
		if err != nil && !(full && errors.Is(err, ErrDiskFull)) || took > crashDeadline {
			t.Errorf("Close: %v after %v", err, took)
		}
		return took
	}
	var closed, healed time.Duration
	if m.point == "" && m.op == nil {
		closed = closing(true)
		realfsSound(t, path, have)
		d.grow()
		s, err = Open(path, d.options())
		realfsMust(t, err)
		realfsHas(t, s, realfsKeys(have-10_000, 10_000), Seen)
	} else {
		d.grow()
		for target := have + 60_000; have < target; { // more than the memtables take
			start := time.Now()
			for err := add(500); err != nil; err = add(500) {
				if !errors.Is(err, ErrDiskFull) || time.Since(start) > patience {
					t.Fatalf("with space: %v", err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			healed = max(healed, time.Since(start))
		}
	}
	realfsAdd(t, s, realfsKeys(have, 20_000), New)
	have += 20_000
	if urls := s.Stats().URLs; urls != int64(have) {
		t.Errorf("%d URLs, want %d", urls, have)
	}
	closed = max(closed, closing(false))
	realfsSound(t, path, have)
	t.Logf("%s: the slowest call took %v, waiting %.1f %% of a processor, healed after %v, Close %v", m.name,
		slowest.Round(time.Millisecond), 100*busy, healed.Round(time.Millisecond), closed.Round(time.Millisecond))
}
