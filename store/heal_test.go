package store

import (
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// filled is a world on disk with a closed store of n keys in several spans.
func filled(t testing.TB, n int) *world {
	w := onDisk(t).spanned()
	s := w.open()
	for i := 0; i < n; i += 100 {
		s.add(New, keys(i, i+100)...)
		s.flush()
	}
	s.healthy()
	s.close()
	return w
}

// isFilterName reports a name of a bitmap's or a segment filter's file.
func isFilterName(name string) bool { return isBitmapName(name) || isSpanFilterName(name) }

// TestBadFilterFile takes each filter's file away, or damages it: the store
// opens, answers right at once, says so, keeps the file and makes a new one.
func TestBadFilterFile(t *testing.T) {
	const n = 1000
	other := filled(t, n)
	damages := map[string]func(t *testing.T, path string){
		"missing":   func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"empty":     func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) },
		"short":     func(t *testing.T, path string) { must(t, os.Truncate(path, 4096)) },
		"no header": func(t *testing.T, path string) { overwrite(t, path, 0, make([]byte, 4096)) },
		"noise":     func(t *testing.T, path string) { overwrite(t, path, 0, noise(4096)) },
		"another store's": func(t *testing.T, path string) {
			b, err := os.ReadFile(filepath.Join(other.dir, filepath.Base(path)))
			must(t, err)
			must(t, os.WriteFile(path, b, 0o600))
		},
		"another's of this store": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			must(t, err)
			dir := filepath.Dir(path)
			names, err := os.ReadDir(dir)
			must(t, err)
			for _, e := range names {
				if isFilterName(e.Name()) && e.Name() != filepath.Base(path) {
					b, err = os.ReadFile(filepath.Join(dir, e.Name()))
					must(t, err)
				}
			}
			must(t, os.WriteFile(path, b, 0o600))
		},
	}
	for what, damage := range damages {
		t.Run(what, func(t *testing.T) {
			w := filled(t, n)
			names := w.files(isFilterName)
			files := len(names)
			for _, name := range names {
				damage(t, filepath.Join(w.dir, name))
				// Nothing is built before the answers were looked at.
				g := newGate(t)
				w.t, w.point = t, func(at string) {
					if at == "build-begun" || at == "build-step" {
						g.pass()
					}
				}
				w.openReadOnly(func(s *testStore) {
					if x := s.Stats(); len(x.Degraded) != 1 {
						t.Errorf("%s, read-only: degraded is %q", name, x.Degraded)
					}
					s.has(Seen, keys(0, n)...)
					s.has(New, keys(n, 2*n)...)
				})
				s := w.open()
				if x := s.Stats(); len(x.Degraded) != 1 {
					t.Errorf("%s: degraded is %q", name, x.Degraded)
				}
				s.has(Seen, keys(0, n)...)
				s.has(New, keys(n, 2*n)...)
				s.add(Seen, keys(0, n)...)
				g.open()
				s.healthy()
				s.has(Seen, keys(0, n)...)
				s.has(New, keys(n, 2*n)...)
				bad := s.Stats().Recovery.BadFilters
				if what == "missing" && isSpanFilterName(name) {
					bad = []BadFilter{{Path: name}} // nobody knows that there was one
				}
				if len(bad) != 1 || filepath.Base(bad[0].Path) != name || (bad[0].Kept == "") != (what == "missing") {
					t.Errorf("%s: reported are %+v", name, bad)
				}
				s.close()
			}
			kept := w.files(func(n string) bool { return strings.Contains(n, badSuffix) })
			if what != "missing" && len(kept) != files {
				t.Errorf("kept are %q, want %d files", kept, files)
			}
		})
	}
}

// openReadOnly shows a store that is open read-only.
func (w *world) openReadOnly(look func(*testStore)) {
	w.t.Helper()
	o := w.options()
	o.ReadOnly = true
	s := mustOpen(w.t, w.dir, o)
	look(&testStore{Store: s, w: w})
	must(w.t, s.Close())
}

