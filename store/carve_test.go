package store

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// carveTable returns a store's largest table, and the places in it.
func carveTable(t testing.TB, dir string) (*Store, *storedTable, []keyPlace) {
	t.Helper()
	w := &world{t: t, dir: dir, o: smallOptions()}
	s := &Store{dir: dir, opts: *w.options()}
	paths, err := filepath.Glob(filepath.Join(dir, pebbleDir, "*.sst"))
	must(t, err)
	slices.SortFunc(paths, func(a, b string) int {
		x, err := os.Stat(a)
		must(t, err)
		y, err := os.Stat(b)
		must(t, err)
		return int(y.Size() - x.Size())
	})
	f := &storedTable{name: filepath.Base(paths[0]), low: firstPlace, high: lastPlace}
	st, err := os.Stat(paths[0])
	must(t, err)
	f.size = st.Size()
	s.readProperties(f)
	must(t, f.ownerErr)
	places, gaps := carveAll(t, s, f)
	if len(gaps) > 0 || len(places) != 1500 {
		t.Fatalf("%d words and gaps %+v in a sound table", len(places), gaps)
	}
	return s, f, places
}

func carveAll(t testing.TB, s *Store, f *storedTable) (places []keyPlace, gaps []tableGap) {
	t.Helper()
	r, err := s.readTable(f)
	must(t, err)
	for {
		p, ok, err := r.advance()
		must(t, err)
		if !ok {
			break
		}
		places = append(places, p.keyPlace)
	}
	must(t, r.carver.close())
	return places, r.gaps
}

// TestCarveDamage flips bytes of a table, cuts it, and clears a part of it, with
// and without its properties. No word comes back that was not there, and none
// is gone that is not in a gap.
func TestCarveDamage(t *testing.T) {
	s, f, all := carveTable(t, repairBase(t, true))
	path := s.tablePath(f.name)
	sound, err := os.ReadFile(path)
	must(t, err)
	check := func(what string, at int, b []byte) {
		must(t, os.WriteFile(path, b, 0o600))
		for _, dataEnd := range []int64{f.dataEnd, 0} {
			g := *f
			g.size, g.dataEnd = int64(len(b)), dataEnd
			got, gaps := carveAll(t, s, &g)
			have := make(map[keyPlace]bool, len(got))
			for _, p := range got {
				have[p] = true
			}
			n := 0
			for _, p := range all {
				if have[p] {
					n++
					continue
				}
				if !slices.ContainsFunc(gaps, func(g tableGap) bool { return p.compare(g.from) >= 0 && p.compare(g.to) <= 0 }) {
					t.Fatalf("%s at %d: %+v is gone and in no gap of %+v", what, at, p, gaps)
				}
			}
			if n != len(got) {
				t.Fatalf("%s at %d: %d words that were not there", what, at, len(got)-n)
			}
			if len(got) < len(all)-520 && what == "flip" {
				t.Fatalf("%s at %d: %d of %d words", what, at, len(got), len(all))
			}
			if at >= int(f.dataEnd) && len(got) != len(all) {
				t.Fatalf("%s at %d, behind the data: %d of %d words", what, at, len(got), len(all))
			}
		}
	}
	for at := 0; at < len(sound); at += 23 * damageThin {
		b := slices.Clone(sound)
		b[at] ^= 1 << (at % 8)
		check("flip", at, b)
		check("cut", at, sound[:at])
		b = slices.Clone(sound)
		clear(b[at:min(at+2000, len(b))])
		check("clear", at, b)
	}
}

// BenchmarkCarve reads the words of a table of one block after the other.
func BenchmarkCarve(b *testing.B) {
	w := onDisk(b)
	w.o.ExpectedURLs = 1 << 20
	w.memtableWords, w.spanWords = 1<<20, 1<<20
	s := mustOpen(b, w.dir, w.options())
	ts := &testStore{Store: s, w: w}
	for i := 0; i < 500_000; i += 1000 {
		ts.add(New, keys(i, i+1000)...)
	}
	must(b, s.Close())
	paths, err := filepath.Glob(filepath.Join(w.dir, pebbleDir, "*.sst"))
	must(b, err)
	words := 0
	for b.Loop() {
		for _, p := range paths {
			got, _ := carveAll(b, s, &storedTable{name: filepath.Base(p), low: firstPlace, high: lastPlace})
			words += len(got)
		}
	}
	b.ReportMetric(float64(words)/b.Elapsed().Seconds()/1e6, "Mwords/s")
}
