package store

import (
	"io/fs"
	"path/filepath"
	"testing"
	"time"
)

// TestTimeSpan checks 10^5 random TTLs at random times: a word expires never
// early, and late by at most a 24th of its TTL or a second.
func TestTimeSpan(t *testing.T) {
	rng := seeded(t)
	for range 100_000 {
		now := rng.Int64N(1 << 61)
		ttl := 1 + rng.Int64N(int64(1)<<(10+rng.IntN(47)))
		id, ok := timeSpan(now, ttl)
		if !ok {
			t.Fatalf("a TTL of %v has no span", time.Duration(ttl))
		}
		late := id.end() - (now + ttl)
		if late < 0 || late > max(int64(time.Second), ttl/spansOfTTL) {
			t.Fatalf("at %d a TTL of %v ends %v late", now, time.Duration(ttl), time.Duration(late))
		}
		if ttl >= id.longestTTL() || ttl < id.shortestTTL() {
			t.Fatalf("a TTL of %v is not from %v to %v", time.Duration(ttl), id.shortestTTL(), id.longestTTL())
		}
		row := segmentRow{spanKind: id.kind, spanLog2: id.log2, span: id.number, ends: id.end()}
		must(t, row.checkSpan())
	}
	for _, ttl := range []int64{forever, forever - 1} {
		if id, ok := timeSpan(1<<60, ttl); ok {
			t.Errorf("a TTL of %d ns ends in span %+v", ttl, id)
		}
	}
}

// clockedStore is a store with small memtables whose clock the test moves.
func clockedStore(w *world) (*testStore, *fakeClock) {
	c := newFakeClock()
	w.o.Clock = c
	w.memtableWords, w.spanWords, w.buildWords = 500, 2000, 200
	return w.open(), c
}

// TestTTL expires keys in each place that they can be in: memtable, frozen or
// not, and Pebble, with the cache in front.
func TestTTL(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		w := inMemory(t)
		s, c := clockedStore(w)
		hour, month := s.with(time.Hour), s.with(30*24*time.Hour)
		hour.add(New, keys(0, 100)...)
		month.add(New, keys(100, 200)...)
		s.add(New, keys(200, 300)...)
		if flushed {
			s.flush()
		}
		for range 2 { // the second time from the cache
			s.has(Seen, keys(0, 300)...)
		}
		hour.add(Seen, keys(0, 300)...) // the first live Add decides
		s.urls(300)
		c.pass(time.Hour - time.Nanosecond)
		s.has(Seen, keys(0, 300)...)
		c.pass(time.Minute + time.Hour/24)
		s.has(New, keys(0, 100)...)
		s.has(Seen, keys(100, 300)...)
		s.urls(200)
		month.add(New, keys(0, 50)...) // over those that have expired
		s.has(Seen, keys(0, 50)...)
		s.has(New, keys(50, 100)...)
		s.urls(250)
		s.flush()
		s.has(Seen, keys(0, 50)...)
		s.has(New, keys(50, 100)...)
		s.has(Seen, keys(100, 300)...)
		s.urls(250)
		s.close()
		s = w.open()
		s.urls(250)
		c.pass(32 * 24 * time.Hour)
		s.has(New, keys(0, 200)...)
		s.has(Seen, keys(200, 300)...)
		s.urls(100)
		s.kick()
		eventually(t, "the drops", func() bool { s.kick(); return len(s.segmentRows()) == 1 })
		s.urls(100)
		s.add(New, keys(0, 200)...)
		s.close()
	}
}

// segmentRows are the rows of all segments.
func (s *testStore) segmentRows() map[segmentID]segmentRow {
	s.Store.mu.Lock()
	defer s.Store.mu.Unlock()
	return s.Store.mu.registry.clone().segments
}

