package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"dedupstore/mmapfilter"
)

// counted is a world with counters, a clock that the test moves, and builds of
// several steps.
func counted(w *world) (*world, *fakeClock) {
	w, c := clocked(w)
	w.o.Counters, w.o.ExpectedURLs = true, 2000
	w.memtableWords, w.spanWords, w.buildWords = 500, 1000, 300
	return w, c
}

// idle waits until the maintainer has nothing to do.
func (s *testStore) idle() {
	s.w.t.Helper()
	eventually(s.w.t, "the builds", func() bool { s.kick(); return s.noneLeft(false) })
}

// expire drops what is over, through a build where it is counted.
func (s *testStore) expire() {
	s.w.t.Helper()
	_, err := s.Expire(context.Background(), ExpireOptions{})
	must(s.w.t, err)
}

// statesOf counts the segments by state.
func (s *testStore) statesOf() map[segmentState]int {
	n := map[segmentState]int{}
	for _, row := range s.segmentRows() {
		n[row.state]++
	}
	return n
}

// equalsFresh compares the bitmap, bit by bit, with one that has the words in
// Pebble of all segments and nothing else, if it has no bits of words that have
// left without having been counted.
func (s *testStore) equalsFresh(when string) (compared bool) {
	s.w.t.Helper()
	s.maintainer.mu.Lock()
	defer s.maintainer.mu.Unlock()
	have := s.current.Load().bitmap
	want, err := mmapfilter.Create(mmapfilter.NewTwin(), "/fresh", have.header())
	must(s.w.t, err)
	s.mu.Lock()
	rows := s.mu.registry.clone()
	s.mu.Unlock()
	if rows.dead > 0 {
		return false
	}
	for _, id := range rows.ids() {
		if rows.segments[id].state != segmentSubtracted { // its bits have left before it
			must(s.w.t, scanSegment(s.db, id, want.SetSorted))
		}
	}
	bits := func(f *mmapfilter.Filter) uint64 {
		n, err := f.CountBits(context.Background())
		must(s.w.t, err)
		return n
	}
	if a, b := bits(have.Filter), bits(want); a != b {
		s.w.t.Errorf("%s: the bitmap has %d bits, and %d belong to words", when, a, b)
	}
	// The other half, that each word has its bits, is Verify's.
	r, err := verifyOpen(s)
	noFaults(s.w.t, when, r, err)
	return true
}

// verifyOpen is Verify with the maintainer's lock held.
func verifyOpen(s *testStore) (*Report, error) {
	r := &Report{Deep: true}
	s.mu.Lock()
	rows := s.mu.registry.clone()
	s.mu.Unlock()
	v := verifier{ctx: context.Background(), report: r, store: s.Store, registry: rows, db: s.db, open: true}
	v.bitmap, v.filters = s.current.Load().bitmap, s.maintainer.filters
	return r, v.deep()
}

// TestCountedBuild has generations of words come and go. Each time a quarter is
// over, a build from counters leaves exactly the bits of what is left, and what
// is over is dropped after it.
func TestCountedBuild(t *testing.T) {
	for _, w := range []*world{onDisk(t), inMemory(t)} {
		w, c := counted(w)
		s := w.open()
		const day, n = 24 * time.Hour, 300
		compared := 0
		for i := range 12 {
			s.with(4*day).add(New, keys(i*n, i*n+n)...)
			s.flush()
			c.pass(day)
			s.kick()
			s.idle()
			s.has(Seen, keys(max(0, i-2)*n, i*n+n)...)
			if i > 5 {
				s.expire()
				s.flush()
				s.has(New, keys(0, (i-4)*n)...)
				if len(s.statesOf()) > 0 && s.statesOf()[segmentSubtracted] > 0 {
					t.Errorf("day %d: subtracted segments are still there: %v", i, s.statesOf())
				}
			}
			s.mu.Lock()
			leaked := s.mu.registry.leaked
			s.mu.Unlock()
			if leaked > 0 {
				t.Errorf("day %d: the counters count %d words that are not there, and none was forgotten", i, leaked)
			}
			if s.equalsFresh(fmt.Sprintf("day %d", i)) {
				compared++
			}
			if i == 7 {
				s.close()
				s = w.open()
			}
		}
		x := s.Stats()
		if s.statesOf()[segmentCounted] == 0 || x.Build.FromCounters < 3 || x.Disk.Counters == 0 {
			t.Errorf("states are %v, builds %+v, counters of %d bytes", s.statesOf(), x.Build, x.Disk.Counters)
		}
		if compared < 8 {
			t.Errorf("only %d bitmaps were compared", compared)
		}
		c.pass(day)
		s.expire()
		s.close()
	}
}

