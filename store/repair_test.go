package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"dedupstore/mmapfilter"
)

// Stores are damaged, and repaired. What must hold whatever the damage: a dry
// run writes nothing and says the same as the repair; the repaired store is
// sound; and a URL that is new again is in what the report gives up for lost.

const (
	repairFlushed = 9_000 // URLs in Pebble, in three segments
	repairKeys    = 9_900 // and in the log
)

// repairBase is a store of three segments whose log holds some hundred URLs in
// records of ten, as a kill leaves it.
//
// An idle log puts a mark behind its last record that says that it is synced;
// without it damage passes for a torn tail.
func repairBase(t testing.TB, idle bool) string {
	t.Helper()
	w := onDisk(t)
	w.o.SyncInterval = time.Millisecond
	if !idle {
		w.o.SyncInterval = time.Hour
	}
	w.memtableWords, w.spanWords = 1500, 3000
	s := mustOpen(t, w.dir, w.options())
	ts := &testStore{Store: s, w: w}
	for i := 0; i < repairFlushed; i += 500 {
		ts.add(New, keys(i, i+500)...)
	}
	ts.flush()
	// The flush unlinks its log file when it is done, and lets Verify in.
	r, err := s.Verify(t.Context(), VerifyOptions{})
	noFaults(t, "after the flush", r, err)
	for i := repairFlushed; i < repairKeys; i += 10 {
		ts.add(New, keys(i, i+10)...)
	}
	must(t, s.Sync(t.Context()))
	for idle {
		b, err := os.ReadFile(largest(t, repairGlob(t, w.dir, "log/*.log")))
		must(t, err)
		frames := damageFrames([][]byte{b})
		if idle = frames[len(frames)-1].kind != 1; idle && t.Context().Err() != nil {
			t.Fatal("an idle log puts no sync mark behind its last record")
		}
	}
	killed := filepath.Join(t.TempDir(), "killed")
	must(t, os.CopyFS(killed, os.DirFS(w.dir)))
	must(t, s.Close())
	return killed
}

// repairTree is every file of a directory but LOCK, with its hash.
func repairTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == lockName {
			return err
		}
		b, err := os.ReadFile(path)
		sum := sha256.Sum256(b)
		tree[strings.TrimPrefix(path, dir)] = hex.EncodeToString(sum[:])
		return err
	}))
	return tree
}

func sameTree(t *testing.T, what string, before, after map[string]string) {
	t.Helper()
	for name, sum := range before {
		if after[name] != sum {
			t.Errorf("%s: %s was changed or is gone", what, name)
		}
	}
	for name := range after {
		if before[name] == "" {
			t.Errorf("%s: %s was made", what, name)
		}
	}
}

// glob returns the files of a store that fit a pattern, sorted.
func repairGlob(t testing.TB, dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	must(t, err)
	if len(paths) == 0 {
		t.Fatalf("there is no %s", pattern)
	}
	slices.Sort(paths)
	return paths
}

// largest returns the largest of files.
func largest(t testing.TB, paths []string) string {
	t.Helper()
	best, size := "", int64(-1)
	for _, p := range paths {
		st, err := os.Stat(p)
		must(t, err)
		if st.Size() > size {
			best, size = p, st.Size()
		}
	}
	return best
}

// flipAt flips a byte, counted from the end if the offset is negative.
func flipAt(t *testing.T, path string, offsets ...int) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	for _, at := range offsets {
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 0x20
	}
	must(t, os.WriteFile(path, b, 0o600))
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	must(t, os.Truncate(path, size))
}

// missingKeys returns the keys that a store does not know, by asking it.
func missingKeys(t *testing.T, dir string, o *Options) (missing []int, s *Store) {
	t.Helper()
	s = mustOpen(t, dir, o)
	for i := range repairKeys {
		has, err := s.Has(t.Context(), key(i))
		must(t, err)
		if !has {
			missing = append(missing, i)
		}
	}
	return missing, s
}

