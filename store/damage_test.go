package store

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"dedupstore/internal/crashfs"
)

// Files are cut, flipped, emptied and deleted under a store that nobody has
// open. What must come of it: the store opens and everything is right, or it
// says which file is damaged and has changed nothing.

var (
	damageAll   = flag.Bool("damage.all", false, "flip every bit where the normal run flips one a byte")
	damageWrite = flag.Bool("damage.write", false, "write testdata/damage.txt again")
)

const damageKeys = 120

// damageStores returns the disks of one store after Close, and as a kill left
// it: with several ingests, each of a segment of its own, and, in the killed
// one, words in two log files.
func damageStores(t *testing.T) map[string]*crashfs.Disk {
	t.Helper()
	disk := crashfs.New()
	hold, held := make(chan struct{}), make(chan struct{})
	flushes := 0
	o := crashOptions(disk, Sync, 30, nil)
	seams := disk.Seams()
	seams.MemtableWords, seams.SpanWords = 30, 30
	seams.Point = func(name string) {
		if name != "flush" {
			return
		}
		if flushes++; flushes == 4 {
			close(held)
			<-hold
		}
	}
	SetSeams(o, seams)
	// The keys of the digests are the same each time, so that a damage comes to
	// the same.
	was := crand.Reader
	crand.Reader = rand.NewChaCha8([32]byte{7})
	s, err := Open(crashDir, o)
	crand.Reader = was
	if err != nil {
		t.Fatal(err)
	}
	for i := range damageKeys {
		if _, err := s.Add(t.Context(), crashKey(i)); err != nil {
			t.Fatal(err)
		}
		if i < 90 && i%30 == 29 {
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if i == 89 { // the rest is frozen, and some more behind it
			if st := s.Stats(); st.URLs != 90 {
				t.Fatalf("%d URLs", st.URLs)
			}
		}
	}
	if _, err := s.Add(t.Context(), crashKey(damageKeys)); err != nil {
		t.Fatal(err)
	}
	<-held
	killed := damageIdle(t, disk)
	close(hold)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return map[string]*crashfs.Disk{"closed": disk, "killed": killed}
}

// damageIdle returns the disk once the log is idle and has put its last sync
// on record.
func damageIdle(t *testing.T, disk *crashfs.Disk) *crashfs.Disk {
	t.Helper()
	for {
		d := disk.Clone()
		paths := damageFiles(d, logDir, func(string) bool { return true })
		var files [][]byte
		for _, p := range paths {
			files = append(files, d.Read(p))
		}
		frames := damageFrames(files)
		if last := frames[len(frames)-1]; last.kind == 1 {
			return d
		}
		select {
		case <-t.Context().Done():
			t.Fatal("an idle log puts no sync mark behind its last record")
		case <-time.After(time.Millisecond):
		}
	}
}

// damageLive returns the tables that count; others may wait to be deleted.
func damageLive(t *testing.T, disk *crashfs.Disk) []string {
	t.Helper()
	o := damageOptions(disk.Clone())
	o.ReadOnly = true
	s, err := Open(crashDir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	levels, err := s.db.SSTables()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, level := range levels {
		for _, table := range level {
			paths = append(paths, path.Join(crashDir, pebbleDir, table.FileNum.String()+".sst"))
		}
	}
	slices.Sort(paths)
	return paths
}

func damageOptions(d *crashfs.Disk) *Options {
	return crashOptions(d, Sync, 30, nil)
}

// damageFiles returns the paths in a directory of the store that fit, sorted.
func damageFiles(d *crashfs.Disk, dir string, fits func(name string) bool) (paths []string) {
	for p := range d.Contents(crashDir) {
		if path.Dir(p) == path.Join(crashDir, dir) && fits(path.Base(p)) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// An effect is what a damage comes to.
type effect string

const (
	refused  effect = "refused at open"
	byQuick  effect = "opens; found by verify"
	byDeep   effect = "opens; found by verify --deep"
	byReads  effect = "opens; lookups that need it fail"
	noEffect effect = "without effect"
	healed   effect = "healed"
	torn     effect = "opens; reported as a torn tail"
	wrong    effect = "WRONG"
)

// damageEffect damages a copy of the disk and finds out what that comes to.
// The error is Open's, or of a lookup. withVerify has the verify of files asked
// even when the store does not open.
func damageEffect(t *testing.T, whole *crashfs.Disk, damage func(*crashfs.Disk) error, withVerify bool) (effect, error) {
	t.Helper()
	disk := whole.Clone()
	if err := damage(disk); err != nil {
		t.Fatal(err)
	}
	before := disk.Contents(crashDir)
	if !withVerify {
		s, err := Open(crashDir, damageOptions(disk))
		if err != nil {
			if diff := crashfs.Diff(before, disk.Contents(crashDir), "LOCK"); diff != "" {
				t.Errorf("open failed with %v, and %s", err, diff)
			}
			return refused, err
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return damageEffect(t, whole, damage, true)
	}
	verify := func(deep bool) *Report {
		o := damageOptions(disk)
		r, err := verifyDir(t.Context(), crashDir, VerifyOptions{Deep: deep}, o)
		if err != nil {
			return &Report{Faults: []Fault{{Reason: err.Error()}}}
		}
		return r
	}
	quick, deep := verify(false), verify(true)
	if diff := crashfs.Diff(before, disk.Contents(crashDir), "LOCK"); diff != "" {
		t.Errorf("verify: %s", diff)
	}
	if !quick.OK() && deep.OK() {
		t.Errorf("found by the quick verify and not by the deep one: %+v", quick.Faults)
	}
	s, err := Open(crashDir, damageOptions(disk))
	if err != nil {
		if diff := crashfs.Diff(before, disk.Contents(crashDir), "LOCK"); diff != "" {
			t.Errorf("open failed with %v, and %s", err, diff)
		}
		if deep.OK() {
			t.Errorf("verify finds nothing, and the store does not open: %v", err)
		}
		return refused, err
	}
	seen, failed, lookErr := 0, 0, error(nil)
	for i := range damageKeys + 1 {
		has, err := s.Has(t.Context(), crashKey(i))
		switch {
		case err != nil:
			failed++
			lookErr = err
		case has:
			seen++
		}
	}
	x := s.Stats()
	crashed := len(x.Unverified) > 0 || x.Build.Builds > 0
	damageHeals(t, s)
	live, err := s.Verify(t.Context(), VerifyOptions{Deep: true})
	if err != nil {
		t.Errorf("verify of the open store: %v", err)
	}
	urls, tail := s.Stats().URLs, s.Stats().Recovery.TornFile
	closeErr := s.Close()
	switch {
	case failed > 0 && !deep.OK() && !live.OK():
		return byReads, lookErr
	case closeErr != nil:
		return wrong, closeErr
	case tail != "" && deep.OK() && live.OK() && len(deep.Notes) > 0 && seen == damageKeys+1:
		return torn, nil
	case !deep.OK() && live.OK() && urls == damageKeys+1 && (crashed || seen == damageKeys+1):
		// After a crash the store says that a filter is unverified, until it
		// is built anew.
		return healed, nil
	case !quick.OK():
		return byQuick, nil
	case !deep.OK():
		return byDeep, nil
	case seen == damageKeys+1 && urls == damageKeys+1 && live.OK():
		return noEffect, nil
	}
	return wrong, fmt.Errorf("%d keys seen, %d errors, %d URLs, %+v", seen, failed, urls, live.Faults)
}

// damageHeals waits until the store believes its filters, or says that it
// cannot build them.
func damageHeals(t *testing.T, s *Store) {
	t.Helper()
	eventually(t, "the filters are healed", func() bool {
		x := s.Stats()
		return x.Build.GivenUp > 0 || len(x.Degraded)+len(x.Unverified) == 0 && x.Filters.PagesUnchecked == 0
	})
}

// damageTyped fails unless the error is one of those that say what is wrong
// with the files, and names a path.
func damageTyped(t *testing.T, what string, err error, name string) {
	t.Helper()
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
		t.Errorf("%s: %v is neither ErrCorrupt nor ErrVersion", what, err)
	}
	if !strings.Contains(err.Error(), name) {
		t.Errorf("%s: %v does not name %s", what, err, name)
	}
}

// TestDamagedManifest flips bits of Pebble's MANIFEST: each is harmless, or
// refused by the name of the file with nothing changed.
func TestDamagedManifest(t *testing.T) {
	for state, disk := range damageStores(t) {
		path, content := damageManifest(t, disk)
		lastTwo := damageRecordsFrom(content, 2)
		counts := map[effect]int{}
		flips := 0
		for at := 0; at < len(content); at += damageThin {
			for bit := range uint(8) {
				if bit != uint(at*5%8) && at < lastTwo && !*damageAll {
					continue
				}
				flips++
				got, err := damageEffect(t, disk, func(d *crashfs.Disk) error { return d.Flip(path, int64(at), bit) }, at%16 == 0)
				counts[got]++
				what := fmt.Sprintf("%s: byte %d bit %d of %d bytes", state, at, bit, len(content))
				switch got {
				case refused:
					damageTyped(t, what, err, "MANIFEST")
				case noEffect:
				default:
					t.Errorf("%s: %s: %v", what, got, err)
				}
			}
		}
		t.Logf("%s: MANIFEST of %d bytes, the last two records from %d on, %d flips: %v", state, len(content), lastTwo, flips, counts)
	}
}

// damageManifest returns the MANIFEST that counts.
func damageManifest(t *testing.T, disk *crashfs.Disk) (string, []byte) {
	t.Helper()
	paths := damageFiles(disk, pebbleDir, func(n string) bool { return strings.HasPrefix(n, "MANIFEST-") })
	last := paths[len(paths)-1]
	return last, disk.Read(last)
}

// damageRecordsFrom returns where the last n records of a Pebble log begin,
// which is less than one of its blocks long.
func damageRecordsFrom(content []byte, n int) int {
	var starts []int
	for at := 0; at+7 <= len(content); {
		length := int(binary.LittleEndian.Uint16(content[at+4:]))
		if content[at+6] == 0 {
			break
		}
		starts = append(starts, at)
		at += 7 + length
	}
	return starts[max(0, len(starts)-n)]
}

// TestDamagedTable flips a byte in each part of each table: what needs it
// fails with an error that names the file, what does not goes on, and the deep
// verify finds it.
func TestDamagedTable(t *testing.T) {
	disk := damageStores(t)["closed"]
	tables := damageLive(t, disk)
	counts := map[effect]int{}
	for _, table := range tables {
		size := len(disk.Read(table))
		step := 29 * damageThin
		if *damageAll {
			step = 1
		}
		for at := 0; at < size; at += step {
			got, err := damageEffect(t, disk, func(d *crashfs.Disk) error { return d.Flip(table, int64(at), uint(at%8)) }, true)
			counts[got]++
			what := fmt.Sprintf("%s of %d bytes: byte %d", table, size, at)
			switch got {
			case refused:
				damageTyped(t, what, err, ".sst")
			case byReads:
				damageTyped(t, what, err, path.Base(table))
			case byDeep, byQuick, noEffect:
			default:
				t.Errorf("%s: %s: %v", what, got, err)
			}
		}
	}
	t.Logf("%d tables: %v", len(tables), counts)
}

// TestDamagedTableAnswers looks closer at one flipped block: Add and Has of
// its keys return the error, those of other tables are answered, new keys are
// taken, and the store closes.
func TestDamagedTableAnswers(t *testing.T) {
	disk := damageStores(t)["closed"].Clone()
	ctx := t.Context()
	// The first table with words in it, by trial: its keys fail.
	tables := damageLive(t, disk)
	for _, table := range tables {
		d := disk.Clone()
		if err := d.Flip(table, 40, 3); err != nil {
			t.Fatal(err)
		}
		s, err := Open(crashDir, damageOptions(d))
		if err != nil {
			continue // it holds rows of the registry
		}
		failed := 0
		for i := range damageKeys + 1 {
			has, err := s.Has(ctx, crashKey(i))
			added, addErr := s.Add(ctx, crashKey(i))
			if (err == nil) != (addErr == nil) {
				t.Errorf("key %d: Has %v, Add %v", i, err, addErr)
			}
			if err == nil {
				if !has || added {
					t.Errorf("key %d: has %v, added %v", i, has, added)
				}
				continue
			}
			failed++
			damageTyped(t, "Has", err, path.Base(table))
			damageTyped(t, "Add", addErr, path.Base(table))
		}
		if failed == 0 || failed > damageKeys {
			t.Errorf("%s: %d of %d keys fail", table, failed, damageKeys+1)
		}
		if added, err := s.Add(ctx, "http://new.example/"); err != nil || !added {
			t.Errorf("a new key: %v, %v", added, err)
		}
		if err := s.Flush(ctx); err != nil {
			t.Errorf("flush: %v", err)
		}
		if r, err := s.Verify(ctx, VerifyOptions{Deep: true}); err != nil || r.OK() {
			t.Errorf("deep verify: %+v, %v", r, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		return
	}
	t.Fatal("no table could be damaged so that the store opens")
}

// TestDamagedBits clears each set bit of the bitmap's body at rest: verify
// finds every one, for its page's sum is wrong, no key is taken for new by it,
// and it is set again.
func TestDamagedBits(t *testing.T) {
	disk := damageStores(t)["closed"]
	name := damageFiles(disk, "", hasPrefix(bitmapPrefix))[0]
	body := disk.Read(name)
	body = body[:len(body)-len(body)%4096] // without the sums
	cleared, opened := 0, 0
	for at := 4096; at < len(body); at++ {
		for b := body[at]; b != 0; b &= b - 1 {
			bit := uint(bits.TrailingZeros8(b))
			if cleared++; cleared%(5*damageThin) != 0 && !*damageAll {
				continue
			}
			d := disk.Clone()
			if err := d.Flip(name, int64(at), bit); err != nil {
				t.Fatal(err)
			}
			r, err := verifyDir(t.Context(), crashDir, VerifyOptions{}, damageOptions(d))
			if err != nil || r.OK() || r.Faults[0].Path != name {
				t.Fatalf("byte %d bit %d: %+v, %v", at, bit, r, err)
			}
			if cleared%50 != 0 {
				continue
			}
			opened++
			s, err := Open(crashDir, damageOptions(d))
			if err != nil {
				t.Fatal(err)
			}
			if seen := crashLook(t, s); len(seen) != damageKeys+1 {
				t.Errorf("byte %d bit %d: %d keys are seen, want %d", at, bit, len(seen), damageKeys+1)
			}
			damageHeals(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			r, err = verifyDir(t.Context(), crashDir, VerifyOptions{Deep: true}, damageOptions(d))
			if err != nil || !r.OK() {
				t.Fatalf("byte %d bit %d, healed: %+v, %v", at, bit, r, err)
			}
		}
	}
	if opened == 0 {
		t.Error("no bit was cleared")
	}
	t.Logf("%d set bits, %d stores opened", cleared, opened)
}

// A damageFrame is a frame of the log as its description has it; the test
// does not use the code that reads it.
type damageFrame struct {
	file       int
	start, end int
	kind       byte
	lsn        uint64
	synced     uint64
}

func damageFrames(files [][]byte) (frames []damageFrame) {
	le := binary.LittleEndian
	for i, b := range files {
		for at := 136; at+40 <= len(b) && le.Uint16(b[at:]) == 0xd7c5; {
			f := damageFrame{file: i, start: at, kind: b[at+2], lsn: le.Uint64(b[at+8:]), synced: le.Uint64(b[at+16:])}
			if f.kind == 1 { // a sync mark has the number of the record before it
				f.lsn++
			}
			f.end = at + 40 + (int(le.Uint32(b[at+4:]))+7)&^7
			frames = append(frames, f)
			at = f.end
		}
	}
	return frames
}

// TestDamagedLog cuts a log of two files at every byte, and flips a bit of
// every byte. What comes of it is told from the frames alone: if one that is
// left was made when the first damaged record was synced, that is corruption,
// by file and offset; if none was, everything before the damage is there, and
// nothing else.
func TestDamagedLog(t *testing.T) {
	disk := crashfs.New()
	hold := make(chan struct{})
	const perFile = 24
	s, err := Open(crashDir, crashOptions(disk, Sync, perFile, func(name string) {
		if name == "flush" {
			<-hold
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range perFile + 9 {
		if _, err := s.Add(t.Context(), crashKey(i)); err != nil {
			t.Fatal(err)
		}
	}
	killed := damageIdle(t, disk)
	close(hold)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	paths := damageFiles(killed, logDir, func(string) bool { return true })
	// The first of all is the one that the creation made; it is empty.
	var files [][]byte
	for _, p := range paths {
		files = append(files, killed.Read(p))
	}
	frames := damageFrames(files)
	counts := map[string]int{}

	try := func(what string, file, at int, cut bool) {
		d := killed.Clone()
		content := slices.Clone(files[file])
		if cut {
			content = content[:at]
		} else {
			content[at] ^= 1 << (at % 8)
		}
		if err := d.Write(paths[file], content); err != nil {
			t.Fatal(err)
		}
		// What is left, and what is the first thing that is not.
		bad, synced, keys := damageFrame{}, uint64(0), 0
		for _, f := range frames {
			hit := f.file == file && f.start <= at && at < f.end
			if hit || cut && f.file == file && at <= f.start {
				if bad.end == 0 {
					bad = f
				}
				continue
			}
			synced = max(synced, f.synced)
			if bad.end == 0 && f.kind == byte(recordAdds) {
				keys++
			}
		}
		// A header is made durable before anything rests on it. A cut at the
		// end of the last frame changes nothing.
		header := at < 136
		before := d.Contents(crashDir)
		s, err := Open(crashDir, damageOptions(d))
		if err != nil {
			counts["refused"]++
			if diff := crashfs.Diff(before, d.Contents(crashDir), "LOCK"); diff != "" {
				t.Errorf("%s: open failed with %v, and %s", what, err, diff)
			}
			if errors.Is(err, ErrVersion) && header && at >= 8 && at < 12 && strings.Contains(err.Error(), paths[file]) {
				return
			}
			c, ok := errors.AsType[*CorruptError](err)
			switch {
			case !ok:
				t.Errorf("%s: %v", what, err)
			case header:
				if c.Path != paths[file] || c.Offset < 0 || c.Offset >= 136 {
					t.Errorf("%s: %v names another place than the header of %s", what, err, paths[file])
				}
			case bad.lsn > synced && bad.kind != 2:
				t.Errorf("%s: LSN %d was not synced by what is left, %d, and it is no torn tail: %v", what, bad.lsn, synced, err)
			case c.Path != paths[file] || c.Offset != int64(bad.start):
				t.Errorf("%s: %v, want %s at offset %d", what, err, paths[file], bad.start)
			}
			return
		}
		defer s.Close()
		counts["opened"]++
		if header || bad.end != 0 && bad.lsn <= synced {
			t.Errorf("%s: it opens, though the log was synced up to LSN %d and %d is bad", what, synced, bad.lsn)
		}
		seen := crashLook(t, s)
		for i := range keys {
			if !seen[crashKey(i)] {
				t.Errorf("%s: key %d is lost, want the first %d", what, i, keys)
			}
		}
		if len(seen) != keys || s.Stats().URLs != int64(keys) {
			t.Errorf("%s: %d keys seen, %d URLs, want %d", what, len(seen), s.Stats().URLs, keys)
		}
		if r := s.Stats().Recovery; bad.end != 0 && (!cut || at > bad.start) && (r.TornFile != paths[file] || r.TornOffset != int64(bad.start)) {
			t.Errorf("%s: recovery reports %q at %d, want %s at %d", what, r.TornFile, r.TornOffset, paths[file], bad.start)
		}
		crashVerify(t, s, t.Errorf)
	}
	for i := range files {
		for at := 0; at < len(files[i]); at += damageThin {
			try(fmt.Sprintf("bit flipped in byte %d of %s", at, paths[i]), i, at, false)
			try(fmt.Sprintf("%s cut to %d bytes", paths[i], at), i, at, true)
		}
	}
	t.Logf("%d files, %d frames: %v", len(files), len(frames), counts)
}

// TestDamageTable tells for every kind of file what a flipped byte, an empty
// file and a missing file come to, and compares it with testdata/damage.txt.
func TestDamageTable(t *testing.T) {
	if damageThin > 1 {
		t.Skip("the table needs every damage; nothing in it runs at the same time")
	}
	stores := damageStores(t)
	var out strings.Builder
	out.WriteString("# What damage to a file of a store at rest comes to: after Close, and after a\n" +
		"# kill with words in the log. Made by TestDamageTable (-damage.write).\n\n")
	groups := []struct {
		name, dir string
		fits      func(string) bool
		from, to  int // bytes that are flipped; to 0: all
		step      int
	}{
		{"STORE (identity)", "", named(identityName), 0, 0, 1},
		{"LOCK", "", named(lockName), 0, 0, 1},
		{"bitmap, header page", "", hasPrefix("bitmap-"), 0, 4096, 19},
		{"bitmap, bits and sums", "", hasPrefix("bitmap-"), 4096, 0, 131},
		{"segment filters, header page", "", hasPrefix("filter-"), 0, 4096, 97},
		{"segment filters, bits and sums", "", hasPrefix("filter-"), 4096, 0, 131},
		{"log, file header", logDir, hasSuffix(".log"), 0, 136, 3},
		{"log, frames", logDir, hasSuffix(".log"), 136, 0, 25},
		{"Pebble's MANIFEST", pebbleDir, hasPrefix("MANIFEST-"), 0, 0, 17},
		{"Pebble's marker of the MANIFEST", pebbleDir, hasPrefix("marker.manifest"), 0, 0, 1},
		{"Pebble's marker of the version", pebbleDir, hasPrefix("marker.format"), 0, 0, 1},
		{"Pebble's OPTIONS", pebbleDir, hasPrefix("OPTIONS-"), 0, 0, 29},
		{"Pebble's own log", pebbleDir, hasSuffix(".log"), 0, 0, 1},
		{"Pebble's tables", pebbleDir, hasSuffix(".sst"), 0, 0, 61},
	}
	for _, g := range groups {
		fmt.Fprintf(&out, "%s\n", g.name)
		for _, how := range []string{"byte flipped", "emptied", "deleted"} {
			for _, state := range []string{"closed", "killed"} {
				disk := stores[state]
				effects := map[effect]bool{}
				paths := damageFiles(disk, g.dir, g.fits)
				switch g.name {
				case "Pebble's MANIFEST":
					paths = paths[len(paths)-1:]
				case "Pebble's tables":
					paths = damageLive(t, disk)
				}
				for _, p := range paths {
					size := len(disk.Read(p))
					to := size
					if g.to > 0 {
						to = min(to, g.to)
					}
					tries := 0
					try := func(what string, damage func(d *crashfs.Disk) error) {
						tries++
						got, err := damageEffect(t, disk, damage, tries%8 == 1)
						effects[got] = true
						if got == wrong {
							t.Logf("%s, %s, %s: %v", state, p, what, err)
						}
						number, _, _ := strings.Cut(path.Base(p), ".")
						if got == refused && (!damageClear(err) || how != "deleted" && !strings.Contains(err.Error(), number)) {
							t.Errorf("%s, %s, %s: %v is not clear", state, p, what, err)
						}
					}
					switch {
					case how == "byte flipped":
						for at := g.from; at < to; at += g.step {
							try(fmt.Sprint("byte ", at), func(d *crashfs.Disk) error { return d.Flip(p, int64(at), uint(at%8)) })
						}
					case g.from > 0: // the file stands in another line
					case how == "emptied" && size > 0:
						try(how, func(d *crashfs.Disk) error { return d.Write(p, nil) })
					case how == "deleted":
						try(how, func(d *crashfs.Disk) error { return d.Remove(p) })
					}
				}
				// Whether a table, or a record of the MANIFEST, is still needed
				// depends on when a compaction ran.
				if how == "byte flipped" && strings.HasPrefix(g.name, "Pebble's MANIFEST") {
					effects[noEffect] = true
				}
				if len(effects) > 0 {
					fmt.Fprintf(&out, "  %-13s %-7s %s\n", how, state, joinEffects(effects))
				}
			}
		}
	}
	golden := "testdata/damage.txt"
	if *damageWrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the table differs from %s:\n%s", golden, out.String())
	}
}

// damageClear reports that an error of Open has a type that says what to do.
func damageClear(err error) bool {
	for _, target := range []error{ErrCorrupt, ErrVersion, ErrNotExist, ErrNotStore} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func joinEffects(effects map[effect]bool) string {
	var names []string
	for _, e := range slices.Sorted(maps.Keys(effects)) {
		names = append(names, string(e))
	}
	slices.Sort(names)
	return strings.Join(names, " | ")
}

func named(name string) func(string) bool { return func(n string) bool { return n == name } }

func hasPrefix(p string) func(string) bool {
	return func(n string) bool { return strings.HasPrefix(n, p) }
}

func hasSuffix(p string) func(string) bool {
	return func(n string) bool { return strings.HasSuffix(n, p) }
}
