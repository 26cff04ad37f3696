package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// restored is the world of a snapshot.
func (w *world) restored(dir string) *world {
	r := *w
	r.dir, r.point, r.fault = dir, nil, nil
	return &r
}

// snapshot makes a snapshot and checks it before it is opened.
func (s *testStore) snapshot(dir string) *world {
	s.w.t.Helper()
	must(s.w.t, s.Snapshot(s.w.t.Context(), dir))
	r := s.w.restored(dir)
	r.verify()
	if left := r.plainOptions().seams.FS; isThere(s.w.t, left.Stat, dir+".tmp") {
		s.w.t.Errorf("%s.tmp is still there", dir)
	}
	return r
}

func isThere[I any](t testing.TB, stat func(string) (I, error), path string) bool {
	t.Helper()
	_, err := stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestSnapshot copies what is in tables, in the frozen memtable and in the
// active one.
func TestSnapshot(t *testing.T) {
	for _, w := range []*world{onDisk(t), inMemory(t)} {
		s := w.spanned().open()
		s.add(New, keys(0, 1000)...)
		s.flush()
		s.add(New, keys(1000, 1500)...)
		copied := s.snapshot(w.dir + ".copy")
		s.add(New, keys(1500, 1600)...)
		x := s.Stats().Snapshots
		if x.Made != 1 || x.URLs != 1500 || x.LinkedBytes == 0 || x.CopiedBytes == 0 || x.LSN == 0 {
			t.Errorf("Stats: %+v", x)
		}

		c := copied.open()
		c.urls(1500)
		c.has(Seen, keys(0, 1500)...)
		c.add(New, keys(1500, 2000)...)
		s.add(New, keys(1600, 2100)...)
		c.flush()
		s.flush()
		c.urls(2000)
		s.urls(2100)
	}
}

// TestSnapshotOfEmpty copies a store that has only been made.
func TestSnapshotOfEmpty(t *testing.T) {
	w := inMemory(t)
	c := w.open().snapshot("/copy").open()
	c.urls(0)
	c.add(New, keys(0, 10)...)
}

// TestSnapshotLives copies namespaces, TTLs, the time, forgets and no claims.
func TestSnapshotLives(t *testing.T) {
	for _, counters := range []bool{false, true} {
		w, clock := clocked(inMemory(t))
		w.o.Counters = counters
		s := w.spanned().open()
		const day = 24 * time.Hour
		s.add(New, keys(0, 500)...)
		s.with(2*day).add(New, keys(500, 900)...)
		dropped, a, b := s.named("dropped", nil), s.named("a", &NamespaceOptions{TTL: 3 * day}), s.named("b", nil)
		dropped.add(New, keys(0, 100)...)
		a.add(New, keys(0, 300)...)
		b.add(New, keys(0, 50)...)
		must(t, s.DropNamespace(t.Context(), "dropped"))
		s.forget(100, keys(0, 100)...)
		clock.pass(day)
		s.flush()
		if counters {
			s.idle()
		}
		s.forget(100, keys(100, 200)...)
		b.forget(10, keys(0, 10)...)
		b.add(New, keys(50, 60)...)
		s.claim(New, "claimed", time.Hour)
		copied, there := s.snapshot("/copy"), slices.Collect(s.Namespaces())
		s.forget(100, keys(200, 300)...)
		s.add(New, keys(0, 100)...)
		must(t, s.DropNamespace(t.Context(), "a"))

		c := copied.open()
		c.has(New, keys(0, 200)...)
		c.has(Seen, keys(200, 900)...)
		ca, cb := c.named("a", nil), c.named("b", nil)
		ca.has(Seen, keys(0, 300)...)
		cb.has(New, keys(0, 10)...)
		cb.has(Seen, keys(10, 60)...)
		c.urls(700 + 300 + 50)
		if got := slices.Collect(c.Namespaces()); !slices.Equal(got, there) {
			t.Errorf("the copy has the namespaces %+v, want %+v", got, there)
		}
		c.claim(New, "claimed", time.Hour)
		clock.pass(day + 3*time.Hour)
		c.has(New, keys(500, 900)...)
		ca.has(Seen, keys(0, 300)...)
		clock.pass(day)
		ca.has(New, keys(0, 300)...)
		c.flush()
		if _, err := c.Expire(t.Context(), ExpireOptions{}); err != nil {
			t.Error(err)
		}
		c.urls(300 + 50)
	}
}

// TestSnapshotFilters opens a copy, without filters or counters, which says so
// and builds them. One that is missing later is damage again.
func TestSnapshotFilters(t *testing.T) {
	w := onDisk(t).spanned()
	w.o.Counters = true
	s := w.open()
	const n = 2000
	s.with(time.Hour).add(New, keys(0, n)...)
	s.flush()
	s.idle()
	r := s.snapshot(w.dir + ".copy")
	if names := r.files(func(name string) bool { return isFilterName(name) || isCountersName(name) }); len(names) > 0 {
		t.Errorf("the copy holds %q", names)
	}
	g := newGate(t)
	r.point = func(at string) {
		if at == "build-begun" || at == "build-step" {
			g.pass()
		}
	}
	asked := func(s *testStore) {
		s.has(Seen, keys(0, n)...)
		s.has(New, keys(n, 2*n)...)
		x := s.Stats()
		if len(x.Recovery.BadFilters) > 0 {
			t.Errorf("bad filters are %+v", x.Recovery.BadFilters)
		}
		if !slices.Contains(x.Degraded, "bitmap: "+leftOutReason) {
			t.Errorf("degraded is %q", x.Degraded)
		}
	}
	r.openReadOnly(asked)
	c := r.open()
	asked(c)
	c.add(Seen, keys(0, n)...)
	g.open()
	c.healthy()
	c.has(Seen, keys(0, n)...)
	c.has(New, keys(n, 2*n)...)
	c.close()

	for _, name := range r.files(isBitmapName) {
		must(t, os.Remove(filepath.Join(r.dir, name)))
	}
	report, err := Verify(t.Context(), r.dir, VerifyOptions{})
	must(t, err)
	if len(report.Faults) != 1 || report.Faults[0].Consequence != isBuiltAnew {
		t.Errorf("faults of a copy whose bitmap was removed: %+v", report.Faults)
	}
	c = r.open()
	if bad := c.Stats().Recovery.BadFilters; len(bad) != 1 {
		t.Errorf("bad filters are %+v", bad)
	}
}

// TestSnapshotRestored restores a snapshot twice, by cp, and by Snapshot of it
// opened read-only, which changes nothing in it.
func TestSnapshotRestored(t *testing.T) {
	w := onDisk(t).spanned()
	s := w.open()
	s.add(New, keys(0, 700)...)
	r := s.snapshot(w.dir + ".copy")
	before := contents(t, r.dir)
	use := func(dir string) {
		t.Helper()
		c := r.restored(dir).open()
		c.urls(700)
		c.has(Seen, keys(0, 700)...)
		c.add(New, keys(700, 900)...)
		c.close()
	}
	for _, name := range []string{".cp1", ".cp2"} {
		must(t, os.CopyFS(w.dir+name, os.DirFS(r.dir)))
		use(w.dir + name)
	}
	for _, name := range []string{".again1", ".again2"} {
		r.openReadOnly(func(s *testStore) { s.snapshot(w.dir + name) })
		use(w.dir + name)
	}
	// A snapshot of a snapshot of a snapshot.
	must(t, os.CopyFS(w.dir+".cp3", os.DirFS(r.dir)))
	again := r.restored(w.dir + ".cp3").open().snapshot(w.dir + ".cp4")
	use(again.dir)
	after := contents(t, r.dir)
	for name := range before {
		if before[name] != after[name] {
			t.Errorf("%s has changed", name)
		}
	}
	if len(before) != len(after) {
		t.Errorf("there were %d files, and are %d", len(before), len(after))
	}
	info, err := os.Stat(filepath.Join(r.dir, identityName))
	must(t, err)
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("STORE has mode %v", got)
	}
}

