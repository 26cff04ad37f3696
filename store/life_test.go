package store

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// What a key's life may meet, one trap a test: forgets, drops, namespaces and
// clocks.

// TestForgetEachCopy forgets a key that was added again under a wrong clock.
// When that is set right, the first copy would be live again.
func TestForgetEachCopy(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		w, c := clocked(inMemory(t))
		g := newGate(t)
		var armed atomic.Bool
		w.point = func(at string) {
			if at == "flush" && armed.Load() {
				g.pass()
			}
		}
		s := w.open()
		month := s.with(30 * day)
		month.add(New, keys(0, 10)...)
		s.flush()
		s.close()
		c.reboot(time.Minute)
		c.step(365 * day)
		s = w.open()
		month = s.with(30 * day)
		month.has(New, keys(0, 10)...)
		month.add(New, keys(0, 5)...) // a second copy of 0 to 4
		if frozen {
			armed.Store(true)
			flushed := start(func() { s.flush() })
			within(t, "the flush", g.reached)
			defer within(t, "the flush", flushed)
		}
		s.forget(1, key(0))
		s.forget(0, key(5))         // it has expired
		month.add(New, key(0))      // a third copy
		s.forget(2, key(0), key(1)) // and the first must not be counted twice
		g.open()
		c.step(-365 * day) // in the same opening
		s.kick()
		eventually(t, "the right time", func() bool { s.kick(); return s.time.now() < c.Wall().Add(day).UnixNano() })
		check := func(s *testStore) {
			t.Helper()
			s.has(New, key(0), key(1), key(5))
			s.has(Seen, key(2), key(3), key(4), key(6), key(9))
		}
		check(s)
		s.flush()
		check(s)
		s.forget(2, key(2), key(3))
		s.has(New, keys(0, 4)...)
		s.flush()
		s.has(New, keys(0, 4)...)
		s.has(Seen, key(4))
	}
}

// TestNamespaceAlone drops a namespace, and makes one, with nothing else in the
// log file, and kills the store and the one that has recovered it.
func TestNamespaceAlone(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	a := s.named("a", nil)
	a.add(New, keys(0, 10)...)
	s.flush()
	must(t, s.DropNamespace(t.Context(), "a"))
	s.named("b", &NamespaceOptions{TTL: time.Hour})
	rng := seeded(t)
	for range 2 {
		w = w.crash(rng, 100)
		s.abandon()
		s = w.open()
		s.add(Seen, keys(100, 110)[:0]...)
		s.named("a", nil).has(New, keys(0, 10)...)
		for n := range s.Namespaces() {
			if n.Name == "b" && n.TTL != time.Hour || n.URLs != 0 && n.Name != "" {
				t.Errorf("got %+v", n)
			}
		}
		if _, err := s.namespaceNamed("b"); err != nil {
			t.Error(err)
		}
		s.add(New, key(int(rng.Uint32())))
		s.flush()
	}
}

// TestOpenNamespaceAtOnce has two callers make a namespace, of which the second
// finds it made when it has the lock.
func TestOpenNamespaceAtOnce(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	for range 2 {
		if _, err := s.recordNamespace("a", 0); err != nil {
			t.Fatal(err)
		}
	}
	s.named("a", nil).add(New, key(1))
	w.crash(seeded(t), 100).open().named("a", nil).has(Seen, key(1))
}

// TestForgetTwice forgets a key whose record is on its way to the disk: who is
// told that it is forgotten may rely on that.
func TestForgetTwice(t *testing.T) {
	w := inMemory(t)
	g, arm := logGate(w, isSync)
	s := w.open()
	s.add(New, key(1))
	must(t, s.Sync(t.Context()))
	arm()
	forget := func(want int) <-chan struct{} {
		return start(func() {
			if n, err := s.Forget(context.Background(), key(1)); n != want || err != nil {
				t.Errorf("Forget: got %d, %v, want %d", n, err, want)
			}
		})
	}
	first := forget(1)
	within(t, "the sync", g.reached)
	second := forget(0)
	if ended(second) {
		t.Error("a key is said to be forgotten before its record is synced")
	}
	g.open()
	within(t, "Forget", first)
	within(t, "Forget", second)
}

// TestDroppedStaysSo drops a segment that has words in the memtable too, and
// then has the clock go back.
func TestDroppedStaysSo(t *testing.T) {
	w, c := clocked(inMemory(t))
	s := w.open()
	hour := s.with(time.Hour)
	hour.add(New, keys(0, 10)...)
	s.flush()
	hour.add(New, keys(10, 20)...)
	c.pass(2 * time.Hour)
	eventually(t, "the drop", func() bool { s.kick(); return len(s.segmentRows()) == 0 })
	c.step(-365 * day)
	must(t, s.acceptClock())
	s.has(New, keys(0, 20)...)
	s.urls(0)
	s.forget(0, keys(0, 20)...)
	s.flush()
	hour.add(New, keys(0, 20)...)
	s.urls(20)
}

// TestOptionTTL opens a store again with another TTL.
func TestOptionTTL(t *testing.T) {
	w, c := clocked(inMemory(t))
	s := w.open()
	s.add(New, key(1))
	s.close()
	w.o.TTL = time.Hour
	s = w.open()
	s.add(New, key(2))
	s.close()
	w.o.TTL = 0
	s = w.open()
	s.add(New, key(3))
	c.pass(2 * time.Hour)
	s.has(Seen, key(1))
	s.has(New, key(2), key(3))
}

