package store

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"dedupstore/wal"
)

// Stores whose URLs expire, are forgotten and are dropped with their namespaces
// are damaged, and repaired. Beside what must hold for each repair: what is seen
// and should not be was forgotten or dropped, and the report says that such URLs
// may be seen again.

// A lifeKey is a key of a namespace.
type lifeKey struct {
	space string
	i     int
}

// lifeStore is such a store, as a kill leaves it.
type lifeStore struct {
	t     *testing.T
	clock *fakeClock
	dir   string
	keys  map[lifeKey]bool // all that were ever added; whether they are there

	counters bool
}

func (l *lifeStore) world(t *testing.T) *world {
	w := onDisk(t)
	w.o.Clock, w.o.Counters = l.clock, l.counters
	return w
}

// set notes what was done to keys.
func (l *lifeStore) set(there bool, space string, lo, hi int) []string {
	for i := lo; i < hi; i++ {
		l.keys[lifeKey{space, i}] = there
	}
	return keys(lo, hi)
}

// drop notes that a namespace was dropped.
func (l *lifeStore) drop(s *testStore, space string) {
	l.t.Helper()
	must(l.t, s.DropNamespace(l.t.Context(), space))
	for k := range l.keys {
		if k.space == space {
			l.keys[k] = false
		}
	}
}

// newLifeStore makes one with two log files that are not flushed, the first of
// them frozen.
func newLifeStore(t *testing.T, counters bool) *lifeStore {
	t.Helper()
	w, c := clocked(onDisk(t))
	w.memtableWords, w.spanWords, w.exciseWords = 400, 1000, 500
	w.o.SyncInterval, w.o.Counters = time.Millisecond, counters
	l := &lifeStore{t: t, clock: c, counters: counters, keys: map[lifeKey]bool{}}
	g := newGate(t)
	hold := make(chan struct{})
	w.point = func(at string) {
		select {
		case <-hold:
			if at == "flush" {
				g.pass()
			}
		default:
		}
	}
	s := &testStore{Store: mustOpen(t, w.dir, w.options()), w: w}
	add := func(n testHandle, lo, hi int) {
		t.Helper()
		for ; lo < hi; lo += 50 {
			n.add(New, l.set(true, n.Name(), lo, min(lo+50, hi))...)
		}
	}
	plain := testHandle{s.Namespace, t}
	a, late := s.named("a", &NamespaceOptions{TTL: 24 * time.Hour}), s.named("late", nil)
	gone, small := s.named("gone", nil), s.named("small", nil)
	hour, month, soon := s.with(time.Hour), s.with(30*24*time.Hour), s.with(10*time.Second)
	add(plain, 0, 700)
	add(gone, 0, 600)
	add(hour, 2000, 2300)
	add(small, 0, 100)
	add(late, 0, 50)
	add(plain, 700, 1500)
	add(a, 0, 300)
	add(month, 2300, 2600)
	add(soon, 3000, 3100)
	s.flush()
	s.forget(100, l.set(false, "", 0, 100)...)
	s.flush()
	add(plain, 0, 50)
	l.drop(s, "gone")
	l.drop(s, "small")
	c.pass(20 * time.Second)
	l.set(false, "", 3000, 3100)
	_, err := s.Expire(t.Context(), ExpireOptions{})
	must(t, err)
	if counters {
		must(t, s.Grow(t.Context(), 40_000)) // a build, which counts what is closed
	}
	r, err := s.Verify(t.Context(), VerifyOptions{Deep: true})
	noFaults(t, "before the log", r, err)

	close(hold)
	add(plain, 1500, 1600)
	add(hour, 2600, 2620)
	s.forget(20, l.set(false, "", 100, 120)...)
	s.forget(10, l.set(false, "", 1500, 1510)...)
	add(plain, 1500, 1505)
	x := s.named("x", nil)
	add(x, 0, 30)
	l.drop(s, "late")
	if counters {
		s.subtract()
	}
	add(late, 0, 10)
	s.named("a", &NamespaceOptions{TTL: 48 * time.Hour})
	add(plain, 1600, 1960)
	within(t, "the flush", g.reached)
	s.forget(10, keys(110, 130)...)
	l.set(false, "", 120, 130)
	s.forget(5, l.set(false, "", 1600, 1605)...)
	add(plain, 100, 105)
	add(a, 300, 320)
	add(hour, 2620, 2630)
	must(t, s.acceptClock())
	must(t, s.Sync(t.Context()))
	for {
		_, frames := l.frames(t, w.dir)
		if frames[len(frames)-1].kind == 1 {
			break
		}
	}
	l.dir = filepath.Join(t.TempDir(), "killed")
	must(t, os.CopyFS(l.dir, os.DirFS(w.dir)))
	g.open()
	must(t, s.Close())
	return l
}

