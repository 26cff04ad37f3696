package store

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Stores that earlier versions have written are opened for ever. A change of a
// format adds one under a new name, with -golden.write, and leaves the others
// as they are.

var goldenWrite = flag.String("golden.write", "", "write the golden stores NAME-closed and NAME-killed into testdata/stores")

const (
	goldenDir  = "testdata/stores"
	goldenKeys = 1000 // keys 0 to 999 are in each
)

// goldenWorld makes several spans, and small files.
func goldenWorld(t *testing.T) (*world, *fakeClock) {
	w, c := clocked(onDisk(t).spanned())
	w.o.ExpectedURLs = 2000
	return w, c
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
		t.Run(filepath.Base(dir), func(t *testing.T) { checkGolden(t, dir) })
	}
}

func checkGolden(t *testing.T, dir string) {
	w := onDisk(t).spanned()
	var life *goldenLife // of a store that knows expiry and namespaces
	if !strings.HasPrefix(filepath.Base(dir), "1-") {
		life = &goldenLife{clock: newFakeClock()}
		life.clock.pass(goldenTook)
		w.o.Clock = life.clock
	}
	copyTree(t, dir, w.dir)
	must(t, os.MkdirAll(filepath.Join(w.dir, tmpDir), 0o700)) // git keeps no empty directory
	r, err := verifyDir(t.Context(), w.dir, VerifyOptions{Deep: true}, w.options())
	noFaults(t, "as it is", r, err)
	if want := goldenKeys + life.urls(); r.URLs != int64(want) {
		t.Errorf("Verify counts %d URLs, want %d", r.URLs, want)
	}
	w.openReadOnly(func(s *testStore) {
		s.has(Seen, keys(0, goldenKeys)...)
		s.has(New, keys(goldenKeys, 2*goldenKeys)...)
		life.check(s)
	})
	s := w.open()
	killed := strings.HasSuffix(dir, "-killed")
	if x := s.Stats(); x.Recovery.Clean == killed || killed != (x.Recovery.Words > 0) {
		t.Errorf("recovery says %+v", x.Recovery)
	}
	life.check(s)
	s.add(Seen, keys(0, goldenKeys)...)
	s.add(New, keys(goldenKeys, 2*goldenKeys)...)
	s.urls(2*goldenKeys + life.urls())
	s.healthy()
	s.close()
	s = w.open()
	s.has(Seen, keys(0, 2*goldenKeys)...)
	life.check(s)
	life.end(s)
}

// A goldenLife checks what golden stores hold beside the keys that each has.
type goldenLife struct{ clock *fakeClock }

// What they hold of it: keys by their numbers, half of each in Pebble.
const (
	goldenLives = 20                  // of each kind
	goldenHour  = 10_000              // expire after an hour
	goldenMonth = 11_000              // after 30 days
	goldenGone  = 12_000              // have expired
	goldenBack  = 13_000              // were forgotten, and added again
	goldenAway  = 14_000              // were forgotten
	goldenWeek  = 7 * 24 * time.Hour  // the TTL of a namespace
	goldenTook  = 90 * time.Second    // how long it took to write them
	goldenTTL   = 30 * 24 * time.Hour // the longest
	goldenSoon  = 10 * time.Second    // and the shortest
	goldenWait  = goldenTook - 2*goldenSoon
)

func goldenSet(from int) (first, rest []string) {
	return keys(from, from+goldenLives/2), keys(from+goldenLives/2, from+goldenLives)
}

// urls is how many there are: in the default namespace, and in one.
func (l *goldenLife) urls() int {
	if l == nil {
		return 0
	}
	return 4 * goldenLives
}

func (l *goldenLife) check(s *testStore) {
	if l == nil {
		return
	}
	s.w.t.Helper()
	for _, from := range []int{goldenHour, goldenMonth, goldenBack} {
		s.has(Seen, keys(from, from+goldenLives)...)
	}
	for _, from := range []int{goldenGone, goldenAway} {
		s.has(New, keys(from, from+goldenLives)...)
	}
	want := map[string]NamespaceStats{
		"": {"", 0, Forever}, "pages": {"pages", goldenLives, goldenWeek},
		"dropped": {"dropped", 0, Forever}, "dropped last": {"dropped last", 0, Forever},
	}
	for got := range s.Namespaces() {
		if got.Name == "" {
			got.URLs = 0 // others count them
		}
		if got != want[got.Name] {
			s.w.t.Errorf("got namespace %+v, want %+v", got, want[got.Name])
		}
		delete(want, got.Name)
	}
	if len(want) > 0 {
		s.w.t.Errorf("there are no namespaces %v", want)
	}
	for name, answer := range map[string]Answer{"pages": Seen, "dropped": New, "dropped last": New} {
		n, err := s.OpenNamespace(name, nil)
		must(s.w.t, err)
		testHandle{n, s.w.t}.has(answer, keys(0, goldenLives)...)
	}
}