// repairDamages is a script for each damage. parts are what must be repaired.
var repairDamages = []struct {
	name   string
	parts  string // "log", "tables", "identity", "filters"
	damage func(t *testing.T, dir string)
}{
	{"log: first record", "log", func(t *testing.T, dir string) {
		flipAt(t, repairGlob(t, dir, "log/*.log")[0], 200)
	}},
	{"log: a record in the middle", "log", func(t *testing.T, dir string) {
		flipAt(t, largest(t, repairGlob(t, dir, "log/*.log")), 3000)
	}},
	{"log: four records", "log", func(t *testing.T, dir string) {
		flipAt(t, largest(t, repairGlob(t, dir, "log/*.log")), 1000, 2000, 3000, 4000)
	}},
	{"log: header", "log", func(t *testing.T, dir string) {
		flipAt(t, largest(t, repairGlob(t, dir, "log/*.log")), 20)
	}},
	{"log: a page of zeros", "log", func(t *testing.T, dir string) {
		path := largest(t, repairGlob(t, dir, "log/*.log"))
		b, err := os.ReadFile(path)
		must(t, err)
		clear(b[1024:3072])
		must(t, os.WriteFile(path, b, 0o600))
	}},
	{"log: gone", "log", func(t *testing.T, dir string) {
		for _, p := range repairGlob(t, dir, "log/*.log") {
			must(t, os.Remove(p))
		}
	}},
	{"table: data", "tables", func(t *testing.T, dir string) {
		flipAt(t, largest(t, repairGlob(t, dir, "pebble/*.sst")), 100)
	}},
	{"table: data in three places", "tables", func(t *testing.T, dir string) {
		flipAt(t, largest(t, repairGlob(t, dir, "pebble/*.sst")), 5000, 9000, 10000)
	}},
	{"table: last block", "tables", func(t *testing.T, dir string) {
		path := largest(t, repairGlob(t, dir, "pebble/*.sst"))
		flipAt(t, path, repairDataEnd(t, path)-100)
	}},
	{"table: index", "tables", func(t *testing.T, dir string) {
		path := largest(t, repairGlob(t, dir, "pebble/*.sst"))
		flipAt(t, path, repairDataEnd(t, path)+20)
	}},
	{"table: footer", "tables", func(t *testing.T, dir string) {
		flipAt(t, largest(t, repairGlob(t, dir, "pebble/*.sst")), -1)
	}},
	{"table: cut in half", "tables", func(t *testing.T, dir string) {
		path := largest(t, repairGlob(t, dir, "pebble/*.sst"))
		truncate(t, path, int64(repairDataEnd(t, path)/2))
	}},
	{"table: gone", "tables", func(t *testing.T, dir string) {
		must(t, os.Remove(largest(t, repairGlob(t, dir, "pebble/*.sst"))))
	}},
	{"tables: all gone", "tables", func(t *testing.T, dir string) {
		for _, p := range repairGlob(t, dir, "pebble/*.sst") {
			must(t, os.Remove(p))
		}
	}},
	{"MANIFEST: cut", "tables", func(t *testing.T, dir string) {
		path := largest(t, repairGlob(t, dir, "pebble/MANIFEST-*"))
		truncate(t, path, 60)
	}},
	{"MANIFEST: gone", "tables", func(t *testing.T, dir string) {
		for _, p := range repairGlob(t, dir, "pebble/MANIFEST-*") {
			must(t, os.Remove(p))
		}
	}},
	{"marker: gone", "tables", func(t *testing.T, dir string) {
		for _, p := range repairGlob(t, dir, "pebble/marker.*") {
			must(t, os.Remove(p))
		}
	}},
	{"OPTIONS: damaged", "tables", func(t *testing.T, dir string) {
		path := repairGlob(t, dir, "pebble/OPTIONS-*")[0]
		must(t, os.WriteFile(path, []byte("no options\x00[[["), 0o600))
	}},
	{"STORE: one byte", "identity", func(t *testing.T, dir string) {
		flipAt(t, filepath.Join(dir, identityName), 45)
	}},
	{"bitmap: gone", "filters", func(t *testing.T, dir string) {
		must(t, os.Remove(repairGlob(t, dir, "bitmap-*")[0]))
	}},
	{"two: log and table", "log tables", func(t *testing.T, dir string) {
		flipAt(t, largest(t, repairGlob(t, dir, "log/*.log")), 3000)
		flipAt(t, largest(t, repairGlob(t, dir, "pebble/*.sst")), 5000)
	}},
	{"two: log gone, MANIFEST cut", "tables", func(t *testing.T, dir string) {
		for _, p := range repairGlob(t, dir, "log/*.log") {
			must(t, os.Remove(p))
		}
		truncate(t, largest(t, repairGlob(t, dir, "pebble/MANIFEST-*")), 60)
	}},
	{"two: STORE and log", "identity log", func(t *testing.T, dir string) {
		flipAt(t, filepath.Join(dir, identityName), 146)
		flipAt(t, largest(t, repairGlob(t, dir, "log/*.log")), 3000)
	}},
}

// repairDataEnd is where the data blocks of a sound table end.
func repairDataEnd(t *testing.T, path string) int {
	t.Helper()
	w := onDisk(t)
	s := &Store{dir: filepath.Dir(filepath.Dir(path)), opts: *w.options()}
	f := &storedTable{name: filepath.Base(path)}
	s.readProperties(f)
	must(t, f.ownerErr)
	return int(f.dataEnd)
}

// TestRepair runs every damage.
func TestRepair(t *testing.T) {
	base := repairBase(t, true)
	for _, d := range repairDamages {
		t.Run(d.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			must(t, os.CopyFS(dir, os.DirFS(base)))
			d.damage(t, dir)
			repairCheck(t, dir, d.parts)
		})
	}
}

