package store

import (
	"context"
	"testing"
	"time"
)

// What planted_test.go is, for forgets, expiry and namespaces.

// heldLook is a gate for the first look that has come to a point, once armed.
func heldLook(w *world, point string) (g *gate, arm func()) {
	g = newGate(w.t)
	armed := make(chan struct{}, 1)
	w.point = func(name string) {
		if name != point {
			return
		}
		select {
		case <-armed:
			g.pass()
		default:
		}
	}
	return g, func() { armed <- struct{}{} }
}

// TestForgetAgainstFill holds a look up that has found a word, until the word was
// forgotten. It must not come into the cache.
func TestForgetAgainstFill(t *testing.T) {
	w := inMemory(t)
	g, arm := heldLook(w, "look-found")
	s := w.open()
	s.add(New, key(1))
	s.flush()
	arm()
	held := start(func() { _, _ = s.Has(context.Background(), key(1)) })
	within(t, "the look", g.reached)
	s.forget(1, key(1))
	g.open()
	within(t, "Has", held)
	s.has(New, key(1))
	s.add(New, key(1))
}

// TestForgetAgainstAdd holds an Add up that has found its key, until the key was
// forgotten: the key is new.
func TestForgetAgainstAdd(t *testing.T) {
	w := inMemory(t)
	g, arm := heldLook(w, "look-found")
	s := w.open()
	s.add(New, key(1))
	s.flush()
	arm()
	var added bool
	held := start(func() { added, _ = s.Add(context.Background(), key(1)) })
	within(t, "the look", g.reached)
	s.forget(1, key(1))
	g.open()
	within(t, "Add", held)
	if !added {
		t.Error("a key that was forgotten is seen")
	}
	s.has(Seen, key(1))
	s.urls(1)
}

// TestForgetIsDurable cuts the power right after a Forget.
func TestForgetIsDurable(t *testing.T) {
	w := inMemory(t)
	w.o.Durability = NoSync
	s := w.open()
	s.add(New, keys(0, 10)...)
	s.flush()
	s.forget(1, key(1))
	w.crash(seeded(t), 0).open().has(New, key(1))
}

// TestForgetReplayed kills a store in whose log a key is added, forgotten, and
// added again.
func TestForgetReplayed(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	s.add(New, key(1), key(2), key(3))
	s.flush()
	s.add(New, key(4))
	s.forget(3, key(1), key(2), key(4))
	s.add(New, key(1), key(4))
	after := w.crash(seeded(t), 100).open()
	after.has(Seen, key(1), key(3), key(4))
	after.has(New, key(2))
	after.urls(3)
}

// TestAddOverTombstone adds keys that were forgotten again, for a while: to
// another segment and to the same one.
func TestAddOverTombstone(t *testing.T) {
	w, c := clocked(inMemory(t))
	s := w.open()
	s.add(New, keys(0, 10)...)
	s.flush()
	s.forget(10, keys(0, 10)...)
	s.with(time.Hour).add(New, keys(0, 5)...)
	s.add(New, keys(5, 10)...)
	s.flush()
	s.urls(10)
	c.pass(2 * time.Hour)
	s.has(New, keys(0, 5)...)
	s.has(Seen, keys(5, 10)...)
	s.urls(5)
}

// TestFirstAddDecides adds a live key again with a longer TTL.
func TestFirstAddDecides(t *testing.T) {
	w, c := clocked(inMemory(t))
	s := w.open()
	s.with(time.Hour).add(New, key(1))
	s.with(30*day).add(Seen, key(1))
	s.flush()
	s.with(30*day).add(Seen, key(1))
	s.urls(1)
	c.pass(2 * time.Hour)
	s.has(New, key(1))
}

// TestDroppedNotFlushed drops a segment that an add has chosen whose words are
// still in the memtable: the flush leaves them out.
func TestDroppedNotFlushed(t *testing.T) {
	w, c := clocked(inMemory(t))
	s := w.open()
	s.with(time.Hour).add(New, keys(0, 10)...)
	s.flush()
	s.with(time.Hour).add(New, keys(10, 20)...)
	s.add(New, keys(20, 30)...)
	c.pass(2 * time.Hour)
	eventually(t, "the drop", func() bool { s.kick(); return len(s.segmentRows()) == 1 })
	s.flush()
	s.has(New, keys(0, 20)...)
	s.urls(10)
}