// subtract has a build subtract what is over, and waits until that was dropped.
func (s *testStore) subtract() {
	s.w.t.Helper()
	s.Store.mu.Lock()
	s.Store.mu.hurried++
	s.Store.mu.Unlock()
	builds := s.Stats().Build.FromCounters
	eventually(s.w.t, "the build", func() bool {
		s.kick()
		left := 0
		for _, row := range s.segmentRows() {
			if s.gone(&row) {
				left++
			}
		}
		return s.Stats().Build.FromCounters > builds && left == 0
	})
	s.Store.mu.Lock()
	s.Store.mu.hurried--
	s.Store.mu.Unlock()
}

// frames are those of the log's files.
func (l *lifeStore) frames(t *testing.T, dir string) (paths []string, frames []damageFrame) {
	t.Helper()
	var files [][]byte
	for _, path := range repairGlob(t, dir, "log/*.log") {
		b, err := os.ReadFile(path)
		must(t, err)
		paths, files = append(paths, path), append(files, b)
	}
	return paths, damageFrames(files)
}

// copy is the store in a directory of its own.
func (l *lifeStore) copy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	must(t, os.CopyFS(dir, os.DirFS(l.dir)))
	return dir
}

// lifeResult is what a repaired store answers otherwise than it should.
type lifeResult struct {
	*RepairReport
	missing []lifeKey
	again   []lifeKey // that are seen, and should not be
}

// repair repairs a damaged copy, and checks what must hold whatever the damage.
// lost are other names for namespaces whose name is lost.
func (l *lifeStore) repair(t *testing.T, dir string, lost map[string]string) (r lifeResult) {
	t.Helper()
	o := l.world(t).options()
	before := repairTree(t, dir)
	plan, err := repairDir(t.Context(), dir, RepairOptions{}, o)
	must(t, err)
	sameTree(t, "dry run", before, repairTree(t, dir))
	r.RepairReport, err = repairDir(t.Context(), dir, RepairOptions{Apply: true}, o)
	must(t, err)
	for _, f := range r.Left {
		t.Errorf("left: %+v", f)
	}
	ts := &testStore{Store: mustOpen(t, r.Store, o), w: l.world(t)}
	defer ts.Store.Close()
	urls := int64(0)
	for stats := range ts.Namespaces() {
		n := ts.named(stats.Name, nil)
		space := stats.Name
		if name, ok := lost[space]; ok {
			space = name
		}
		n.has(New, keys(100_000, 102_000)...) // never added
		all := []lifeKey{}
		for k := range l.keys {
			if k.space == space {
				all = append(all, k)
			}
		}
		for _, k := range all {
			has, err := n.Has(t.Context(), key(k.i))
			must(t, err)
			switch {
			case has:
				urls++
				if !l.keys[k] {
					r.again = append(r.again, k)
				}
			case l.keys[k]:
				r.missing = append(r.missing, k)
				if x := r.Tables; x != nil && !inRanges(t, x.Ranges, wordOf(n.core.current.Load().key, ts.Digest(key(k.i)))) {
					if r.Log == nil || r.Log.URLsAtMost == 0 {
						t.Errorf("key %+v is lost and in no range", k)
					}
				}
			}
		}
	}
	if plan.URLs != urls || r.URLs != urls || ts.Stats().URLs != urls {
		t.Errorf("%d URLs are there; the plan says %d, the report %d, the store %d", urls, plan.URLs, r.URLs, ts.Stats().URLs)
	}
	if l := r.Log; l != nil && l.URLsAtMost >= 0 && r.Tables == nil && l.URLsAtMost < int64(len(r.missing)) {
		t.Errorf("%d URLs are lost, at most %d by the report", len(r.missing), l.URLsAtMost)
	}
	if len(r.again) > 0 && !strings.Contains(strings.Join(r.Notes, "\n"), "seen again") {
		t.Errorf("%d URLs are seen again, and nothing says so: %q", len(r.again), r.Notes)
	}
	for _, k := range r.again {
		if k.space == "gone" || k.space == "small" || k.i >= 3000 {
			t.Errorf("%d URLs are seen again, key %+v was dropped", len(r.again), k)
			break
		}
	}
	if x := r.Tables; x != nil && x.Exact {
		if len(r.again) > 0 {
			t.Errorf("%d URLs are seen again, and the report claims to be exact", len(r.again))
		}
	}
	return r
}

