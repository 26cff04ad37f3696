package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"dedupstore/counting"
	"dedupstore/mmapfilter"
)

// counted is a world with counters, a clock that the test moves, and builds of
// several steps.
func counted(w *world) (*world, *fakeClock) {
	w, c := clocked(w)
	w.o.Counters, w.o.ExpectedURLs = os.Getenv("NOC") == "", 2000
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
// Pebble of all segments and nothing else. Nothing may wait to be flushed.
func (s *testStore) equalsFresh(when string) {
	s.w.t.Helper()
	s.maintainer.mu.Lock()
	defer s.maintainer.mu.Unlock()
	have := s.current.Load().bitmap
	want, err := mmapfilter.Create(mmapfilter.NewTwin(), "/fresh", have.header())
	must(s.w.t, err)
	s.mu.Lock()
	rows := s.mu.registry.clone()
	s.mu.Unlock()
	for _, id := range rows.ids() {
		must(s.w.t, scanSegment(s.db, id, want.SetSorted))
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
			if i == 7 {
				s.close()
				s = w.open()
			}
		}
		x := s.Stats()
		if s.statesOf()[segmentCounted] == 0 || x.Build.FromCounters < 3 || x.Disk.Counters == 0 {
			t.Errorf("states are %v, builds %+v, counters of %d bytes", s.statesOf(), x.Build, x.Disk.Counters)
		}
		// Idle words are those of uncounted segments that have left since.
		s.mu.Lock()
		dead := s.mu.registry.dead
		s.mu.Unlock()
		if dead == 0 {
			s.equalsFresh("at the end")
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
			st := s.current.Load()
			ww := wordOf(handle(p.name).core.current.Load().key, s.Digest(key(p.i)))
			println("bitmap", st.bitmap.maybe(ww), st.bitmap.path, handle(p.name).core.current.Load().number)
			s.mu.Lock()
			rows := s.mu.registry.clone()
			s.mu.Unlock()
			for id, row := range rows.segments {
				scanSegment(s.db, id, func(ws []word) error {
					for _, w := range ws {
						if w == ww {
							println("in segment", id, row.state.String(), row.ends, row.words, row.closedIn, row.ingest, row.incarnation)
						}
					}
					return nil
				})
			}
			t.Logf("%+v %+v", rows.storeRow, s.Stats().Build)
			t.Logf("%+v", s.Stats().Recovery)
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
			w.o.Counters = os.Getenv("NOC") == "" && rng.IntN(5) > 0
			s.close()
			s = w.open()
		case op == 37 && rng.IntN(2) == 0:
			must(t, s.Sync(t.Context()))
			killed := w.crash(rng, []int{50, 100}[rng.IntN(2)])
			s.abandon()
			w = killed
			w.t, w.o.Counters = t, os.Getenv("NOC") == ""
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

// TestWordsInOrder reads segments of random words, with the parts that a build
// takes and smaller ones.
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

var _ = counting.MaxProbes
var _ = rand.IntN