// TestTTLModel adds with random TTLs, lets time pass, forgets, reopens and
// kills, and compares each answer with a model: never early, and late by at
// most a 24th of the TTL or a second.
func TestTTLModel(t *testing.T) {
	rng := seeded(t)
	w := inMemory(t)
	s, c := clockedStore(w)
	type life struct{ from, by time.Duration } // it expires in between
	model := map[int]life{}
	start := c.Monotonic()
	at := func() time.Duration { return c.Monotonic() - start }
	for step := range 3000 {
		switch op := rng.IntN(20); {
		case op < 12:
			ttl := time.Duration(rng.Int64N(int64(10 * time.Hour)))
			if rng.IntN(4) == 0 {
				ttl = time.Duration(rng.Int64N(int64(10 * time.Second)))
			}
			ttl = max(ttl, 1)
			n := 1 + rng.IntN(20)
			ks, is, answers := []string{}, rng.Perm(2000)[:n], make([]Answer, n)
			for _, i := range is {
				ks = append(ks, key(i))
			}
			must(t, s.With(WriteOptions{TTL: ttl}).AddBatch(t.Context(), ks, answers))
			for j, i := range is {
				old, known := model[i]
				switch {
				case answers[j] == New && known && at() < old.from:
					t.Fatalf("step %d: key %d is new %v early", step, i, old.from-at())
				case answers[j] == Seen && (!known || at() > old.by):
					t.Fatalf("step %d: key %d is seen, and was to expire at %v, now is %v", step, i, old.by, at())
				case answers[j] == New:
					model[i] = life{at() + ttl, at() + ttl + max(time.Second, ttl/spansOfTTL)}
				}
			}
		case op < 15:
			i := rng.IntN(2000)
			old, known := model[i]
			n, err := s.Forget(t.Context(), key(i))
			must(t, err)
			if n == 1 && (!known || at() > old.by) || n == 0 && known && at() < old.from {
				t.Fatalf("step %d: %d of key %d forgotten, which expires at %v, now is %v", step, n, i, old.from, at())
			}
			delete(model, i)
			s.has(New, key(i))
		case op < 17:
			c.pass(time.Duration(rng.Int64N(int64(20 * time.Minute))))
		case op < 18:
			s.flush()
		case op < 19 && rng.IntN(5) == 0:
			s.close()
			s = w.open()
		case rng.IntN(5) == 0:
			must(t, s.Sync(t.Context()))
			killed := w.crash(rng, 100)
			s.abandon()
			w = killed
			s = w.open()
		}
	}
	for i := range 2000 {
		old, known := model[i]
		seen, err := s.Has(t.Context(), key(i))
		must(t, err)
		if seen && (!known || at() > old.by) || !seen && known && at() < old.from {
			t.Errorf("key %d: seen is %v, it expires at %v, now is %v", i, seen, old.from, at())
		}
	}
	c.pass(24 * time.Hour)
	s.kick()
	eventually(t, "the drops", func() bool { s.kick(); return len(s.segmentRows()) == 0 })
	s.urls(0)
}

// TestForget forgets keys in each place that they can be in, and adds them
// again.
func TestForget(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 1000
	g := newGate(t)
	w.point = func(at string) {
		if at == "flush" {
			select {
			case <-g.opened:
			default:
				g.pass()
			}
		}
	}
	s := w.open()
	s.add(New, keys(0, 300)...)
	flushed := start(func() { s.flush() })
	within(t, "the flush", g.reached)
	s.add(New, keys(300, 600)...) // 0 to 299 are frozen
	s.forget(4, key(0), key(299), key(300), key(599), "never added", key(0))
	s.forget(0, key(0), key(299), key(300), key(599))
	s.urls(596)
	s.has(New, key(0), key(299), key(300), key(599))
	s.add(New, key(0), key(300))
	s.urls(598)
	g.open()
	within(t, "the flush", flushed)
	check := func(s *testStore) {
		t.Helper()
		s.has(Seen, key(0), key(300), key(1), key(598))
		s.has(New, key(299), key(599))
		s.urls(598)
	}
	check(s)
	rng := seeded(t)
	check(w.crash(rng, 100).open())
	s.flush()
	check(s)
	s.forget(2, key(0), key(1)) // in Pebble, and in the cache
	s.add(New, key(0))
	s.urls(597)
	s.has(New, key(1))
	check2 := func(s *testStore) {
		t.Helper()
		s.has(Seen, key(0))
		s.has(New, key(1))
		s.urls(597)
	}
	must(t, s.Sync(t.Context()))
	check2(w.crash(rng, 0).open())
	s.flush()
	check2(s)
	s.close()
	check2(w.open())
}