// TestRepairLifeLog damages each record of the log, one at a time. A record that
// adds URLs costs them and nothing else; none that says something of segments and
// namespaces costs any.
func TestRepairLifeLog(t *testing.T) {
	for _, counters := range []bool{false, true} {
		repairLifeLog(t, newLifeStore(t, counters))
	}
}

func repairLifeLog(t *testing.T, l *lifeStore) {
	t.Helper()
	paths, frames := l.frames(t, l.dir)
	kinds := map[wal.Kind]int{}
	defer func() {
		if l.counters != (kinds[recordCounted] > 0 && kinds[recordGone] > 0) {
			t.Errorf("the log has records %v", kinds)
		}
	}()
	for i, f := range frames {
		kinds[wal.Kind(f.kind)]++
		if f.kind == 1 && i == len(frames)-1 || (wal.Kind(f.kind) == recordAdds && i%3 > 0) {
			continue // without the last one what is before it passes for a torn tail
		}
		t.Run(fmt.Sprintf("%d, kind %d", i, f.kind), func(t *testing.T) {
			dir := l.copy(t)
			path := filepath.Join(dir, logDir, filepath.Base(paths[f.file]))
			b, err := os.ReadFile(path)
			must(t, err)
			payload := b[f.start+40 : f.end]
			r := l.repair(t, flipped(t, dir, path, f.start+33), map[string]string{"lost-5": "x"})
			words := 0
			switch k := wal.Kind(f.kind); k {
			case recordAdds:
				words = len(payload)/8 - 1
			case recordForgets:
				words = -(len(payload)/8 - 1)
			}
			if r.Log == nil {
				t.Fatal("nothing of the log was repaired")
			}
			if len(r.missing) > max(0, words) {
				t.Errorf("%d URLs are lost, of a record of %d: %v", len(r.missing), words, r.missing[:min(5, len(r.missing))])
			}
			late := 0
			for _, k := range r.again {
				if k.space == "late" {
					late++
				}
			}
			if again := len(r.again) - late; again > max(0, -words) {
				t.Errorf("%d URLs are seen again, of a record that forgot %d: %v", again, -words, r.again[:min(5, len(r.again))])
			}
			if late > 0 && wal.Kind(f.kind) != recordNamed {
				t.Errorf("%d URLs of a namespace that was dropped are seen again", late)
			}
		})
	}
}

// flipped flips a byte of a file of a store and returns the store's directory.
func flipped(t *testing.T, dir, path string, offsets ...int) string {
	t.Helper()
	flipAt(t, path, offsets...)
	return dir
}