// contents are those of all files below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = string(b)
		return err
	}))
	return files
}

// TestSnapshotRefused asks for snapshots that cannot be made. Nothing is
// touched.
func TestSnapshotRefused(t *testing.T) {
	w := onDisk(t)
	s := w.open()
	s.add(New, keys(0, 10)...)
	base := filepath.Dir(w.dir)
	in := func(name string) string { return filepath.Join(base, name) }
	must(t, os.Mkdir(in("there"), 0o700))
	must(t, os.Symlink(w.dir, in("link")))
	must(t, os.Mkdir(in("foreign.tmp"), 0o700))
	must(t, os.WriteFile(filepath.Join(in("foreign.tmp"), "letter"), nil, 0o600))
	must(t, os.WriteFile(in("file.tmp"), nil, 0o600))
	s.snapshot(in("whole.tmp"))
	before := contents(t, base)
	for _, c := range []struct {
		dir, names string
		want       error
	}{
		{in("there"), "there", fs.ErrExist},
		{w.dir, w.dir, fs.ErrExist},
		{filepath.Join(w.dir, "copy"), w.dir, ErrInsideStore},
		{filepath.Join(w.dir, pebbleDir, "copy"), w.dir, ErrInsideStore},
		{filepath.Join(in("link"), "copy"), "link", ErrInsideStore},
		{filepath.Join(in("none"), "copy"), "none", fs.ErrNotExist},
		{filepath.Join(in("file.tmp"), "copy"), "file.tmp", syscall.ENOTDIR},
		{in("file"), "file.tmp", syscall.ENOTDIR},
		{in("foreign"), "foreign.tmp", ErrNotStore},
		{in("whole"), "whole.tmp", fs.ErrExist},
	} {
		err := s.Snapshot(t.Context(), c.dir)
		is(t, c.dir, err, c.want)
		if err != nil && !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: the error does not name %s: %v", c.dir, c.names, err)
		}
	}
	for name, b := range before {
		now, err := os.ReadFile(name)
		if filepath.Dir(name) != filepath.Join(w.dir, logDir) && (err != nil || string(now) != b) {
			t.Errorf("%s has changed, %v", name, err)
		}
	}
	if now := contents(t, base); len(now) != len(before) {
		t.Errorf("there were %d files, and are %d", len(before), len(now))
	}
}