// TestCountModel adds with random TTLs, in namespaces too, lets time pass,
// forgets, drops, expires, reopens and kills. After each step of interest deep
// Verify is clean, which compares every counter; the answers are the model's.
func TestCountModel(t *testing.T) {
	for range 4 {
		t.Run("", countModel)
	}
}

func countModel(t *testing.T) {
	rng := seeded(t)
	w, c := counted(inMemory(t))
	s := w.open()
	type life struct{ from, by time.Duration }
	type place struct {
		name string
		i    int
	}
	const universe = 1500
	names := []string{"", "a", "b"}
	model := map[place]life{}
	began := c.Monotonic()
	at := func() time.Duration { return c.Monotonic() - began }
	handle := func(name string) *Namespace {
		if name == "" {
			return s.Namespace
		}
		n, err := s.OpenNamespace(name, nil)
		must(t, err)
		return n
	}
	check := func(step int, p place, seen bool) {
		t.Helper()
		old, known := model[p]
		if seen && (!known || at() > old.by) || !seen && known && at() < old.from {
			t.Fatalf("step %d: %v is seen %v; it expires at %v, now is %v", step, p, seen, old.from, at())
		}
	}
	for step := range 1500 {
		name := names[rng.IntN(len(names))]
		op := rng.IntN(40)
		switch {
		case op < 22:
			ttl := time.Duration(1 + rng.Int64N(int64(10*time.Hour)))
			n := 1 + rng.IntN(60)
			is, answers := rng.Perm(universe)[:n], make([]Answer, n)
			ks := []string{}
			for _, i := range is {
				ks = append(ks, key(i))
			}
			must(t, handle(name).With(WriteOptions{TTL: ttl}).AddBatch(t.Context(), ks, answers))
			for j, i := range is {
				p := place{name, i}
				check(step, p, answers[j] == Seen)
				if answers[j] == New {
					model[p] = life{at() + ttl, at() + ttl + max(time.Second, ttl/spansOfTTL)}
				}
			}
		case op < 26:
			p := place{name, rng.IntN(universe)}
			n, err := handle(name).Forget(t.Context(), key(p.i))
			must(t, err)
			check(step, p, n == 1)
			delete(model, p)
		case op < 31:
			c.pass(time.Duration(rng.Int64N(int64(30 * time.Minute))))
		case op < 34:
			s.flush()
		case op == 34 && rng.IntN(3) == 0 && name != "":
			handle(name)
			must(t, s.DropNamespace(t.Context(), name))
			for p := range model {
				if p.name == name {
					delete(model, p)
				}
			}
		case op == 35:
			s.expire()
			r, err := s.Verify(t.Context(), VerifyOptions{Deep: true})
			noFaults(t, fmt.Sprintf("at step %d", step), r, err)
		case op == 36 && rng.IntN(3) == 0:
			w.o.Counters = rng.IntN(5) > 0
			s.close()
			s = w.open()
		case op == 37 && rng.IntN(2) == 0:
			must(t, s.Sync(t.Context()))
			killed := w.crash(rng, []int{50, 100}[rng.IntN(2)])
			s.abandon()
			w = killed
			w.t, w.o.Counters = t, true
			s = w.open()
		case op == 38:
			s.idle()
		default:
			p := place{name, rng.IntN(universe)}
			seen, err := handle(name).Has(t.Context(), key(p.i))
			must(t, err)
			check(step, p, seen)
		}
	}
	for _, name := range names {
		for i := range universe {
			seen, err := handle(name).Has(t.Context(), key(i))
			must(t, err)
			check(-1, place{name, i}, seen)
		}
	}
	t.Logf("builds: %+v; segments: %v", s.Stats().Build, s.statesOf())
	c.pass(24 * time.Hour)
	s.expire()
	if n := len(s.segmentRows()); n != 0 {
		t.Errorf("%d segments are left: %v", n, s.statesOf())
	}
	s.close()
}