// TestRepairLifeTables damages each table, in several ways, and what says which of
// them count.
func TestRepairLifeTables(t *testing.T) {
	l := newLifeStore(t, false)
	tables := repairGlob(t, l.dir, "pebble/*.sst")
	virtual := 0
	s := l.repairer(t, l.dir).store(true)
	listed, asked, err := s.listTables()
	must(t, err)
	if !asked {
		t.Fatal("the MANIFEST cannot be asked")
	}
	for _, f := range listed {
		virtual += len(f.parts)
	}
	if virtual == 0 {
		t.Error("no range was cut out of a table")
	}
	kinds := []string{"data", "start", "footer", "gone"}
	for n, path := range tables {
		name := filepath.Base(path)
		i := slices.IndexFunc(listed, func(f *storedTable) bool { return f.name == name })
		f := listed[i]
		for _, what := range []string{kinds[n%4], kinds[(n+1)%4]} {
			damage := map[string]func(path string){
				"data":   func(path string) { flipAt(t, path, int(f.dataEnd/2)) },
				"start":  func(path string) { flipAt(t, path, 20) },
				"footer": func(path string) { flipAt(t, path, -1) },
				"gone":   func(path string) { must(t, os.Remove(path)) },
			}[what]
			t.Run(name+" "+what, func(t *testing.T) {
				dir := l.copy(t)
				damage(filepath.Join(dir, pebbleDir, name))
				r := l.repair(t, dir, nil)
				if r.Tables == nil && f.named {
					t.Fatal("no table was repaired")
				}
				if !f.named && (len(r.again) > 0 || len(r.missing) > 0) {
					t.Errorf("a table that does not count costs %d URLs, and %d are seen again", len(r.missing), len(r.again))
				}
				if x := r.Tables; x != nil && x.Exact && x.Lost != int64(len(r.missing)) {
					t.Errorf("%d URLs are lost, %d by the report", len(r.missing), x.Lost)
				}
				if (what == "data" || what == "footer") && f.deletes == 0 && len(r.again) > 0 {
					t.Errorf("%d URLs are seen again, by a table without deletes", len(r.again))
				}
			})
		}
	}
	for _, file := range []string{"MANIFEST-*", "marker.manifest*"} {
		t.Run(file, func(t *testing.T) {
			dir := l.copy(t)
			for _, path := range repairGlob(t, dir, "pebble/"+file) {
				must(t, os.Remove(path))
			}
			r := l.repair(t, dir, nil)
			if len(r.missing) > 0 {
				t.Errorf("%d URLs are lost", len(r.missing))
			}
			if !strings.Contains(strings.Join(r.Notes, "\n"), "forgotten URLs may be seen again") {
				t.Errorf("nothing says so: %q", r.Notes)
			}
		})
	}
}

func (l *lifeStore) repairer(t *testing.T, dir string) *repairer {
	t.Helper()
	o := l.world(t).options().withDefaults()
	id, err := readIdentity(o.seams.FS, filepath.Join(dir, identityName))
	must(t, err)
	return &repairer{
		ctx: t.Context(), dir: dir, opts: o, identity: id, record: &repairRecord{Finished: true},
		report: &RepairReport{Notes: []string{}},
	}
}

// TestRepairLifeSame copies a store whose tables are sound: it holds the same,
// also the rows of its segments and namespaces, but for what was dropped.
func TestRepairLifeSame(t *testing.T) {
	l := newLifeStore(t, true)
	dir := l.copy(t)
	r := l.repairer(t, dir)
	r.o.To = filepath.Join(t.TempDir(), "new")
	must(t, r.repairTables())
	r.o.Apply = true
	must(t, r.repairTables())
	if x := r.report.Tables; !x.Exact || x.Lost != 0 || len(x.Ranges) != 0 || x.URLs != x.Claimed {
		t.Errorf("%+v", x)
	}
	old := &testStore{Store: mustOpen(t, dir, l.world(t).options()), w: l.world(t)}
	defer old.Store.Close()
	old.flush()
	now := &testStore{Store: mustOpen(t, r.o.To, l.world(t).options()), w: l.world(t)}
	defer now.Store.Close()
	had, has := old.segmentRows(), now.segmentRows()
	maps.DeleteFunc(had, func(_ segmentID, row segmentRow) bool { return row.words == 0 || old.gone(&row) })
	for id, row := range had {
		got := has[id]
		if row.state == segmentCounted {
			row.state = segmentClosed // the new store has no counters
		}
		if got.namespace != row.namespace || got.incarnation != row.incarnation || got.key() != row.key() ||
			got.ends != row.ends || got.words != row.words || got.state != row.state {
			t.Errorf("segment %d: got %+v, want %+v", id, got, row)
		}
	}
	if len(has) != len(had) {
		t.Errorf("got %d segments, want %d", len(has), len(had))
	}
	if a, b := slices.Collect(old.Namespaces()), slices.Collect(now.Namespaces()); !slices.Equal(a, b) {
		t.Errorf("got namespaces %+v, want %+v", b, a)
	}
	if old.Stats().URLs != now.Stats().URLs || now.Stats().URLs != r.report.URLs {
		t.Errorf("%d URLs, want %d; the report says %d", now.Stats().URLs, old.Stats().URLs, r.report.URLs)
	}
}

func (s *testStore) gone(row *segmentRow) bool {
	s.Store.mu.Lock()
	defer s.Store.mu.Unlock()
	return s.Store.mu.registry.gone(row)
}