// TestForgottenThenExpired adds a forgotten key again for a while, and lets that
// pass: the copy that was forgotten does not show.
func TestForgottenThenExpired(t *testing.T) {
	w, c := clocked(inMemory(t))
	s := w.open()
	s.add(New, key(1), key(2))
	s.flush()
	s.forget(2, key(1), key(2))
	s.with(time.Minute).add(New, key(1), key(2))
	s.has(Seen, key(1))
	c.pass(time.Hour)
	s.has(New, key(1), key(2))
	s.forget(0, key(1))
	s.add(New, key(1))
	s.flush()
	s.has(Seen, key(1))
	s.has(New, key(2))
	s.urls(1)
}

// TestDropAfterFlush drops what was flushed last, by an excision and by range
// tombstones: the filters that have its bits are sound, and so are the tables
// that an excision has cut in two.
func TestDropAfterFlush(t *testing.T) {
	for how, words := range excisions {
		t.Run(how, func(t *testing.T) {
			w := inMemory(t)
			w.exciseWords = words
			s := w.open()
			all := []testHandle{s.named("a", nil), s.named("b", nil), s.named("c", nil)}
			for _, n := range all {
				n.add(New, keys(0, 1000)...)
			}
			s.flush()
			s.add(New, keys(0, 1000)...)
			s.flush()
			all[1].add(New, keys(1000, 1010)...)
			s.flush() // so few that their bits are not synced
			must(t, s.DropNamespace(t.Context(), "b"))
			eventually(t, "the drop", func() bool { s.kick(); return len(s.segmentRows()) == 3 })
			killed := w.crash(seeded(t), 100)
			s.close()
			for _, after := range []*testStore{w.open(), killed.open()} {
				after.urls(3000)
				after.named("b", nil).has(New, keys(0, 1010)...)
				after.named("c", nil).has(Seen, keys(0, 1000)...)
				if n := after.Stats().Recovery.BitsSetAgain; n != 0 {
					t.Errorf("bits of %d words were set again", n)
				}
			}
		})
	}
}

// TestExpireTriesABuild has Expire meet a build that was given up.
func TestExpireTriesABuild(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.maintainer.mu.Lock()
	s.maintainer.noBuildBefore = time.Now().Add(time.Hour)
	s.maintainer.mu.Unlock()
	s.add(New, keys(0, 21_000)...)
	s.flush()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if r, err := s.Expire(ctx, ExpireOptions{}); err != nil || r.Builds == 0 {
		t.Errorf("got %+v, %v, want a build", r, err)
	}
}

// TestOneURL adds one URL ten thousand times, through claims that are committed
// and released at random, forgets others, and it now and then, flushes, kills the store and lets each
// log be replayed twice: once it is live it is never new.
func TestOneURL(t *testing.T) {
	const url = "https://example.com/"
	rng := seeded(t)
	w := inMemory(t)
	w.memtableWords, w.spanWords, w.buildWords, w.exciseWords = 40, 100, 50, 1
	w.o.ExpectedURLs = 100
	s := w.open()
	other := s.named("other", nil)
	live, others := false, 0
	var held []Claim
	ctx := t.Context()
	tell := func(i int, what string, a Answer, err error) {
		t.Helper()
		if err != nil || a == New && live {
			t.Fatalf("%d: %s: got %v, %v, the URL is live", i, what, a, err)
		}
	}
	for i := range 10_000 {
		switch x := rng.IntN(1000); {
		case x < 2 && live:
			s.forget(1, url)
			live = false
		case x < 300 && (live || x < 10): // else claims are to decide
			answers := make([]Answer, 1)
			err := s.AddBatch(ctx, []string{url}, answers)
			tell(i, "add", answers[0], err)
			live = live || answers[0] == New
		case x < 500:
			claim, a, err := s.Claim(ctx, url, 0)
			tell(i, "claim", a, err)
			if a == New {
				held = append(held, claim)
			}
		case x < 600 && len(held) > 0:
			c := held[0]
			held = held[1:]
			if rng.IntN(10) == 0 {
				must(t, c.Commit(ctx, Forever))
				live = true
			} else {
				must(t, c.Release())
			}
		case x < 700:
			answers := make([]Answer, 1)
			err := s.HasBatch(ctx, []string{url}, answers)
			tell(i, "has", answers[0], err)
			if (answers[0] == Seen) != live {
				t.Fatalf("%d: has: got %v, live is %v", i, answers[0], live)
			}
		case x < 800: // of non-members, and of a member of another namespace
			s.forget(0, url+"never", key(i))
			if n, err := other.Forget(ctx, url); err != nil || n > 1 {
				t.Fatal(n, err)
			}
		case x < 850:
			_, err := other.Add(ctx, url)
			must(t, err)
		case x < 950:
			s.add(New, url+key(i))
			others++
		case x < 985:
			s.flush()
		case x < 990:
			must(t, s.DropNamespace(ctx, "other"))
		default:
			for range 2 { // and before it does anything, again
				killed := w.crash(rng, 100)
				s.abandon()
				w = killed
				s = w.open()
			}
			other, held = s.named("other", nil), nil
		}
	}
	for _, c := range held {
		must(t, c.Release())
	}
	if !live {
		s.add(New, url)
	}
	s.add(Seen, url)
	for n := range s.Namespaces() {
		if n.Name == "" && n.URLs != int64(others)+1 {
			t.Errorf("got %d URLs, want %d", n.URLs, others+1)
		}
	}
}

// TestComeAndGo adds and forgets one key again and again: the log goes with it.
func TestComeAndGo(t *testing.T) {
	w := inMemory(t)
	w.memtableWords = 100
	s := w.open()
	for range 1000 {
		s.add(New, key(1))
		s.forget(1, key(1))
	}
	if x := s.Stats(); x.Flush.Flushes < 10 {
		t.Errorf("got %d flushes of 2000 records with a memtable of 100 words", x.Flush.Flushes)
	}
	s.urls(0)
}