// TestDroppedReplayed kills a store in whose log are words of a segment that was
// dropped.
func TestDroppedReplayed(t *testing.T) {
	w := inMemory(t)
	s := w.open()
	a := s.named("a", nil)
	a.add(New, keys(0, 10)...)
	s.flush()
	a.add(New, keys(10, 20)...)
	a.forget(1, key(3))
	s.add(New, key(100))
	must(t, s.DropNamespace(t.Context(), "a"))
	eventually(t, "the drop", func() bool { s.kick(); return len(s.segmentRows()) == 1 })
	after := w.crash(seeded(t), 100).open()
	after.named("a", nil).has(New, keys(0, 20)...)
	after.has(Seen, key(100))
	after.urls(1)
}

// TestDropOfNeighbours drops two segments at once that a live one is between.
func TestDropOfNeighbours(t *testing.T) {
	for how, words := range excisions {
		t.Run(how, func(t *testing.T) {
			w := inMemory(t)
			w.exciseWords = words
			g := newGate(t)
			w.point = func(at string) {
				if at == "step" {
					select {
					case <-g.reached: // the test has it held up
						<-g.opened
					default:
					}
				}
			}
			s := w.open()
			for _, name := range []string{"a", "b", "c"} {
				s.named(name, nil).add(New, keys(0, 10)...)
			}
			s.flush()
			close(g.reached)
			must(t, s.DropNamespace(t.Context(), "a"))
			must(t, s.DropNamespace(t.Context(), "c"))
			g.open()
			eventually(t, "the drop", func() bool { s.kick(); return len(s.segmentRows()) == 1 })
			s.named("b", nil).has(Seen, keys(0, 10)...)
			s.urls(10)
		})
	}
}

// TestStaleIncarnation holds an Add up whose words are made, until its namespace
// was dropped: the key is in what the namespace is from then on.
func TestStaleIncarnation(t *testing.T) {
	w := inMemory(t)
	g, arm := heldLook(w, "look-bitmap")
	s := w.open()
	a := s.named("a", nil)
	arm()
	held := start(func() {
		if added, err := a.Add(context.Background(), key(1)); !added || err != nil {
			t.Errorf("Add: got %v, %v", added, err)
		}
	})
	within(t, "the look", g.reached)
	must(t, s.DropNamespace(t.Context(), "a"))
	g.open()
	within(t, "Add", held)
	a.has(Seen, key(1))
	s.urls(1)
}

// TestNothingDroppedInDoubt opens a store by a clock that is a year ahead, and
// sets it right.
func TestNothingDroppedInDoubt(t *testing.T) {
	w, c := clocked(inMemory(t))
	s := w.open()
	month := s.with(30 * day)
	month.add(New, keys(0, 10)...)
	s.flush()
	month.add(New, keys(10, 20)...)
	s.close()
	c.reboot(time.Minute)
	c.step(365 * day)
	s = w.open()
	s.has(New, keys(0, 20)...)
	s.add(New, key(100))
	s.flush()
	s.close()
	c.step(-365 * day)
	s = w.open()
	s.has(Seen, keys(0, 20)...)
	s.urls(21)
}

// TestSwitchBeforeUnlink cuts the power when the bitmap before a build's was
// unlinked, and that is all that is on the disk of what was not synced.
func TestSwitchBeforeUnlink(t *testing.T) {
	w := inMemory(t)
	w.o.ExpectedURLs, w.o.Durability = 1000, NoSync
	rng := seeded(t)
	cut := make(chan *world, 1)
	w.point = func(at string) {
		if at == "build-removed" {
			after := w.crash(rng, 0)
			after.twin = w.twin.Crash(rng, 100)
			select {
			case cut <- after:
			default:
			}
		}
	}
	s := w.open()
	s.add(New, keys(0, 2000)...)
	s.flush()
	var after *world
	eventually(t, "the build", func() bool {
		select {
		case after = <-cut:
			return true
		default:
			return false
		}
	})
	got := after.open()
	got.has(Seen, keys(0, 2000)...)
	if bad := got.Stats().Recovery.BadFilters; len(bad) > 0 {
		t.Errorf("the bitmap that counts is gone: %+v", bad)
	}
}