func overwrite(t *testing.T, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(b, at)
	must(t, err)
	must(t, f.Close())
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// TestFlippedAtRest clears bits of filters of a closed store, page by page: no
// "no" of such a page counts, and it is set again.
func TestFlippedAtRest(t *testing.T) {
	const n = 3000
	w := onDisk(t).spanned()
	w.o.ExpectedURLs = 20_000 // a bitmap of several pages
	s := w.open()
	for i := 0; i < n; i += 100 {
		s.add(New, keys(i, i+100)...)
	}
	s.flush()
	s.healthy()
	s.close()
	for _, name := range w.files(isFilterName) {
		path := filepath.Join(w.dir, name)
		info, err := os.Stat(path)
		must(t, err)
		overwrite(t, path, 4096+100, make([]byte, 64))
		overwrite(t, path, (info.Size()-4096)/2, make([]byte, 64))
	}
	r, err := Verify(t.Context(), w.dir, VerifyOptions{})
	must(t, err)
	if r.OK() {
		t.Error("verify does not find the pages")
	}
	for _, f := range r.Faults {
		if f.Consequence != isSetAgain || f.Offset < 4096 {
			t.Errorf("verify: %+v", f)
		}
	}
	for _, first := range []bool{true, false} { // first touch, and in the background
		g := newGate(t)
		w.point = func(at string) {
			if at == "step" && first {
				g.pass()
			}
		}
		s := w.open()
		if first {
			s.has(Seen, keys(0, n)...)
			s.has(New, keys(n, 2*n)...)
			g.open()
		}
		s.healthy()
		if x := s.Stats(); (x.Filters.PagesHealed > 0) != first {
			t.Errorf("%d pages were healed, first time %v", x.Filters.PagesHealed, first)
		}
		s.has(Seen, keys(0, n)...)
		s.close()
	}
}

// TestFlippedWhileOpen clears bits under an open store, in all of its filters:
// the self-check notices.
func TestFlippedWhileOpen(t *testing.T) {
	const n = 3000
	for _, kind := range []func(string) bool{isBitmapName, isSpanFilterName} {
		w := onDisk(t).spanned()
		w.selfCheckEvery = 1
		s := w.open()
		for i := 0; i < n; i += 100 {
			s.add(New, keys(i, i+100)...)
		}
		s.flush()
		s.healthy()
		for _, name := range w.files(kind) {
			overwrite(t, filepath.Join(w.dir, name), 4096+64, make([]byte, 256))
		}
		s.has(Seen, keys(0, n)...)
		s.healthy()
		x := s.Stats()
		if x.Filters.BitsLost == 0 || x.Filters.PagesHealed == 0 || len(x.Warnings) == 0 {
			t.Errorf("got %+v, warnings %q", x.Filters, x.Warnings)
		}
		s.has(Seen, keys(0, n)...)
		if y := s.Stats(); y.Filters.BitsLost != x.Filters.BitsLost {
			t.Errorf("%d bits are lost after the pages were set again", y.Filters.BitsLost-x.Filters.BitsLost)
		}
		s.close()
	}
}

var removedURLs = flag.Int("removed.urls", 8000, "URLs of the store of TestRemovedWhileOpen; from 1,000,000 on of default options")

// TestRemovedWhileOpen removes the filters' files while adds run at full speed:
// it is noticed, they are built anew, and no answer is wrong, then and after a
// reopen.
//
//	go test ./store -run TestRemovedWhileOpen -v -removed.urls=20000000
func TestRemovedWhileOpen(t *testing.T) {
	n := *removedURLs
	batch := n / 80
	w := onDisk(t).spanned()
	if n >= 1_000_000 {
		w, batch = &world{t: t, dir: w.dir}, 1000
	}
	s := w.open()
	third := n / 3 / batch * batch
	for i := 0; i < third; i += batch {
		s.add(New, keys(i, i+batch)...)
	}
	s.flush()
	s.healthy()
	var adds sync.WaitGroup
	begun := make(chan struct{})
	adds.Go(func() {
		for i := third; i < n; i += batch {
			s.add(New, keys(i, i+batch)...)
			if i == third+batch {
				close(begun)
			}
		}
	})
	<-begun
	before := w.files(isFilterName)
	for _, name := range before {
		_ = os.Remove(filepath.Join(w.dir, name)) // a build may have been faster
	}
	if len(before) == 0 {
		t.Fatal("there is no filter to remove")
	}
	adds.Wait()
	s.flush()
	s.healthy()
	look := func(want Answer, lo int) {
		for i := lo; i < lo+n; i += batch * max(1, n/1_000_000) { // about a million
			s.has(want, keys(i, i+batch)...)
		}
	}
	look(Seen, 0)
	look(New, n)
	for _, name := range w.files(isFilterName) {
		if slices.Contains(before, name) {
			t.Errorf("%s is there again", name)
		}
	}
	if got := w.files(isBitmapName); len(got) != 1 {
		t.Errorf("got bitmaps %q", got)
	}
	t.Logf("%d URLs, %d files removed, %+v", n, len(before), s.Stats().Build)
	s.close()
	s = w.open()
	s.healthy()
	look(Seen, 0)
	look(New, n)
	s.urls(n)
}

// TestForeignFileIsKept removes a bitmap under an open store and puts another
// file in its place: that one is not ours to remove.
func TestForeignFileIsKept(t *testing.T) {
	w := filled(t, 1000)
	s := w.open()
	s.healthy()
	name := w.files(isBitmapName)[0]
	path := filepath.Join(w.dir, name)
	must(t, os.Remove(path))
	must(t, os.WriteFile(path, []byte("notes"), 0o600))
	s.add(New, keys(1000, 1100)...)
	s.flush()
	eventually(t, "a build", func() bool { return s.Stats().Build.Builds > 0 })
	s.healthy()
	if b, err := os.ReadFile(path); err != nil || string(b) != "notes" {
		t.Errorf("got %q, %v", b, err)
	}
	must(t, os.Remove(path))
}

// TestUnverified kills a store: its filters are unverified until a build has
// replaced them, also if it is closed before.
func TestUnverified(t *testing.T) {
	w := inMemory(t).spanned()
	w.o.Durability = Sync
	s := w.open()
	for i := 0; i < 1000; i += 100 {
		s.add(New, keys(i, i+100)...)
	}
	s.flush()
	s.healthy()
	s.add(New, keys(1000, 1100)...)
	w = w.crash(seeded(t), 50)
	s.abandon()
	var full atomic.Bool
	full.Store(true)
	w.twin.Fail = func(op, path string) error {
		if op == "create" && full.Load() {
			return syscall.ENOSPC
		}
		return nil
	}
	for life := range 3 {
		s = w.open()
		if x := s.Stats(); len(x.Unverified) == 0 {
			t.Errorf("life %d: unverified is %q", life, x.Unverified)
		}
		s.has(Seen, keys(0, 1100)...)
		if life < 2 {
			s.close()
		}
	}
	full.Store(false)
	s.maintainer.mu.Lock()
	s.maintainer.noBuildBefore = time.Time{}
	s.maintainer.mu.Unlock()
	s.healthy()
	s.has(Seen, keys(0, 1100)...)
	s.close()
	s = w.open()
	if x := s.Stats(); len(x.Unverified) != 0 {
		t.Errorf("after the builds: unverified is %q", x.Unverified)
	}
}

// TestLookAcrossSwitch holds a look up before the bitmap, while a build
// switches to the next one and flushes set no bits in the old one any more.
func TestLookAcrossSwitch(t *testing.T) {
	w := inMemory(t).small()
	g := newGate(t)
	var armed atomic.Bool
	w.point = func(at string) {
		if at == "look-bitmap" && armed.CompareAndSwap(true, false) {
			g.pass()
		}
	}
	s := w.open()
	s.add(New, keys(0, 50)...)
	s.flush()
	armed.Store(true)
	const late = 100_000
	added := make(chan bool, 1)
	go func() {
		isNew, err := s.Add(t.Context(), key(late))
		if err != nil {
			t.Error(err)
		}
		added <- isNew
	}()
	within(t, "the look", g.reached)
	s.add(New, keys(50, 400)...)
	eventually(t, "a switch", func() bool { s.kick(); return s.Stats().Build.Builds > 0 })
	s.add(New, key(late))
	s.flush()
	g.open()
	if <-added {
		t.Error("a key is New twice: the second time by a bitmap that was let go")
	}
	s.has(Seen, key(late))
}

// TestGrowFloor records a floor, which a reopen and a lost bitmap keep.
func TestGrowFloor(t *testing.T) {
	w := onDisk(t).small()
	s := w.open()
	s.add(New, keys(0, 50)...)
	must(t, s.Grow(t.Context(), 50_000))
	capacity := func() string { return fmt.Sprint(s.Stats().Bitmap.Capacity) }
	if capacity() != "50000" {
		t.Errorf("the bitmap is for %s URLs, want 50000", capacity())
	}
	must(t, s.Grow(t.Context(), 10)) // never smaller
	s.close()
	w.o.ExpectedURLs = 0
	must(t, os.Remove(filepath.Join(w.dir, w.files(isBitmapName)[0])))
	s = w.open()
	s.healthy()
	if capacity() != "50000" {
		t.Errorf("the bitmap built anew is for %s URLs, want 50000", capacity())
	}
	s.close()
	w.o.ExpectedURLs = 60_000
	s = w.open()
	eventually(t, "the floor that Open was given", func() bool { return s.Stats().Bitmap.Capacity == 60_000 })
	s.has(Seen, keys(0, 50)...)
	for _, bad := range []int64{-1, 0, MaxExpectedURLs + 1} {
		if err := s.Grow(t.Context(), bad); err == nil {
			t.Errorf("Grow to %d: no error", bad)
		}
	}
}

// TestKilledInFirstFlushOfSegment kills a store between the bits and the ingest
// of the first words of a segment, when all that Pebble knows are closed: the
// bitmap's sums do not count, although it was synced for all of those.
func TestKilledInFirstFlushOfSegment(t *testing.T) {
	w := inMemory(t).spanned()
	w.o.Durability = Sync
	var killed *world
	full := false // of the test's goroutine, before the maintainer flushes
	rng := seeded(t)
	w.point = func(at string) {
		if at == "filter-made" && full {
			killed = w.crash(rng, 100)
		}
	}
	s := w.open()
	s.add(New, keys(0, 300)...)
	s.flush()
	s.healthy()
	s.close()
	s = w.open()
	if !s.mu.registry.closed(s.mu.registry.ids()) {
		t.Fatal("a segment is open")
	}
	full = true
	s.add(New, keys(300, 400)...)
	s.flush()
	if killed == nil {
		t.Fatal("no filter was made")
	}
	after := killed.open()
	if x := after.Stats(); len(x.Unverified) == 0 || x.Filters.PagesBad+x.Filters.PagesHealed > 0 {
		t.Errorf("unverified is %q, %+v", x.Unverified, x.Filters)
	}
	after.has(Seen, keys(0, 400)...)
}

// TestBuildMeetsDamagedTable kills a store and damages a table: the build that
// is to replace the bitmap cannot read it. Adds and the lookups that do not need
// the table go on, those that do say so, and nothing is taken for new.
func TestBuildMeetsDamagedTable(t *testing.T) {
	w := filled(t, 1000)
	tables, err := filepath.Glob(filepath.Join(w.dir, pebbleDir, "*.sst"))
	must(t, err)
	largest, size := "", int64(0)
	for _, table := range tables {
		if info, err := os.Stat(table); err == nil && info.Size() > size {
			largest, size = table, info.Size()
		}
	}
	b, err := os.ReadFile(largest)
	must(t, err)
	b[size/4] ^= 1
	must(t, os.WriteFile(largest, b, 0o600))
	must(t, os.Remove(filepath.Join(w.dir, w.files(isBitmapName)[0])))
	s := mustOpen(t, w.dir, w.options())
	eventually(t, "the build is given up", func() bool { return s.Stats().Build.GivenUp > 0 })
	if x := s.Stats(); x.Err != "" || len(x.Degraded) == 0 || len(x.Warnings) == 0 {
		t.Errorf("err %q, degraded %q, warnings %q", x.Err, x.Degraded, x.Warnings)
	}
	var seen, failed int
	for i := range 1000 {
		has, err := s.Has(t.Context(), key(i))
		switch {
		case err != nil:
			is(t, "Has", err, ErrCorrupt)
			failed++
		case has:
			seen++
		}
	}
	if seen+failed != 1000 || seen == 0 || failed == 0 {
		t.Errorf("%d keys are seen and %d lookups failed, of 1000", seen, failed)
	}
	added := 0
	for i := 1000; i < 1100; i++ {
		if isNew, err := s.Add(t.Context(), key(i)); err == nil && isNew {
			added++
		}
	}
	if added == 0 {
		t.Error("nothing can be added")
	}
	must(t, s.Close())
}