// TestOrderer makes one run of several.
func TestOrderer(t *testing.T) {
	rng := seeded(t)
	var o orderer
	for range 200 {
		o.reset()
		var want []word
		for range rng.IntN(9) {
			run := make([]word, rng.IntN(20))
			for i := range run {
				run[i] = rng.Uint64N(100)
			}
			slices.Sort(run)
			o.begin()
			must(t, o.add(run))
			want = append(want, run...)
		}
		slices.Sort(want)
		if got := o.ordered(); !slices.Equal(got, want) {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
}

// counterFile reads the file of the counters that count.
func (s *testStore) counterFile() (path string, content []byte) {
	s.w.t.Helper()
	s.mu.Lock()
	path = s.countersPath(s.mu.registry.counterGen)
	s.mu.Unlock()
	f, err := s.opts.seams.FS.Open(path)
	must(s.w.t, err)
	defer f.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(f)
	must(s.w.t, err)
	return path, b.Bytes()
}

// flip changes one byte of the counters.
func (s *testStore) flip(at func(size int) int) {
	s.w.t.Helper()
	path, content := s.counterFile()
	content[at(len(content))] ^= 1
	f, err := s.opts.seams.FS.Create(path, vfs.WriteCategoryUnspecified)
	must(s.w.t, err)
	_, err = f.Write(content)
	must(s.w.t, errors.Join(err, f.Sync(), f.Close()))
}

// withCounters is a store of four days, of which counters have some.
func withCounters(w *world) (*testStore, *fakeClock) {
	w, c := counted(w)
	s := w.open()
	for i := range 7 {
		s.with(4*24*time.Hour).add(New, keys(i*300, i*300+300)...)
		s.flush()
		c.pass(24 * time.Hour)
		s.expire()
	}
	if s.statesOf()[segmentCounted] == 0 {
		w.t.Fatalf("nothing is counted: %v", s.statesOf())
	}
	return s, c
}

// TestCountersDamaged removes, cuts, swaps and flips the counters of a store
// that is open, and of one that is not. It opens, answers, keeps the file, and
// what expires is dropped all the same. A build makes new ones.
func TestCountersDamaged(t *testing.T) {
	page := func(size int) int { return size / 2 }
	for _, c := range []struct {
		name   string
		damage func(s *testStore)
		kept   bool
	}{
		{"missing", func(s *testStore) {
			path, _ := s.counterFile()
			must(t, s.opts.seams.FS.Remove(path))
		}, false},
		{"header", func(s *testStore) { s.flip(func(int) int { return 20 }) }, true},
		{"page", func(s *testStore) { s.flip(page) }, true},
		{"trailer", func(s *testStore) { s.flip(func(size int) int { return size - 1 }) }, true},
	} {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/open=%v", c.name, open), func(t *testing.T) {
				w := inMemory(t)
				s, clock := withCounters(w)
				path, _ := s.counterFile()
				if !open {
					must(t, s.Store.Close())
				}
				c.damage(s)
				r, err := verifyDirOrStore(s, open)
				must(t, err)
				if len(r.Faults) != 1 || r.Faults[0].Path != path {
					t.Errorf("Verify has %+v, want one of %s", r.Faults, path)
				}
				if !open {
					s.abandon()
					s = w.open()
				}
				s.has(Seen, keys(4*300, 7*300)...)
				clock.pass(3 * 24 * time.Hour)
				s.expire()
				s.has(New, keys(0, 6*300)...)
				s.with(4*24*time.Hour).add(New, keys(10_000, 10_500)...)
				s.flush()
				clock.pass(24 * time.Hour)
				s.expire()
				for id, row := range s.segmentRows() {
					if row.ends <= s.time.now() {
						t.Errorf("segment %d is still there: %+v", id, row)
					}
				}
				names, err := s.opts.seams.FS.List(w.dir)
				must(t, err)
				if got := slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, countersPrefix) && strings.HasSuffix(n, badSuffix) }); got != c.kept {
					t.Errorf("a bad file is kept: %v; there are %q", got, names)
				}
				s.close()
			})
		}
	}
}

func verifyDirOrStore(s *testStore, open bool) (*Report, error) {
	if open {
		return s.Verify(context.Background(), VerifyOptions{Deep: true})
	}
	return verifyDir(context.Background(), s.w.dir, VerifyOptions{}, s.w.plainOptions())
}

// TestCountersTooLow has counters that lack a word of a segment that they are
// said to have. Verify says so.
func TestCountersTooLow(t *testing.T) {
	s, _ := withCounters(inMemory(t))
	s.maintainer.mu.Lock()
	s.mu.Lock()
	lie := segmentID(0)
	for id, row := range s.mu.registry.segments {
		if row.state == segmentOpen && row.words > 0 {
			lie = id
		}
	}
	row := s.mu.registry.segments[lie]
	row.state = segmentCounted
	s.mu.registry.segments[lie] = row
	s.mu.Unlock()
	s.maintainer.mu.Unlock()
	if lie == 0 {
		t.Fatalf("all segments are counted: %v", s.statesOf())
	}
	r, err := s.Verify(t.Context(), VerifyOptions{Deep: true})
	must(t, err)
	if len(r.Faults) != 1 || r.Faults[0].Consequence != becomesNew {
		t.Errorf("Verify has %+v", r.Faults)
	}
	s.abandon()
}

// TestCountersOnFullDisk has no room for counters: what is counted and over is
// dropped without being subtracted, and answers stay exact.
func TestCountersOnFullDisk(t *testing.T) {
	for name, fails := range map[string]func(errorfs.Op) bool{
		"create": func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate },
		"write":  isWrite,
		"sync":   isSync,
		"rename": func(op errorfs.Op) bool { return op.Kind == errorfs.OpRename },
	} {
		t.Run(name, func(t *testing.T) { testCountersOnFullDisk(t, fails) })
	}
}