// end lets time pass.
func (l *goldenLife) end(s *testStore) {
	if l == nil {
		return
	}
	s.w.t.Helper()
	l.clock.pass(time.Hour - goldenTook)
	s.has(Seen, keys(goldenHour+goldenLives/2, goldenHour+goldenLives)...)
	l.clock.pass(goldenTook + time.Hour/spansOfTTL)
	s.has(New, keys(goldenHour, goldenHour+goldenLives)...)
	l.clock.pass(goldenTTL + goldenTTL/spansOfTTL)
	s.has(New, keys(goldenMonth, goldenMonth+goldenLives)...)
	s.named("pages", nil).has(New, keys(0, goldenLives)...)
	s.urls(2*goldenKeys + goldenLives)
	eventually(s.w.t, "the drops", func() bool {
		s.kick()
		for _, row := range s.segmentRows() {
			if row.ends != forever {
				return false
			}
		}
		return true
	})
}

// writeGolden writes the two golden stores of this version.
func writeGolden(t *testing.T, name string) {
	w, c := goldenWorld(t)
	g := newGate(t)
	hold := make(chan struct{})
	w.point = func(at string) {
		select {
		case <-hold:
			if at == "drop" {
				g.pass()
			}
		default:
		}
	}
	s := w.open()
	hour, month, soon := s.with(time.Hour), s.with(goldenTTL), s.with(goldenSoon)
	pages := s.named("pages", &NamespaceOptions{TTL: goldenWeek})
	dropped, last := s.named("dropped", nil), s.named("dropped last", nil)
	half := func(first bool) {
		set := func(from int) []string {
			a, b := goldenSet(from)
			if first {
				return a
			}
			return b
		}
		hour.add(New, set(goldenHour)...)
		month.add(New, set(goldenMonth)...)
		pages.add(New, set(0)...)
		last.add(New, set(0)...)
		s.add(New, set(goldenBack)...)
		s.add(New, set(goldenAway)...)
	}
	s.add(New, keys(0, goldenKeys-50)...)
	soon.add(New, keys(goldenGone, goldenGone+goldenLives)...)
	dropped.add(New, keys(0, goldenLives)...)
	half(true)
	s.flush()
	first, rest := goldenSet(goldenAway)
	s.forget(len(first)/2, first[:len(first)/2]...)
	must(t, s.DropNamespace(t.Context(), "dropped"))
	c.pass(2 * goldenSoon)
	s.flush()
	s.dropAll()
	s.healthy()

	s.add(New, keys(goldenKeys-50, goldenKeys)...)
	half(false)
	s.forget(len(first)-len(first)/2+len(rest), append(first, rest...)...)
	back, again := goldenSet(goldenBack)
	back = append(back, again...)
	s.forget(len(back), back...)
	s.add(New, back...)
	c.pass(goldenWait)
	must(t, s.acceptClock())
	close(hold)
	must(t, s.DropNamespace(t.Context(), "dropped last"))
	within(t, "the drop", g.reached)
	for _, end := range []string{"-killed", "-closed"} { // nothing goes on in the first
		to := filepath.Join(goldenDir, name+end)
		copyTree(t, w.dir, to)
		must(t, os.Truncate(filepath.Join(to, lockName), 0)) // it names a host
		must(t, os.Remove(filepath.Join(to, reserveName)))   // it is large, and means nothing
		if end == "-killed" {
			g.open()
			s.dropAll()
			s.close()
		}
	}
}

// dropAll waits until nothing is left to drop.
func (s *testStore) dropAll() {
	s.w.t.Helper()
	_, err := s.Expire(context.Background(), ExpireOptions{})
	must(s.w.t, err)
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