// TestRepairTorn: what passes for a torn tail, and has records behind it, is
// salvaged too. Open alone would drop them.
func TestRepairTorn(t *testing.T) {
	dir := repairBase(t, false)
	flipAt(t, largest(t, repairGlob(t, dir, "log/*.log")), 3000)
	if r := repairCheck(t, dir, "log"); r.URLs != repairKeys-10 {
		t.Errorf("%d URLs, want %d", r.URLs, repairKeys-10)
	}
}

// TestRepairBits: bits that a deep Verify misses in a filter are there again,
// and the bad file is kept.
func TestRepairBits(t *testing.T) {
	dir := repairBase(t, true)
	w := onDisk(t)
	must(t, mustOpen(t, dir, w.options()).Close())
	path := repairGlob(t, dir, "bitmap-*")[0]
	f, err := mmapfilter.Open(mmapfilter.Files, path, readStoreID(t, dir), false)
	must(t, err)
	// Another one in its place that is sound, and of another content.
	h := f.Header()
	must(t, f.Close())
	must(t, os.Remove(path))
	empty, err := mmapfilter.Create(mmapfilter.Files, path, mmapfilter.Header{
		StoreID: h.StoreID, Generation: h.Generation, Params: h.Params,
	})
	must(t, err)
	must(t, empty.Sync(h.Ingest))
	must(t, empty.Close())
	repairCheck(t, dir, "filters")
	if len(repairGlob(t, dir, "bitmap-*.bad")) != 1 {
		t.Error("the bad file is gone")
	}
}

func readStoreID(t *testing.T, dir string) [16]byte {
	t.Helper()
	id, err := readIdentity(vfs.Default, filepath.Join(dir, identityName))
	must(t, err)
	return id.id
}

// TestRepairRefuses: nothing can be had back without the keys.
func TestRepairRefuses(t *testing.T) {
	dir := repairBase(t, true)
	flipAt(t, filepath.Join(dir, identityName), 20, 60)
	before := repairTree(t, dir)
	r, err := repairDir(t.Context(), dir, RepairOptions{Apply: true}, onDisk(t).options())
	must(t, err)
	sameTree(t, "repair", before, repairTree(t, dir))
	if r.Refused == "" {
		t.Errorf("%+v", r)
	}
}

// TestRepairForeignTable: another store's table is passed over, and said.
func TestRepairForeignTable(t *testing.T) {
	dir, other := repairBase(t, true), repairBase(t, true)
	b, err := os.ReadFile(largest(t, repairGlob(t, other, "pebble/*.sst")))
	must(t, err)
	must(t, os.WriteFile(largest(t, repairGlob(t, dir, "pebble/*.sst")), b, 0o600))
	r := repairCheck(t, dir, "tables")
	if len(r.Tables.Foreign) != 1 || r.Tables.Lost != 1500 {
		t.Errorf("%+v", r.Tables)
	}
}

// TestRepairCompacted damages a table that others were merged into.
func TestRepairCompacted(t *testing.T) {
	base := repairBase(t, true)
	w := onDisk(t)
	s := mustOpen(t, base, w.options())
	must(t, s.Compact(t.Context()))
	must(t, s.Close())
	for _, d := range repairDamages {
		if !strings.HasPrefix(d.name, "table: ") {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			must(t, os.CopyFS(dir, os.DirFS(base)))
			d.damage(t, dir)
			repairCheck(t, dir, "tables")
		})
	}
}

// TestRepairUnreadable has the disk not give a part of a table.
func TestRepairUnreadable(t *testing.T) {
	w := onDisk(t)
	must(t, os.Rename(repairBase(t, true), w.dir))
	bad := largest(t, repairGlob(t, w.dir, "pebble/*.sst"))
	w.fault = func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && op.Path == bad && op.Offset < 5000 {
			return syscall.EIO
		}
		return nil
	}
	r, err := repairDir(t.Context(), w.dir, RepairOptions{Apply: true}, w.options())
	must(t, err)
	missing, s := missingKeys(t, r.Store, w.plainOptions())
	defer s.Close()
	if r.Tables == nil || !r.Tables.Exact || r.Tables.Lost != int64(len(missing)) || len(r.Left) > 0 || len(missing) > 1500 {
		t.Errorf("%d URLs are lost; %+v, left %+v", len(missing), r.Tables, r.Left)
	}
	for _, i := range missing {
		if !inRanges(t, r.Tables.Ranges, s.word(key(i))) {
			t.Errorf("key %d is lost and in no range", i)
		}
	}
}

// TestRepairInto: a new store is never made in the old one.
func TestRepairInto(t *testing.T) {
	dir := repairBase(t, true)
	for _, to := range []string{dir, filepath.Join(dir, "new")} {
		if _, err := repairDir(t.Context(), dir, RepairOptions{To: to}, onDisk(t).options()); err == nil {
			t.Errorf("%s: no error", to)
		}
	}
}