// TestSnapshotLeft replaces what a snapshot has left that was killed, and not
// what another one makes at this moment.
func TestSnapshotLeft(t *testing.T) {
	w := onDisk(t)
	dir := w.dir + ".copy"
	g := newGate(t)
	var first bool
	w.point = func(at string) {
		if at == "snapshot-copied" && !first {
			first = true
			g.pass()
		}
	}
	s := w.open()
	s.add(New, keys(0, 100)...)
	var err error
	done := start(func() { err = s.Snapshot(context.Background(), dir) })
	within(t, "the snapshot", g.reached)
	is(t, "a second snapshot", s.Snapshot(t.Context(), dir), ErrLocked)
	left := filepath.Join(t.TempDir(), "left")
	must(t, os.CopyFS(left, os.DirFS(dir+".tmp")))
	g.open()
	within(t, "the snapshot", done)
	must(t, err)

	must(t, os.Rename(left, dir+".2.tmp"))
	s.add(New, keys(100, 200)...)
	s.snapshot(dir+".2").open().has(Seen, keys(0, 200)...)
}

// TestSnapshotEnds ends snapshots by their context and by Close.
func TestSnapshotEnds(t *testing.T) {
	for _, at := range []string{"snapshot-cut", "snapshot-copied"} {
		w := onDisk(t)
		g := newGate(t)
		w.point = func(point string) {
			if point == at {
				g.pass()
			}
		}
		s := w.open()
		s.add(New, keys(0, 100)...)
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		done := start(func() { err = s.Snapshot(ctx, w.dir+".copy") })
		within(t, at, g.reached)
		cancel()
		g.open()
		within(t, at, done)
		is(t, at, err, context.Canceled)
		s.leftNothing(w.dir + ".copy")
		s.add(New, keys(100, 200)...)
		is(t, "canceled before", s.Snapshot(ctx, w.dir+".copy"), context.Canceled)
	}

	// It waits for the maintainer, which Verify keeps out, and not for ever.
	w := onDisk(t)
	s := w.open()
	s.maintainer.mu.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	done := start(func() { is(t, "waiting", s.Snapshot(ctx, w.dir+".copy"), context.Canceled) })
	cancel()
	within(t, "waiting", done)
	s.maintainer.mu.Unlock()
	s.leftNothing(w.dir + ".copy")

	// Close ends it.
	g := newGate(t)
	w = onDisk(t)
	w.point = func(point string) {
		if point == "snapshot-cut" {
			g.pass()
		}
	}
	s = w.open()
	done = start(func() { is(t, "closing", s.Snapshot(context.Background(), w.dir+".copy"), ErrClosed) })
	within(t, "closing", g.reached)
	closed := start(s.close)
	within(t, "the maintainer's end", s.maintainer.done)
	g.open()
	within(t, "closing", done)
	within(t, "Close", closed)
	is(t, "closed", s.Snapshot(t.Context(), w.dir+".copy"), ErrClosed)
	s.leftNothing(w.dir + ".copy")
}

