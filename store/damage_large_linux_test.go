package store

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// Every file of a store that was closed is deleted, cut, replaced by that of
// another store and has a byte flipped, and what comes of it is counted:
//
//	go test ./store -run TestDamageLarge -v -timeout 3h -damage.urls=5000000 -damage.places=100

var (
	damageURLs   = flag.Int("damage.urls", 30_000, "URLs of the store of TestDamageLarge")
	damagePlaces = flag.Int("damage.places", 4, "places of each kind of file that TestDamageLarge flips a byte at")
)

// The columns of the table.
const (
	largeRefused = iota
	largeHealed
	largeVerify
	largeDeep
	largeNone
	largeColumns
)

var largeNames = [largeColumns]string{"refused at open", "healed", "found by verify", "found only by --deep", "without effect"}

// largeKind names the kind of a file by its path within a store.
func largeKind(path string) string {
	dir, name := filepath.Split(path)
	switch {
	case isBitmapName(name):
		return "bitmap"
	case isSpanFilterName(name):
		return "segment filters"
	case filepath.Clean(dir) == logDir:
		return "log"
	case filepath.Clean(dir) == pebbleDir:
		kind, _, _ := strings.Cut(name, "-")
		if ext := filepath.Ext(name); ext == ".sst" || ext == ".log" {
			kind = "*" + ext
		}
		if strings.HasPrefix(name, "marker.") {
			kind = strings.Join(strings.Split(name, ".")[:2], ".")
		}
		return "pebble/" + kind
	}
	return name
}

// largeStore is a closed store of *damageURLs URLs in several spans.
func largeStore(t *testing.T, name string) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), name)}
	w.o.MemoryBytes = 64 << 20
	w.spanWords, w.memtableWords = int64(*damageURLs)*2/7, *damageURLs/5
	s := mustOpen(t, w.dir, w.options())
	ts := &testStore{Store: s, w: w}
	for i := 0; i < *damageURLs; i += 1000 {
		ts.add(New, keys(i, i+1000)...)
	}
	must(t, s.Flush(t.Context()))
	ts.healthy()
	must(t, s.Close())
	return w
}

// largeCopy copies a store: tables by links, for nobody writes them, but the
// one file that will be damaged.
func largeCopy(t *testing.T, from, to, damaged string) {
	t.Helper()
	must(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if filepath.Ext(path) == ".sst" && rel != damaged {
			return os.Link(path, target)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, b, 0o600)
	}))
}

func TestDamageLarge(t *testing.T) {
	if damageThin > 1 {
		t.Skip("nothing in it runs at the same time")
	}
	whole, other := largeStore(t, "s"), largeStore(t, "s")
	var files []string
	must(t, filepath.WalkDir(whole.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(whole.dir, path)
			files = append(files, rel)
		}
		return err
	}))
	kinds := map[string][]string{}
	for _, f := range files {
		kinds[largeKind(f)] = append(kinds[largeKind(f)], f)
	}
	var out strings.Builder
	tab := tabwriter.NewWriter(&out, 0, 0, 1, ' ', 0)
	fmt.Fprintf(tab, "| file\t| N\t| %s\t|\n", strings.Join(largeNames[:], "\t| "))
	rng := seeded(t)
	for _, kind := range sortedKeys(kinds) {
		var counts [largeColumns]int
		n := 0
		try := func(what, file string, damage func(path string)) {
			n++
			counts[largeEffect(t, whole, file, what, rng, damage)]++
		}
		for _, file := range kinds[kind] {
			try("deleted", file, func(path string) { must(t, os.Remove(path)) })
			info, err := os.Stat(filepath.Join(whole.dir, file))
			must(t, err)
			if info.Size() == 0 {
				continue
			}
			try("cut", file, func(path string) { must(t, os.Truncate(path, rng.Int64N(info.Size()))) })
			if b := counterpart(t, other.dir, kind, file); b != nil {
				try("replaced", file, func(path string) { must(t, os.WriteFile(path, b, 0o600)) })
			}
		}
		for i := range *damagePlaces {
			file := kinds[kind][i%len(kinds[kind])]
			b, err := os.ReadFile(filepath.Join(whole.dir, file))
			must(t, err)
			if len(b) == 0 {
				continue
			}
			at := rng.IntN(len(b))
			b[at] ^= 1 << rng.IntN(8)
			try(fmt.Sprintf("byte %d", at), file, func(path string) { must(t, os.WriteFile(path, b, 0o600)) })
		}
		fmt.Fprintf(tab, "| %s\t| %d", kind, n)
		for _, c := range counts {
			fmt.Fprintf(tab, "\t| %d", c)
		}
		fmt.Fprintln(tab, "\t|")
	}
	must(t, tab.Flush())
	t.Logf("a store of %d URLs:\n%s", *damageURLs, &out)
}