// TestRepairSound: nothing is done to a store that is sound.
func TestRepairSound(t *testing.T) {
	dir := repairBase(t, true)
	before := repairTree(t, dir)
	r, err := repairDir(t.Context(), dir, RepairOptions{Apply: true}, onDisk(t).options())
	must(t, err)
	sameTree(t, "repair", before, repairTree(t, dir))
	if !r.Sound() || r.URLs != repairKeys {
		t.Errorf("%+v", r)
	}
}

// repairCheck repairs a damaged store and checks all that must hold.
func repairCheck(t *testing.T, dir, parts string) *RepairReport {
	t.Helper()
	w := onDisk(t)
	o := w.options()
	before := repairTree(t, dir)
	plan, err := repairDir(t.Context(), dir, RepairOptions{}, o)
	must(t, err)
	sameTree(t, "dry run", before, repairTree(t, dir))
	if _, err := os.Stat(plan.Store); plan.Store != dir && err == nil {
		t.Error("the dry run has made the new store")
	}
	done, err := repairDir(t.Context(), dir, RepairOptions{Apply: true}, o)
	must(t, err)
	for _, part := range strings.Fields(parts) {
		have := map[string]bool{
			"log": done.Log != nil, "tables": done.Tables != nil,
			"identity": done.Identity != "", "filters": len(done.Filters) > 0,
		}
		if !have[part] {
			t.Errorf("nothing of %q was repaired: %+v", part, done)
		}
	}
	if done.Tables != nil {
		sameTree(t, "old store", before, repairTree(t, dir))
	}
	for _, f := range done.Left {
		t.Errorf("left: %+v", f)
	}
	missing, s := missingKeys(t, done.Store, o)
	defer s.Close()
	urls := int64(repairKeys - len(missing))
	if plan.URLs != urls || done.URLs != urls || s.Stats().URLs != urls {
		t.Errorf("%d URLs are there; the plan says %d, the report %d, the store %d", urls, plan.URLs, done.URLs, s.Stats().URLs)
	}
	lostInLog, lostInTables := int64(0), int64(0)
	for _, i := range missing {
		if i >= repairFlushed {
			lostInLog++
			continue
		}
		lostInTables++
		if done.Tables == nil || !inRanges(t, done.Tables.Ranges, s.word(key(i))) {
			t.Errorf("key %d is lost, and its word %016x is in no range", i, s.word(key(i)))
		}
	}
	switch l := done.Log; {
	case l == nil && lostInLog > 0:
		t.Errorf("%d URLs of the log are lost, and no word of it", lostInLog)
	case l != nil && l.URLsAtMost >= 0 && l.URLsAtMost < lostInLog:
		t.Errorf("%d URLs of the log are lost, at most %d by the report", lostInLog, l.URLsAtMost)
	}
	if x := done.Tables; x != nil {
		if x.Exact && x.Lost != lostInTables {
			t.Errorf("%d URLs of the tables are lost, %d by the report", lostInTables, x.Lost)
		}
		if plan.Tables.Lost != x.Lost || len(plan.Tables.Ranges) != len(x.Ranges) {
			t.Errorf("the plan says %d lost in %d ranges, the report %d in %d", plan.Tables.Lost, len(plan.Tables.Ranges), x.Lost, len(x.Ranges))
		}
	} else if lostInTables > 0 {
		t.Errorf("%d URLs of the tables are lost", lostInTables)
	}
	t.Log(lossText(done, lostInLog, lostInTables))
	return done
}

// lossText is one line for a person who reads the test's output.
func lossText(r *RepairReport, log, tables int64) string {
	text := fmt.Sprintf("lost: %d of the log, %d of the tables", log, tables)
	if l := r.Log; l != nil {
		text += fmt.Sprintf("; log: %d to %d records, at most %d URLs", l.RecordsAtLeast, l.RecordsAtMost, l.URLsAtMost)
	}
	if x := r.Tables; x != nil {
		text += fmt.Sprintf("; tables: %d (exact %v) of %d in %d ranges", x.Lost, x.Exact, x.Claimed, len(x.Ranges))
		for _, g := range x.Ranges {
			text += fmt.Sprintf(" [%d %.6f %d]", g.Segment, g.Share, g.URLs)
		}
	}
	return text
}

func inRanges(t *testing.T, ranges []LostRange, w word) bool {
	t.Helper()
	return slices.ContainsFunc(ranges, func(g LostRange) bool {
		from, err := strconv.ParseUint(g.From, 16, 64)
		must(t, err)
		to, err := strconv.ParseUint(g.To, 16, 64)
		must(t, err)
		return w >= from && w <= to
	})
}