// leftNothing checks that a snapshot that was not made has left nothing.
func (s *testStore) leftNothing(dir string) {
	s.w.t.Helper()
	fsys := s.w.plainOptions().withDefaults().seams.FS
	for _, path := range []string{dir, dir + ".tmp"} {
		if isThere(s.w.t, fsys.Stat, path) {
			s.w.t.Errorf("%s is there", path)
		}
	}
	names, err := fsys.List(fsys.PathJoin(s.w.dir, tmpDir))
	must(s.w.t, err)
	if len(names) > 0 {
		s.w.t.Errorf("tmp/ of the store holds %q", names)
	}
}

// TestSnapshotAcrossDevices copies what it cannot link.
func TestSnapshotAcrossDevices(t *testing.T) {
	w := onDisk(t)
	w.fault = func(op errorfs.Op) error {
		// Pebble links what it ingests. Only links out of the store fail.
		if op.Kind == errorfs.OpLink && filepath.Base(filepath.Dir(op.Path)) == stagedTables {
			return &os.LinkError{Op: "link", Old: op.Path, Err: syscall.EXDEV}
		}
		return nil
	}
	s := w.spanned().open()
	s.add(New, keys(0, 1000)...)
	s.flush()
	r := s.snapshot(w.dir + ".copy")
	if x := s.Stats().Snapshots; x.LinkedBytes != 0 || x.CopiedBytes == 0 {
		t.Errorf("Stats: %+v", x)
	}
	r.open().has(Seen, keys(0, 1000)...)
}

// TestSnapshotPoisoned refuses to copy a store of which nobody knows what is
// written.
func TestSnapshotPoisoned(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	defer s.abandon()
	s.poison(errors.New("test"))
	is(t, "poisoned", s.Snapshot(t.Context(), "/copy"), ErrPoisoned)
	s.leftNothing("/copy")
}

// TestSnapshotOrigin opens copies whose SNAPSHOT is gone or damaged: what was
// left out counts as lost then, and is built all the same.
func TestSnapshotOrigin(t *testing.T) {
	w := onDisk(t)
	s := w.open()
	s.add(New, keys(0, 300)...)
	s.flush()
	for name, damage := range map[string]func(path string) error{
		"gone":    os.Remove,
		"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"no JSON": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"large":   func(path string) error { return os.WriteFile(path, make([]byte, maxOriginBytes+1), 0o600) },
		"of another format": func(path string) error {
			return os.WriteFile(path, appendOrigin(nil, &origin{Format: 2, Bitmap: 1}), 0o600)
		},
		"of another bitmap": func(path string) error {
			return os.WriteFile(path, appendOrigin(nil, &origin{Format: 1, Bitmap: 7}), 0o600)
		},
	} {
		r := s.snapshot(w.dir + "." + name)
		must(t, damage(filepath.Join(r.dir, snapshotName)))
		report, err := Verify(t.Context(), r.dir, VerifyOptions{})
		must(t, err)
		if len(report.Faults) != 1 || report.Faults[0].Consequence != isBuiltAnew {
			t.Errorf("%s: faults are %+v", name, report.Faults)
		}
		c := r.open()
		if bad := c.Stats().Recovery.BadFilters; len(bad) != 1 {
			t.Errorf("%s: bad filters are %+v", name, bad)
		}
		c.add(Seen, keys(0, 300)...)
		c.healthy()
		c.close()
	}
}
