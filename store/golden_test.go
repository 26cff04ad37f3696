package store

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Stores that earlier versions have written are opened for ever. A change of a
// format adds one under a new name, with -golden.write, and leaves the others
// as they are.

var goldenWrite = flag.String("golden.write", "", "write the golden stores NAME-closed and NAME-killed into testdata/stores")

const (
	goldenDir  = "testdata/stores"
	goldenKeys = 1000 // keys 0 to 999 are in each
)

// goldenOptions make several spans, and small files.
func goldenOptions(t *testing.T) *Options {
	w := onDisk(t).spanned()
	w.o.ExpectedURLs = 2000
	return w.options()
}

// TestGoldenStores opens the stores of this and of earlier versions.
func TestGoldenStores(t *testing.T) {
	if *goldenWrite != "" {
		writeGolden(t, *goldenWrite)
	}
	dirs, err := filepath.Glob(filepath.Join(goldenDir, "*"))
	must(t, err)
	if len(dirs) < 2 {
		t.Fatalf("got golden stores %q", dirs)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			w := onDisk(t).spanned()
			copyTree(t, dir, w.dir)
			must(t, os.MkdirAll(filepath.Join(w.dir, tmpDir), 0o700)) // git keeps no empty directory
			r, err := Verify(t.Context(), w.dir, VerifyOptions{Deep: true})
			noFaults(t, "as it is", r, err)
			if r.URLs != goldenKeys {
				t.Errorf("Verify counts %d URLs, want %d", r.URLs, goldenKeys)
			}
			w.openReadOnly(func(s *testStore) {
				s.has(Seen, keys(0, goldenKeys)...)
				s.has(New, keys(goldenKeys, 2*goldenKeys)...)
			})
			s := w.open()
			killed := strings.HasSuffix(dir, "-killed")
			if x := s.Stats(); x.Recovery.Clean == killed || killed != (x.Recovery.Words > 0) {
				t.Errorf("recovery says %+v", x.Recovery)
			}
			s.add(Seen, keys(0, goldenKeys)...)
			s.add(New, keys(goldenKeys, 2*goldenKeys)...)
			s.urls(2 * goldenKeys)
			s.healthy()
			s.close()
			s = w.open()
			s.has(Seen, keys(0, 2*goldenKeys)...)
		})
	}
}

// writeGolden writes the two golden stores of this version.
func writeGolden(t *testing.T, name string) {
	dir := filepath.Join(t.TempDir(), "s")
	s := mustOpen(t, dir, goldenOptions(t))
	w := &testStore{Store: s, w: &world{t: t}}
	w.add(New, keys(0, goldenKeys-50)...)
	must(t, s.Flush(t.Context()))
	w.healthy()
	w.add(New, keys(goldenKeys-50, goldenKeys)...)
	must(t, s.Sync(t.Context()))
	for _, end := range []string{"-killed", "-closed"} { // nothing goes on in the first
		to := filepath.Join(goldenDir, name+end)
		copyTree(t, dir, to)
		must(t, os.Truncate(filepath.Join(to, lockName), 0)) // it names a host
		if end == "-killed" {
			must(t, s.Close())
		}
	}
}

// copyTree copies a directory to where there is none.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if _, err := os.Stat(to); err == nil {
		t.Fatalf("%s exists: golden stores are never written again", to)
	}
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	out, err := exec.Command("cp", "-R", from, to).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