// TestForgetManyTimes forgets and adds one key again and again.
func TestForgetManyTimes(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 100
	s := w.open()
	rng := seeded(t)
	in := false
	for i := range 2000 {
		switch rng.IntN(8) {
		case 0:
			s.flush()
		case 1, 2, 3:
			want := 0
			if in {
				want = 1
			}
			s.forget(want, key(1))
			in = false
		default:
			want := New
			if in {
				want = Seen
			}
			s.add(want, key(1))
			in = true
		}
		if i%400 == 399 {
			s.close()
			s = w.open()
		}
	}
}

// TestNamespaces has the same keys in many namespaces, and drops one.
func TestNamespaces(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 500
	s := w.open()
	a, b := s.named("a", nil), s.named("b", &NamespaceOptions{TTL: time.Hour})
	s.add(New, keys(0, 100)...)
	a.add(New, keys(0, 50)...)
	b.add(New, keys(0, 20)...)
	s.urls(170)
	check := func(s *testStore, inA int64) {
		t.Helper()
		want := []NamespaceStats{{"", 100, Forever}, {"a", inA, Forever}, {"b", 20, time.Hour}}
		i := 0
		for n := range s.Namespaces() {
			if i >= len(want) || n != want[i] {
				t.Errorf("namespace %d: got %+v, want %+v", i, n, want[min(i, len(want)-1)])
			}
			i++
		}
		if i != len(want) {
			t.Errorf("got %d namespaces, want %d", i, len(want))
		}
	}
	check(s, 50)
	s.flush()
	check(s, 50)
	claim, answer, err := a.Claim(t.Context(), "claimed", 0)
	if answer != New || err != nil {
		t.Fatal(answer, err)
	}
	must(t, s.DropNamespace(t.Context(), "a"))
	is(t, "Commit in a namespace that was dropped", claim.Commit(t.Context(), 0), ErrClaimLost)
	check(s, 0)
	a.has(New, keys(0, 50)...)
	b.has(Seen, keys(0, 20)...)
	s.has(Seen, keys(0, 100)...)
	a.add(New, keys(0, 10)...)
	check(s, 10)
	rng := seeded(t)
	after := w.crash(rng, 100).open()
	check(after, 10)
	after.named("a", nil).has(New, keys(10, 50)...)
	s.flush()
	check(s, 10)
	s.close()
	s = w.open()
	check(s, 10)
	s.named("a", nil).has(Seen, keys(0, 10)...)
	s.named("a", nil).has(New, keys(10, 50)...)
	is(t, "DropNamespace", s.DropNamespace(t.Context(), "c"), ErrNotExist)
}

// TestManyNamespaces has small ones, drops one, and counts exactly.
func TestManyNamespaces(t *testing.T) {
	const n = 10_000
	w := inMemory(t)
	w.memtableWords = 4000
	s := w.open()
	rng := seeded(t)
	counts := make([]int64, n)
	name := func(i int) string { return "n" + string(rune('a'+i%26)) + key(i) }
	for i := range n {
		counts[i] = 1 + rng.Int64N(10)
		s.named(name(i), nil).add(New, keys(0, int(counts[i]))...)
	}
	check := func(s *testStore) {
		t.Helper()
		got := map[string]int64{}
		for x := range s.Namespaces() {
			got[x.Name] = x.URLs
		}
		for i := range n {
			if got[name(i)] != counts[i] {
				t.Fatalf("namespace %d has %d URLs, want %d", i, got[name(i)], counts[i])
			}
			h := s.named(name(i), nil)
			h.has(Seen, keys(0, int(counts[i]))...)
			h.has(New, keys(int(counts[i]), 12)...)
		}
	}
	check(s)
	s.flush()
	check(s)
	gone := rng.IntN(n)
	must(t, s.DropNamespace(t.Context(), name(gone)))
	counts[gone] = 0
	check(s)
	s.close()
	check(w.open())
}

// TestTTLOfStore gives a store that exists another TTL: it is recorded, for the
// keys that are added from then on.
func TestTTLOfStore(t *testing.T) {
	w, c := clocked(inMemory(t))
	w.o.TTL = time.Hour
	s := w.open()
	s.add(New, key(1))
	s.close()
	w.o.TTL = 0
	s = w.open()
	s.add(New, key(2))
	s.close()
	w.o.TTL = Forever
	s = w.open()
	s.add(New, key(3))
	s.close()
	w.o.TTL = 0
	s = w.open()
	s.add(New, key(4))
	c.pass(2 * time.Hour)
	s.has(New, key(1), key(2))
	s.has(Seen, key(3), key(4))
	w.o.TTL = -1
	if _, err := Open(w.dir, w.options()); err == nil {
		t.Error("a negative TTL opens")
	}
	err := s.With(WriteOptions{TTL: -1}).AddBatch(t.Context(), []string{"k"}, make([]Answer, 1))
	if err == nil {
		t.Error("a negative TTL adds")
	}
}