func testCountersOnFullDisk(t *testing.T, fails func(errorfs.Op) bool) {
	var full atomic.Bool
	w := inMemory(t)
	w.fault = func(op errorfs.Op) error {
		if full.Load() && fails(op) && strings.Contains(op.Path, countersPrefix) {
			return syscall.ENOSPC
		}
		return nil
	}
	s, c := withCounters(w)
	full.Store(true)
	c.pass(2 * 24 * time.Hour)
	s.expire()
	s.has(New, keys(0, 4*300)...)
	s.has(Seen, keys(6*300, 7*300)...)
	if x := s.Stats(); x.Build.GivenUp == 0 || x.Disk.Counters != 0 {
		t.Errorf("builds are %+v, and counters have %d bytes", x.Build, x.Disk.Counters)
	}
	for id, row := range s.segmentRows() {
		if row.ends <= s.time.now() {
			t.Errorf("segment %d is still there: %+v", id, row)
		}
	}
	full.Store(false)
	s.close()
}

// TestCountedUnflushed begins a build between the freeze that has closed a
// segment and its flush: that segment is not counted yet, for words of it are
// still to come.
func TestCountedUnflushed(t *testing.T) {
	w, c := counted(inMemory(t))
	var s *testStore
	hold := false // of the maintainer alone
	held := 0
	w.point = func(at string) {
		switch {
		case at == "freeze" && hold:
			// The next step begins a build before it flushes.
			s.maintainer.noBuildBefore = time.Time{}
			held++
		case at == "build-begun" && hold:
			hold = false
		}
	}
	s = w.open()
	const day = 24 * time.Hour
	s.with(day).add(New, keys(0, 400)...)
	s.flush()
	s.idle()
	s.maintainer.mu.Lock()
	s.maintainer.noBuildBefore = time.Now().Add(time.Hour)
	s.maintainer.mu.Unlock()
	c.pass(day + 2*time.Hour)
	s.kick()
	eventually(t, "the drop", func() bool { s.kick(); return len(s.segmentRows()) == 0 })
	s.with(2*time.Hour).add(New, keys(1000, 1100)...)
	s.flush()
	s.with(2*time.Hour).add(New, keys(1100, 1200)...)
	c.pass(time.Hour + 50*time.Minute) // no TTL leads to the span any more
	s.maintainer.mu.Lock()
	hold = true
	s.maintainer.mu.Unlock()
	s.flush()
	s.idle()
	if held == 0 || s.Stats().Build.NewCounters == 0 {
		t.Fatalf("%d freezes, builds %+v", held, s.Stats().Build)
	}
	r, err := s.Verify(t.Context(), VerifyOptions{Deep: true})
	noFaults(t, "with counters", r, err)
	c.pass(3 * time.Hour)
	s.expire()
	s.close()
}

// TestInspectCounters shows what a counter file says, whole and damaged.
func TestInspectCounters(t *testing.T) {
	w := onDisk(t)
	s, _ := withCounters(w)
	path, content := s.counterFile()
	for _, damaged := range []bool{false, true} {
		if damaged {
			path = filepath.Join(t.TempDir(), "copy")
			content[len(content)-1] ^= 1
			must(t, os.WriteFile(path, content, 0o600))
		}
		n := 0
		must(t, InspectFilter(t.Context(), path, func(f Fact) error {
			if n++; f.Kind != "counters" || (f.Damage != "") != damaged || len(f.Fields) == 0 {
				t.Errorf("damaged %v: got %+v", damaged, f)
			}
			return nil
		}))
		if n != 1 {
			t.Errorf("%d facts", n)
		}
	}
	s.close()
}

// TestPoisonedInACount poisons a store while a build is half done, which then
// meets a full disk besides: the maintainer must not go on with that build, however
// often it is woken.
func TestPoisonedInACount(t *testing.T) {
	for range 12 {
		var s atomic.Pointer[testStore]
		w := inMemory(t)
		w.point = func(name string) {
			if s := s.Load(); s != nil && name == "counters-synced" {
				s.kick()
				s.poison(errInjected)
			}
		}
		w.fault = func(op errorfs.Op) error {
			if s.Load() != nil && op.Kind == errorfs.OpRename {
				return syscall.ENOSPC
			}
			return nil
		}
		made, c := withCounters(w)
		s.Store(made)
		c.pass(2 * 24 * time.Hour)
		_, _ = made.Expire(t.Context(), ExpireOptions{})
		eventually(t, "the poison", func() bool { made.kick(); return made.Err() != nil })
		is(t, "Err", made.Err(), errInjected)
		made.abandon()
	}
}