// TestRepairObsolete: a table that was merged into another one, and not deleted yet,
// brings nothing back that was forgotten; what cannot be read of that other one comes
// from it.
func TestRepairObsolete(t *testing.T) {
	w := onDisk(t)
	w.memtableWords = 10_000
	s := &testStore{Store: mustOpen(t, w.dir, w.options()), w: w}
	s.add(New, keys(0, 3000)...)
	s.flush()
	old := map[string][]byte{}
	for _, path := range repairGlob(t, w.dir, "pebble/*.sst") {
		b, err := os.ReadFile(path)
		must(t, err)
		old[path] = b
	}
	s.forget(200, keys(0, 200)...)
	s.flush()
	must(t, s.Compact(t.Context()))
	must(t, s.Store.Close())
	live := largest(t, repairGlob(t, w.dir, "pebble/*.sst"))
	for path, b := range old {
		must(t, os.WriteFile(path, b, 0o600))
	}
	for what, tc := range map[string]struct {
		damage       func(dir string)
		again, exact bool
	}{
		"footer": {func(dir string) { flipAt(t, filepath.Join(dir, pebbleDir, filepath.Base(live)), -1) }, false, true},
		"data":   {func(dir string) { flipAt(t, filepath.Join(dir, pebbleDir, filepath.Base(live)), 9000) }, true, false},
		"MANIFEST": {func(dir string) {
			for _, path := range repairGlob(t, dir, "pebble/MANIFEST-*") {
				must(t, os.Remove(path))
			}
		}, true, false},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			must(t, os.CopyFS(dir, os.DirFS(w.dir)))
			tc.damage(dir)
			r, err := repairDir(t.Context(), dir, RepairOptions{Apply: true}, w.options())
			must(t, err)
			s := mustOpen(t, r.Store, w.options())
			defer s.Close()
			seen := 0
			for i := range 3000 {
				has, err := s.Has(t.Context(), key(i))
				must(t, err)
				if i >= 200 && !has {
					t.Errorf("key %d is lost", i)
				}
				if i < 200 && has {
					seen++
				}
			}
			if (seen > 0) != tc.again || what == "data" && seen > 100 {
				t.Errorf("%d forgotten URLs are seen again", seen)
			}
			if notes := strings.Join(r.Notes, "\n"); strings.Contains(notes, "seen again") != tc.again {
				t.Errorf("notes %q", notes)
			}
			if r.Tables.Exact != tc.exact || r.URLs != int64(2800+seen) {
				t.Errorf("%d URLs, %+v", r.URLs, r.Tables)
			}
		})
	}
}

// TestRepairDeletes: a word that a newer table deletes does not come back from an
// older one. Pebble is kept from merging the two.
func TestRepairDeletes(t *testing.T) {
	w := onDisk(t)
	w.memtableWords = 10_000
	g := newGate(t)
	var hold atomic.Bool
	w.fault = func(op errorfs.Op) error {
		if hold.Load() && op.Kind == errorfs.OpCreate && filepath.Base(filepath.Dir(op.Path)) == pebbleDir {
			g.pass()
		}
		return nil
	}
	s := &testStore{Store: mustOpen(t, w.dir, w.options()), w: w}
	s.add(New, keys(0, 3000)...)
	s.flush()
	hold.Store(true)
	s.forget(200, keys(0, 200)...)
	s.flush()
	dir := filepath.Join(t.TempDir(), "killed")
	must(t, os.CopyFS(dir, os.DirFS(w.dir)))
	g.open()
	must(t, s.Store.Close())

	o := w.plainOptions()
	flipAt(t, largest(t, repairGlob(t, dir, "pebble/*.sst")), -1) // the footer: all words can be read
	r, err := repairDir(t.Context(), dir, RepairOptions{Apply: true}, o)
	must(t, err)
	if x := r.Tables; x == nil || !x.Exact || x.Lost != 0 || r.URLs != 2800 {
		t.Errorf("%d URLs, %+v", r.URLs, x)
	}
	repaired := &testStore{Store: mustOpen(t, r.Store, o), w: w}
	defer repaired.Store.Close()
	repaired.has(New, keys(0, 200)...)
	repaired.has(Seen, keys(200, 3000)...)
}