// TestHandleDurability adds through handles of each level in stores of each.
func TestHandleDurability(t *testing.T) {
	for _, of := range []Durability{Interval, Sync, NoSync} {
		for _, with := range []Durability{DurabilityDefault, Interval, Sync, NoSync} {
			w := inMemory(t)
			w.o.Durability, w.o.SyncInterval = of, time.Hour
			s := w.open()
			s.add(New, "before")
			must(t, s.Sync(t.Context()))
			n := testHandle{s.With(WriteOptions{Durability: with}), t}
			n.add(New, "k")
			want := New
			if with == Sync || with == DurabilityDefault && of == Sync || with == Interval && of == NoSync {
				want = Seen
			}
			after := w.crash(seeded(t), 0).open()
			after.has(want, "k")
			after.has(Seen, "before")
		}
	}
}

// TestExpire drops all that has expired, and builds a smaller bitmap: the disk
// is what a store of none takes.
func TestExpire(t *testing.T) {
	w, c := clocked(onDisk(t))
	w.o.ExpectedURLs, w.memtableWords, w.buildWords = 1000, 2000, 500
	s := w.open()
	s.close()
	empty := diskOf(t, w.dir)
	s = w.open()
	s.with(time.Hour).add(New, keys(0, 40_000)...)
	s.flush()
	c.pass(2 * time.Hour)
	var left []int64
	r, err := s.Expire(t.Context(), ExpireOptions{Progress: func(n int64) { left = append(left, n) }})
	if err != nil || r.URLs != 40_000 || r.Segments == 0 || r.Builds == 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	if len(left) == 0 || left[len(left)-1] != 0 {
		t.Errorf("progress: %v", left)
	}
	s.urls(0)
	if x := s.Stats().Bitmap; x.Capacity > 4096 || x.Dead != 0 {
		t.Errorf("the bitmap is for %d URLs, with %d dead words", x.Capacity, x.Dead)
	}
	if r, err := s.Expire(t.Context(), ExpireOptions{}); err != nil || r != (ExpireReport{}) {
		t.Errorf("again: got %+v, %v", r, err)
	}
	s.close()
	if got := diskOf(t, w.dir); float64(got) > 1.2*float64(empty) {
		t.Errorf("%d bytes on disk, %d in an empty store", got, empty)
	}
}

// diskOf is what the files of a directory take.
func diskOf(t *testing.T, dir string) (n int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		n += info.Size()
		return err
	}))
	return n
}

// TestDeadWordsOnRecord drops words while a bitmap is built: those that the
// build has read already are dead in the new one, and a crash does not hide it.
func TestDeadWordsOnRecord(t *testing.T) {
	w, c := clocked(inMemory(t))
	w.o.ExpectedURLs, w.memtableWords, w.buildWords = 1000, 2000, 100
	w.point = func(at string) {
		if at == "build-begun" {
			c.pass(2 * time.Hour)
		}
	}
	s := w.open()
	s.with(time.Hour).add(New, keys(0, 900)...)
	s.flush()
	if s.Stats().Build.Builds != 0 {
		t.Fatal("the test is of a build that has not begun yet")
	}
	s.add(New, keys(1000, 2500)...)
	s.flush()
	eventually(t, "a build, and a drop", func() bool {
		s.kick()
		x := s.Stats()
		return x.Build.Builds > 0 && x.Build.Building == "" && x.Expiry.DroppedURLs == 900
	})
	dead := s.Stats().Bitmap.Dead
	if dead == 0 {
		t.Fatal("no word was dropped behind the build's back")
	}
	must(t, s.Sync(t.Context()))
	for _, after := range []*testStore{w.crash(seeded(t), 100).open(), w.crash(seeded(t), 0).open()} {
		if got := after.Stats().Bitmap.Dead; got < dead {
			t.Errorf("%d dead words after a crash, %d before", got, dead)
		}
	}
	s.close()
	if got := w.open().Stats().Bitmap.Dead; got < dead {
		t.Errorf("%d dead words after Close, %d before", got, dead)
	}
}