func sortedKeys(m map[string][]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// counterpart is the content of the other store's file of the kind, nil if
// there is none.
func counterpart(t *testing.T, dir, kind, file string) []byte {
	t.Helper()
	if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
		return b
	}
	var content []byte
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err == nil && content == nil && !d.IsDir() && largeKind(rel) == kind {
			content, err = os.ReadFile(path)
		}
		return err
	}))
	return content
}

// largeEffect damages a copy of the store and finds out what comes of it. A
// wrong answer of a store that has opened is an error, unless a check has
// reported the damage.
func largeEffect(t *testing.T, whole *world, file, what string, rng *rand.Rand, damage func(path string)) int {
	t.Helper()
	w := *whole
	w.dir = filepath.Join(filepath.Dir(whole.dir), "copy")
	must(t, os.RemoveAll(w.dir))
	largeCopy(t, whole.dir, w.dir, file)
	damage(filepath.Join(w.dir, file))
	quick, err := verifyDir(t.Context(), w.dir, VerifyOptions{}, w.options())
	found := err != nil || !quick.OK()
	s, err := Open(w.dir, w.options())
	if err != nil {
		if !damageClear(err) {
			t.Errorf("%s, %s: Open: %v", file, what, err)
		}
		return largeRefused
	}
	wrong, failed := largeLook(s, rng)
	reported := largeReports(s)
	if failed == nil {
		eventually(t, file+", "+what+": it heals", func() bool { s.kick(); return !unhealthy(s) })
	}
	reported = reported || largeReports(s)
	healed := s.Stats().Filters.PagesHealed > 0
	closeErr := s.Close()
	column := largeNone
	switch {
	case healed || reported && !found, reported && wrong == 0:
		column = largeHealed
	case found:
		column = largeVerify
	default:
		deep, err := verifyDir(context.Background(), w.dir, VerifyOptions{Deep: true}, w.options())
		if err != nil || !deep.OK() {
			column = largeDeep
		}
	}
	if wrong > 0 && (column == largeNone || column == largeHealed || column == largeDeep) {
		t.Errorf("%s, %s: %d wrong answers, and the effect is %q", file, what, wrong, largeNames[column])
	}
	if failed != nil && column == largeNone {
		t.Errorf("%s, %s: a lookup failed with %v, and nothing reports it", file, what, failed)
	}
	if closeErr != nil && failed == nil && column == largeNone {
		t.Errorf("%s, %s: Close: %v", file, what, closeErr)
	}
	return column
}

// largeReports reports that the store says that something is wrong with it.
func largeReports(s *Store) bool {
	x := s.Stats()
	return len(x.Degraded) > 0 || len(x.Recovery.BadFilters) > 0 || x.Recovery.TornFile != "" || x.Filters.PagesHealed > 0
}

// unhealthy reports that a filter is missing or not believed.
func unhealthy(s *Store) bool {
	x := s.Stats()
	return len(x.Degraded)+len(x.Unverified) > 0 || x.Filters.PagesUnchecked > 0
}

// largeLook asks for some of the store's URLs and for as many others.
func largeLook(s *Store, rng *rand.Rand) (wrong int, failed error) {
	ask, answers := make([]string, 1000), make([]Answer, 1000)
	for round := range 20 {
		want := Seen
		lo := 0
		if round%2 == 1 {
			want, lo = New, *damageURLs
		}
		for i := range ask {
			ask[i] = key(lo + rng.IntN(*damageURLs))
		}
		if err := s.HasBatch(context.Background(), ask, answers); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for _, a := range answers {
			if a != want {
				wrong++
			}
		}
	}
	return wrong, failed
}
